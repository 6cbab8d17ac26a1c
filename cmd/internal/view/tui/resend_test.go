package tui

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"mcpwire/capture"
)

// saved writes a capture of a source to a file, and sets its path in the source.
func saved(t *testing.T, f *fakeSource, i int, path string) {
	t.Helper()
	id := f.sources[i].ID
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	enc := capture.NewEncoder(out, nil)
	if err := enc.Encode(&capture.Event{Kind: capture.KindHead, Head: f.heads[id]}); err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= f.last[id]; n++ {
		if err := enc.Encode(f.events[key(id, n)]); err != nil {
			t.Fatal(err)
		}
	}
	if err := enc.Flush(); err != nil {
		t.Fatal(err)
	}
	f.sources[i].Path = path
}

// TestResendAgain checks that the terminal asks for confirmation with the command before it starts
// one, and that a request can be edited first.
func TestResendAgain(t *testing.T) {
	dir := t.TempDir()
	f := newFake()
	f.add(t, "A", "files", "stdio", legacy)
	saved(t, f, 0, filepath.Join(dir, "a.mcpcap.ndjson"))
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, f, &Options{Colors: NoColor, Captures: dir}).size(80, 24)
		d.keys("g", "r").has("only what the client sent can be sent again")
		d.keys("G", "r").check().has("Send it to a fresh copy: start node build/index.js? y/n")
		d.keys("n").has("nothing was done")
		d.keys("E").check().has("Edit and send", `"query": "slow"`, "Ctrl+S send")
		d.keys("esc").has("nothing was sent")
		d.keys("E").types("x").keys("ctrl+s").has("it is no longer JSON")
		d.keys("E").size(60, 12).check().keys("ctrl+s").has("Send it to a fresh copy: start node build/index.js? y/n")
		d.keys("x").has("nothing was done")
		d.size(40, 10).keys("r").check().has("Send it to a fresh copy?", "node build/index.js", "Do that? y/n").keys("n").check().has("nothing was done").lacks("node build")
	})
	if list, _ := filepath.Glob(filepath.Join(dir, "*")); len(list) != 1 {
		t.Errorf("unexpected files: %v", list)
	}
}

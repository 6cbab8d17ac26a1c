package kit

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIsTerminal shows that only a terminal is one, and other devices, pipes and files are not. A
// console of Windows can be tried only where the test has one; .ci/wine sees to that.
func TestIsTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	closed, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{"pipe": IsTerminal(r), "file": IsTerminal(closed)}
	closed.Close()
	got["closed"] = IsTerminal(closed)
	want := map[string]bool{"pipe": false, "file": false, "closed": false}
	devices := map[string]bool{os.DevNull: false}
	switch runtime.GOOS {
	case "linux":
		devices["/dev/zero"], devices["/dev/ptmx"] = false, true
	case "windows":
		devices["CONIN$"], devices["CONOUT$"] = true, true
	}
	for name, terminal := range devices {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Logf("%s is left out: %v", name, err)
			continue
		}
		got[name], want[name] = IsTerminal(f), terminal
		f.Close()
	}
	if os.Getenv("MCPWIRE_TEST_CONSOLE") != "" {
		got["standard output"], want["standard output"] = IsTerminal(os.Stdout), true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

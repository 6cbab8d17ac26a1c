package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/captures"
)

// TestTapReportsPruned shows that a tap reports the removal of its folder of captures, and creates
// it again.
func TestTapReportsPruned(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be removed")
	}
	home := t.TempDir()
	t.Setenv(captures.HomeVariable, home)
	var stderr bytes.Buffer
	e := &env{stderr: &stderr, stdout: &stderr}
	f := &tapFlags{redact: "default"}
	rec, err := f.record(e, &recordingOf{transport: "stdio", name: "x"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(home, "captures")); err != nil {
		t.Fatal(err)
	}
	rec.writer.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("late")})
	rec.finish(e.stderr)
	if got := stderr.String(); !strings.Contains(got, "the file was removed; recording continues in a new file") || strings.Count(got, "\n") != 1 {
		t.Errorf("stderr: %q", got)
	}
	if text, err := os.ReadFile(rec.file.Name()); err != nil || !bytes.Contains(text, []byte(`"k":"tail"`)) {
		t.Errorf("the capture is %q, %v", text, err)
	}
}

// TestTapReportsLost shows that a tap says at its end how much it could not record.
func TestTapReportsLost(t *testing.T) {
	file, err := capture.Create(filepath.Join(t.TempDir(), "a"+capture.Suffix), &capture.Options{MaxQueue: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; file.Lost() == 0; i++ {
		if i == 1_000_000 {
			t.Fatal("nothing is lost")
		}
		file.Record(&capture.Event{Kind: capture.KindMessage, Data: bytes.Repeat([]byte("x"), 1000)})
	}
	var stderr bytes.Buffer
	(&tapRecording{file: file, writer: file.Writer}).finish(&stderr)
	want := "mcpwire: 1 event lost: writing to " + file.Name() + " was too slow or failed\n"
	if got := stderr.String(); got != want {
		t.Errorf("stderr: got %q, want %q", got, want)
	}
}

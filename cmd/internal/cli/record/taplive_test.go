package record

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
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
	e := &kit.Env{Stderr: &stderr, Stdout: &stderr}
	f := &tapFlags{redact: "default"}
	rec, err := f.record(e, &recordingOf{transport: "stdio", name: "x"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(home, "captures")); err != nil {
		t.Fatal(err)
	}
	rec.Writer.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("late")})
	rec.Finish(e.Stderr)
	if got := stderr.String(); !strings.Contains(got, "the file was removed; recording continues in a new file") || strings.Count(got, "\n") != 1 {
		t.Errorf("stderr: %q", got)
	}
	if text, err := os.ReadFile(rec.File.Name()); err != nil || !bytes.Contains(text, []byte(`"k":"tail"`)) {
		t.Errorf("the capture is %q, %v", text, err)
	}
}

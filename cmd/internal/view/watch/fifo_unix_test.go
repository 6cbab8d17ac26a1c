//go:build unix

package watch_test

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/view/watch"
)

// TestFIFO checks that a file that is not regular is skipped and blocks nothing.
func TestFIFO(t *testing.T) {
	dir := t.TempDir()
	fifo, named := filepath.Join(dir, "fifo"+suffix), filepath.Join(t.TempDir(), "named"+suffix)
	for _, path := range []string{fifo, named} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := running(t, &watch.Options{Dir: dir, Files: []string{named}, MaxFinished: -1})
	late := filepath.Join(dir, "late"+suffix)
	if err := syscall.Mkfifo(late, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Open(fifo); !errors.Is(err, capture.ErrNotCapture) {
		t.Errorf("Open: %v", err)
	}
	write(t, filepath.Join(dir, "good"+suffix), "good", begun, 1, tail())
	await(t, h, "a capture", settledRows(1))
	for _, s := range h.Sources() {
		if (s.Path == named) != (s.Err != "") || s.Path == late || s.Path == fifo {
			t.Errorf("source %+v", s)
		}
	}
}

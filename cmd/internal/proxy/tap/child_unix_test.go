//go:build unix

package tap

import (
	"os"
	"testing"
)

// TestHangup checks what poll reports of pipes whose other end is closed, with and without input
// that nobody has read.
func TestHangup(t *testing.T) {
	for _, tt := range []struct {
		name  string
		input string
		close bool
	}{
		{"open", "", false},
		{"open, with input", "x", false},
		{"closed", "", true},
		{"closed, with input", "x", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			if _, err := w.WriteString(tt.input); err != nil {
				t.Fatal(err)
			}
			if tt.close {
				w.Close()
			}
			if got := waitHangup(r, 0); got != tt.close {
				t.Errorf("hangup: got %t, want %t", got, tt.close)
			}
			if got := pipeEmpty(r); got != (tt.input == "") && !tt.close {
				t.Errorf("empty: got %t with input %q", got, tt.input)
			}
		})
	}
	for _, closed := range []bool{false, true} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		defer r.Close()
		if closed {
			r.Close()
		}
		if got := readerGone(w); got != closed {
			t.Errorf("reader gone: got %t, want %t", got, closed)
		}
	}
	// macOS cannot poll this device.
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if readerGone(null) {
		t.Error("the reader of the null device is gone")
	}
}

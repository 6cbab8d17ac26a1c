package filelock

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTry locks a file from two handles, as two processes do.
func TestTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	try := func(f *os.File, want bool) {
		t.Helper()
		if got, err := Try(f); got != want || err != nil {
			t.Fatalf("got %t, %v, want %t", got, err, want)
		}
	}
	first, second := open(), open()
	try(first, true)
	try(second, false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	try(second, true)
	try(open(), false)
}

package inuse

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/windows"
)

// TestInUse checks that a file that another program has open is not replaced, and that the error
// names the fix.
func TestInUse(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	write(t, from, "new")
	write(t, to, "old")
	name, err := windows.UTF16PtrFromString(to)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := windows.CreateFile(name, windows.GENERIC_READ, 0, nil, windows.OPEN_EXISTING, 0, 0) // shares nothing
	if err != nil {
		t.Fatal(err)
	}
	defer windows.CloseHandle(handle)
	if err := Rename(from, to); !errors.Is(err, ErrInUse) {
		t.Errorf("rename: got %v", err)
	}
	if _, err := Open(to, os.O_RDWR, 0); !errors.Is(err, ErrInUse) {
		t.Errorf("open: got %v", err)
	}
	if _, err := os.Stat(from); err != nil {
		t.Error(err)
	}
}

package captures

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockRange is a place that no capture reaches: locks keep others from reading what is locked.
func lockRange() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

// lock takes the lock of whoever writes f.
func lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, lockRange())
}

// locked reports whether somebody writes f.
func locked(f *os.File) bool {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, lockRange())
	if err == nil {
		_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockRange())
	}
	return errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}

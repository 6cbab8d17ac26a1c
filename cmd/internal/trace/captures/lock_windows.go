package captures

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockRange returns an offset beyond any capture, because a lock prevents others from reading the
// locked range.
func lockRange() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

// lock takes the writer's lock of f.
func lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, lockRange())
}

// locked reports whether a process writes f.
func locked(f *os.File) bool {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, lockRange())
	if err == nil {
		_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockRange())
	}
	return errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}

//go:build unix && !solaris && !aix

package captures

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the writer's lock of f. It waits for readers that test the lock, which is short.
func lock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// locked reports whether a process writes f. Readers do not block each other.
func locked(f *os.File) bool {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

//go:build unix && !solaris && !aix

package captures

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the lock of whoever writes f. It waits for those who look, which takes them no time.
func lock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// locked reports whether somebody writes f. Those who look do not get in each other's way.
func locked(f *os.File) bool {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

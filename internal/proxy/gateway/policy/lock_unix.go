//go:build unix && !solaris && !aix

package policy

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks a file, or reports false if another process has the lock. Closing the file releases
// it.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}

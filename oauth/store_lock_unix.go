//go:build unix && !solaris && !aix

package oauth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openNoFollow makes opening a symbolic link fail. O_NONBLOCK prevents a named pipe from blocking.
const openNoFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

func isLinkError(err error) bool { return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) }

// checkOwner rejects a file of another user, who could change it.
func checkOwner(path string, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to another user", errStoreUnsafe, path)
	}
	return nil
}

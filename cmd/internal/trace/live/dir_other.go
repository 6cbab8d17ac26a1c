//go:build !unix

package live

import (
	"io/fs"
	"net"
	"path/filepath"
)

// private and owned are always true: only the user has access to the place of the folder.
func private(fs.FileInfo) bool { return true }
func owned(fs.FileInfo) bool   { return true }

// listen listens on a socket.
func listen(dir, name string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name+suffix), Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false) // as on Unix: Server removes it
	}
	return l, err
}

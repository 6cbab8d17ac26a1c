//go:build unix

package live

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// private reports whether only the owner has access.
func private(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 == 0 }

// owned reports whether the user owns the file.
func owned(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(st.Uid) == int64(os.Geteuid())
}

// listen listens on a socket. The socket gets its final name when it listens.
func listen(dir, name string) (*net.UnixListener, error) {
	path := filepath.Join(dir, name+suffix)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name+newSuffix), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it is renamed below
	err = os.Chmod(filepath.Join(dir, name+newSuffix), 0o600)
	if err == nil {
		err = os.Rename(filepath.Join(dir, name+newSuffix), path)
	}
	if err != nil {
		l.Close()
		os.Remove(filepath.Join(dir, name+newSuffix))
		return nil, err
	}
	return l, nil
}

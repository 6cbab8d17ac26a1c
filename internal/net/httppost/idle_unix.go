//go:build unix

package httppost

import (
	"net"
	"syscall"
)

// canCheckIdle says that isQuiet works on this system.
const canCheckIdle = true

// isQuiet reports if an idle connection is open and has no data to read. Data would be that of an
// earlier response, or none that the protocol allows.
func isQuiet(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
		return true
	})
	return err == nil && quiet
}

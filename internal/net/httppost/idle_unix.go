//go:build unix

package httppost

import "syscall"

// canCheckIdle says that isQuiet works on this system.
const canCheckIdle = true

// isQuiet reports if an idle connection is open and has no data to read. Data would be that of an
// earlier response, or none that the protocol allows. c may be nil.
func isQuiet(c syscall.RawConn) bool {
	if c == nil {
		return false
	}
	quiet := false
	err := c.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
		return true
	})
	return err == nil && quiet
}

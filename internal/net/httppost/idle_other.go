//go:build !unix

package httppost

import "syscall"

// canCheckIdle says that nothing is sent here on this system.
const canCheckIdle = false

func isQuiet(syscall.RawConn) bool { return false }

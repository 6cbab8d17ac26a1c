// Package neterror recognizes errors of network connections on every system.
//
// The Winsock calls of Windows return numbers of their own (https://learn.microsoft.com/en-us/windows/win32/winsock/windows-sockets-error-codes-2), and not those that
// package syscall has as ECONNREFUSED and ECONNRESET there. No Unix has errors with such numbers.
package neterror

import (
	"errors"
	"syscall"
)

const (
	wsaConnectionAborted = syscall.Errno(10053)
	wsaConnectionReset   = syscall.Errno(10054)
	wsaConnectionRefused = syscall.Errno(10061)
)

// IsRefused reports whether err says that nobody listens at an address, though its machine is there.
func IsRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, wsaConnectionRefused)
}

// IsReset reports whether err says that the peer, or this machine's network stack, broke a connection off.
func IsReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, wsaConnectionReset) || errors.Is(err, wsaConnectionAborted)
}

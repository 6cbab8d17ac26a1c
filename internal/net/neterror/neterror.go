// Package neterror recognizes errors of network connections on every system.
//
// Winsock calls of Windows return their own numbers
// (https://learn.microsoft.com/en-us/windows/win32/winsock/windows-sockets-error-codes-2), which
// differ from ECONNREFUSED and ECONNRESET in package syscall. No Unix has errors with such numbers.
package neterror

import (
	"errors"
	"net/url"
	"syscall"
)

const (
	wsaConnectionAborted = syscall.Errno(10053)
	wsaConnectionReset   = syscall.Errno(10054)
	wsaConnectionRefused = syscall.Errno(10061)
)

// IsRefused reports whether err says that nothing listens at an address of a reachable machine.
func IsRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, wsaConnectionRefused)
}

// IsReset reports whether err says that the peer, or this machine's network stack, aborted a
// connection.
func IsReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, wsaConnectionReset) || errors.Is(err, wsaConnectionAborted)
}

// WithoutURL returns the error of a client of net/http without the URL, which may have secrets.
func WithoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}

//go:build linux

package main

import (
	"syscall"
	"unsafe"
)

// await waits until in can be read, or out can be written, or either has failed; the next read or
// write returns the error. See poll(2).
func await(in, out int) (readable, writable bool, err error) {
	const pollIn, pollOut = 1, 4
	fds := [2]struct {
		fd              int32
		events, happens int16
	}{{int32(in), pollIn, 0}, {int32(out), pollOut, 0}}
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), uintptr(len(fds)), 0, 0, 0, 0)
		switch errno {
		case 0:
			return fds[0].happens != 0, fds[1].happens != 0, nil
		case syscall.EINTR:
		default:
			return false, false, errno
		}
	}
}

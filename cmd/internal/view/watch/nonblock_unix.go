//go:build unix

package watch

import "syscall"

// nonblock prevents the opening of a FIFO from waiting for a writer.
const nonblock = syscall.O_NONBLOCK

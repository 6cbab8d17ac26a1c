//go:build unix

package watch

import "syscall"

// nonblock keeps the opening of a FIFO from waiting for somebody who writes.
const nonblock = syscall.O_NONBLOCK

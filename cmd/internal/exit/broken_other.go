//go:build !windows

package exit

import (
	"errors"
	"syscall"
)

// isBroken reports whether a write failed because the other end of the pipe is closed.
func isBroken(err error) bool { return errors.Is(err, syscall.EPIPE) }

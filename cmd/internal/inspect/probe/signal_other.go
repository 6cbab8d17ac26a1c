//go:build !unix

package probe

import (
	"errors"
	"syscall"
)

const canSignal = false

func signal(int, syscall.Signal) error { return errors.ErrUnsupported }

//go:build unix && !linux

package stdio

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// newInput takes over fd if it succeeds.
func newInput(fd int) (input, error) {
	in, err := newPolledInput(fd)
	if err != nil {
		return nil, err
	}
	return in, nil
}

// newOutput takes over fd.
func newOutput(fd int) output { return newPolledOutput(fd) }

func cloexecPipe(p []int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(p); err != nil {
		return err
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	return nil
}

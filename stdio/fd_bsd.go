//go:build unix && !linux

package stdio

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// newInput returns an input for fd, and owns fd unless it fails.
func newInput(fd int) (input, error) { return newPolledInput(fd) }

// newOutput returns an output that owns fd.
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

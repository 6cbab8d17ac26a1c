//go:build unix

package matrix

import (
	"errors"
	"fmt"
	"syscall"
)

// noChildren returns an error if this process has children, running or not waited for.
func noChildren() error {
	pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
	if errors.Is(err, syscall.ECHILD) {
		return nil
	}
	return fmt.Errorf("a child process is left (wait4: %d, %v)", pid, err)
}

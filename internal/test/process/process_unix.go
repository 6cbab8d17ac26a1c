//go:build unix

// Package process lets tests look at processes that they did not start themselves.
package process

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Running reports whether a process exists and has not ended. A process that has ended keeps its
// number until its parent notices.
func Running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		_, err = os.Stat("/proc/self/stat") // only some systems have it
		return err != nil
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

//go:build unix

package stdio

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A group is a process group that we created. The zero value is none, and signalling it does nothing.
type group struct{ id int }

// newGroup returns the group of a process that was started with groupAttr.
func newGroup(leader *os.Process) group { return group{leader.Pid} }

func (g group) terminate() { g.signal(unix.SIGTERM) }
func (g group) kill()      { g.signal(unix.SIGKILL) }

func (g group) signal(s syscall.Signal) {
	if g.id > 1 { // 0 is our own group, and -1 everybody
		unix.Kill(-g.id, s)
	}
}

// exitSignal returns the signal that ended a process, or nil.
func exitSignal(state *os.ProcessState) os.Signal {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return nil
}

//go:build unix

package stdio

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A processGroup is a process group that this package created. The zero value has no group and
// ignores signals.
type processGroup struct{ id int }

// newProcessGroup returns the group of a process started with processGroupAttr.
func newProcessGroup(leader *os.Process) processGroup { return processGroup{leader.Pid} }

func (pg processGroup) terminate() { pg.signal(unix.SIGTERM) }
func (pg processGroup) kill()      { pg.signal(unix.SIGKILL) }

func (pg processGroup) signal(s syscall.Signal) {
	if pg.id > 1 { // 0 is our group, and -1 is every process
		unix.Kill(-pg.id, s)
	}
}

// exitSignal returns the signal that ended a process, or nil.
func exitSignal(state *os.ProcessState) os.Signal {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return nil
}

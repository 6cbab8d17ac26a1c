//go:build unix

package procgroup

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Group is the process group of a child. The zero value has no group and ignores signals.
type Group struct{ id int }

// New returns the group of a process that was started with [Attr].
func New(leader *os.Process) Group { return Group{leader.Pid} }

// Terminate sends SIGTERM to the group.
func (g Group) Terminate() { g.Signal(unix.SIGTERM) }

// Kill sends SIGKILL to the group.
func (g Group) Kill() { g.Signal(unix.SIGKILL) }

// Close ends the rest of the group. Call it when the child has ended, and do not use the Group
// afterwards.
func (g Group) Close() { g.Kill() }

// Signal sends a signal to the group.
func (g Group) Signal(s syscall.Signal) {
	if g.id > 1 { // 0 is the group of this process, and -1 all processes
		_ = unix.Kill(-g.id, s) // it may have ended
	}
}

// SignalLeader sends a signal to the child only.
func (g Group) SignalLeader(s syscall.Signal) {
	if g.id > 1 {
		_ = unix.Kill(g.id, s) // it may have ended
	}
}

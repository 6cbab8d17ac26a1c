//go:build unix && !linux

package procgroup

import (
	"os/exec"
	"syscall"
)

// Attr returns the attributes with which to start the child.
func Attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Reap waits for the child, calls linger, in which the processes that it left may release its
// pipes, and then end, which must close the group. Waiting frees the group's id, which is not
// reused while the group has a member; no portable way keeps it.
func Reap(cmd *exec.Cmd, linger, end func()) {
	_ = cmd.Wait() // cmd.ProcessState has more details
	linger()
	end()
}

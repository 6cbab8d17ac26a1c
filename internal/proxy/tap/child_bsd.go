//go:build unix && !linux

package tap

import (
	"os"
	"os/exec"
	"syscall"
)

func groupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the process, then briefly until the processes it left release the pipes, and kills
// the rest of its group. Waiting frees the group's number, which is
// not reused while the group has a member; no portable way keeps it.
func (c *child) reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // the state has more details
	waitHangup(c.stdout, lingerGrace)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group.kill()
	c.group = group{}
}

func newPipe(bool) (r, w *os.File, err error) { return os.Pipe() }

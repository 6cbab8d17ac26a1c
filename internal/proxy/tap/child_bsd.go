//go:build unix && !linux

package tap

import (
	"os"
	"os/exec"
	"syscall"
)

func groupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the process, then a little until what it has left running lets go of the pipes, and ends what is left of its group. There is no portable way
// to wait without giving the number of the group free; as long as anybody is left in it, it is not given away.
func (c *child) reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // the state says more
	waitHangup(c.stdout, lingerGrace)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group.kill()
	c.group = group{}
}

func newPipe(bool) (r, w *os.File, err error) { return os.Pipe() }

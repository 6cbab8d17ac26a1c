//go:build unix && !linux

package stdio

import (
	"os/exec"
	"syscall"
)

func processGroupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the process and ends what is left of its group. There is no portable way to wait without giving the number of the group
// free, so the two follow each other at once.
func (p *Process) reap(cmd *exec.Cmd) {
	cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group.kill()
	p.group = processGroup{}
}

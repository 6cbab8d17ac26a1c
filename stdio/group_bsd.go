//go:build unix && !linux

package stdio

import (
	"os/exec"
	"syscall"
)

func processGroupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the process and kills the rest of its group. Waiting frees the group's id, and no
// portable way avoids that, so kill follows at once.
func (p *Process) reap(cmd *exec.Cmd) {
	cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group.kill()
	p.group = processGroup{}
}

package stdio

import (
	"os"
	"os/exec"
	"syscall"

	"mcpwire/internal/winjob"
)

// A group is the job that holds a child and what it starts.
type group struct{ job winjob.Group }

func groupAttr() *syscall.SysProcAttr { return winjob.Attr() }

func newGroup(leader *os.Process) group { return group{winjob.New(leader)} }

func (g group) terminate() { g.job.Terminate() }
func (g group) kill()      { g.job.Kill() }

func exitSignal(*os.ProcessState) os.Signal { return nil }

// reap waits for the process and ends what is left of its job.
func (p *Process) reap(cmd *exec.Cmd) {
	cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group.job.Close()
	p.group = group{}
}

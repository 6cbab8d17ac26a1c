package stdio

import (
	"os"
	"os/exec"
	"syscall"

	"mcpwire/internal/proc/winjob"
)

// A processGroup is the job object of a child and its descendants.
type processGroup struct{ job winjob.Job }

func processGroupAttr() *syscall.SysProcAttr { return winjob.Attr() }

func newProcessGroup(leader *os.Process) processGroup { return processGroup{winjob.New(leader)} }

func (pg processGroup) terminate() { pg.job.Terminate() }
func (pg processGroup) kill()      { pg.job.Kill() }

func exitSignal(*os.ProcessState) os.Signal { return nil }

// reap waits for the process and ends its job.
func (p *Process) reap(cmd *exec.Cmd) {
	cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group.job.Close()
	p.group = processGroup{}
}

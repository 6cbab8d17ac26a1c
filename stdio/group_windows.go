package stdio

import (
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A group is a job object that holds a child and what it starts. The zero value is none, and ending it does nothing.
type group struct {
	job windows.Handle
	pid int
}

func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// newGroup puts a process into a job of its own, which ends with this process. What the child has started before that is not in it.
func newGroup(leader *os.Process) group {
	g := group{pid: leader.Pid}
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return g
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err == nil {
		handleErr := leader.WithHandle(func(process uintptr) {
			err = windows.AssignProcessToJobObject(job, windows.Handle(process))
		})
		if handleErr != nil {
			err = handleErr
		}
	}
	if err != nil {
		windows.CloseHandle(job)
		return g
	}
	g.job = job
	return g
}

// terminate sends Ctrl-Break, which reaches the group if it shares our console.
func (g group) terminate() {
	if g.pid != 0 {
		windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.pid))
	}
}

func (g group) kill() {
	if g.job != 0 {
		windows.TerminateJobObject(g.job, 1)
		return
	}
	if g.pid == 0 {
		return
	}
	if process, err := os.FindProcess(g.pid); err == nil {
		process.Kill()
		process.Release()
	}
}

func exitSignal(*os.ProcessState) os.Signal { return nil }

// reap waits for the process and ends what is left of its job.
func (p *Process) reap(cmd *exec.Cmd) {
	cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group.job != 0 {
		p.group.kill()
		windows.CloseHandle(p.group.job)
	}
	p.group = group{}
}

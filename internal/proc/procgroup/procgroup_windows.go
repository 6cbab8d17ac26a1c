package procgroup

import (
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A Group is a job object (https://learn.microsoft.com/windows/win32/procthread/job-objects) with a
// child and its descendants. Ending the zero value does nothing.
type Group struct {
	handle windows.Handle
	pid    int
}

// Attr returns the attributes with which to start the child.
func Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// New puts a process into a new job, which ends with this process. Processes that it started before
// are not in the job. The caller must close the Group.
func New(leader *os.Process) Group {
	g := Group{pid: leader.Pid}
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
	g.handle = job
	return g
}

// Terminate sends Ctrl-Break, which reaches the group if it shares this process's console.
func (g Group) Terminate() {
	if g.pid != 0 {
		// There may be no console.
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.pid))
	}
}

// Kill ends all processes of the job at once, or only the process without a job.
func (g Group) Kill() {
	if g.handle != 0 {
		_ = windows.TerminateJobObject(g.handle, 1) // it may have ended
		return
	}
	if g.pid == 0 {
		return
	}
	if process, err := os.FindProcess(g.pid); err == nil {
		_ = process.Kill()
		_ = process.Release()
	}
}

// Close ends the rest of the job. Call it when the child has ended, and do not use the Group
// afterwards.
func (g Group) Close() {
	if g.handle != 0 {
		g.Kill()
		windows.CloseHandle(g.handle)
	}
}

// Reap waits for the child and calls end, which must close the group. It does not call linger: the
// end of the job also ends all writers of the child's pipes.
func Reap(cmd *exec.Cmd, _, end func()) {
	_ = cmd.Wait() // cmd.ProcessState has more details
	end()
}

package winjob

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A Job is a job object (https://learn.microsoft.com/windows/win32/procthread/job-objects) with a
// process and its descendants. Ending the zero value does nothing.
type Job struct {
	handle windows.Handle
	pid    int
}

// Attr returns the attributes with which to start the process.
func Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// New puts a process into a new job, which ends with this process. Processes that it started before
// are not in the job. The caller must close the job.
func New(leader *os.Process) Job {
	j := Job{pid: leader.Pid}
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return j
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
		return j
	}
	j.handle = job
	return j
}

// Terminate sends Ctrl-Break, which reaches the group if it shares this process's console.
func (j Job) Terminate() {
	if j.pid != 0 {
		// There may be no console.
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(j.pid))
	}
}

// Kill ends all processes of the job at once, or only the process without a job.
func (j Job) Kill() {
	if j.handle != 0 {
		_ = windows.TerminateJobObject(j.handle, 1) // it may have ended
		return
	}
	if j.pid == 0 {
		return
	}
	if process, err := os.FindProcess(j.pid); err == nil {
		_ = process.Kill()
		_ = process.Release()
	}
}

// Close ends the rest of the job. Call it after waiting for the process, and do not use the Job
// afterwards.
func (j Job) Close() {
	if j.handle != 0 {
		j.Kill()
		windows.CloseHandle(j.handle)
	}
}

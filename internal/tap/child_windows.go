package tap

import (
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"mcpwire/capture"
)

// A group is a job object that holds a server and what it starts. The zero value is none, and ending it does nothing.
type group struct {
	job windows.Handle
	pid int
}

func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// newGroup puts a process into a job of its own, which ends with this process. What the process has started before that is not in it.
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
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.pid)) // there may be no console
	}
}

func (g group) kill() {
	if g.job != 0 {
		_ = windows.TerminateJobObject(g.job, 1) // it may have ended just now
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

// reap waits for the process and ends what is left of its job.
func (c *child) reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // the state says more
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group.job != 0 {
		c.group.kill()
		windows.CloseHandle(c.group.job)
	}
	c.group = group{}
}

func newPipe(bool) (r, w *os.File, err error) { return os.Pipe() }

// forward passes on a signal that we were sent: Ctrl-C and Ctrl-Break, both as Ctrl-Break, since a group of its own does not get the other.
func (c *child) forward(os.Signal) { c.signal(group.terminate) }

// Signals returns the signals that belong on [Options].Signals, and those that are to be caught so that they do not end the process.
func Signals() (forward, catch []os.Signal) { return []os.Signal{os.Interrupt, syscall.SIGTERM}, nil }

func exitOf(state *os.ProcessState) capture.Exit { return capture.Exit{Code: state.ExitCode()} }
func exitStatus(e capture.Exit) int              { return e.Code }

// awaitHangup has nothing to wait for: the job has ended, and with it all that could write.
func awaitHangup(*os.File, time.Duration) bool { return true }

func empty(*os.File) bool { return true }

// awaitReady is not needed: files are blocking, or the runtime's.
func awaitReady(*os.File, bool) bool { return false }

// unread cannot be seen before something is written.
func unread(*os.File) bool { return false }

// A parent is the process that has started us.
type parent struct{ handle windows.Handle }

func ourParent() parent {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(os.Getppid()))
	if err != nil {
		return parent{}
	}
	return parent{h}
}

// gone reports whether it has ended.
func (p parent) gone() bool {
	if p.handle == 0 {
		return false
	}
	event, err := windows.WaitForSingleObject(p.handle, 0)
	return err == nil && event == windows.WAIT_OBJECT_0
}

func (p parent) release() {
	if p.handle != 0 {
		windows.CloseHandle(p.handle)
	}
}

func closeOutput(f *os.File) { f.Close() }

// A guardian is not needed: the system ends the job with us.
type guardian struct{}

func startGuardian(int) *guardian { return nil }
func (*guardian) dismiss()        {}

package tap

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/windows"

	"mcpwire/capture"
	"mcpwire/internal/proc/winjob"
)

// A group is the job that holds a server and what it starts.
type group struct{ job winjob.Job }

func groupAttr() *syscall.SysProcAttr { return winjob.Attr() }

func newGroup(leader *os.Process) group { return group{winjob.New(leader)} }

func (g group) terminate() { g.job.Terminate() }
func (g group) kill()      { g.job.Kill() }

// reap waits for the process and ends what is left of its job.
func (c *child) reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // the state says more
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group.job.Close()
	c.group = group{}
}

func newPipe(bool) (r, w *os.File, err error) { return os.Pipe() }

// forward passes on a signal that we were sent: Ctrl-C and Ctrl-Break, both as Ctrl-Break, since a group of its own does not get the other.
func (c *child) forward(os.Signal) { c.signal(group.terminate) }

// Signals returns the signals that belong on [Options].Signals, and those that are to be caught so that they do not end the process.
func Signals() (forward, catch []os.Signal) { return []os.Signal{os.Interrupt, syscall.SIGTERM}, nil }

func exitOf(state *os.ProcessState) capture.Exit { return capture.Exit{Code: state.ExitCode()} }
func exitStatus(e capture.Exit) int              { return e.Code }

// waitHangup has nothing to wait for: the job has ended, and with it all that could write.
func waitHangup(*os.File, time.Duration) bool { return true }

func pipeEmpty(*os.File) bool { return true }

// waitReady is not needed: files are blocking, or the runtime's.
func waitReady(*os.File, bool) bool { return false }

// readerGone cannot be seen before something is written.
func readerGone(*os.File) bool { return false }

// A parent is the process that has started us.
type parent struct{ handle windows.Handle }

func currentParent() parent {
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

package tap

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/windows"

	"mcpwire/capture"
	"mcpwire/internal/proc/procgroup"
)

func newPipe(bool) (r, w *os.File, err error) { return os.Pipe() }

// forward forwards Ctrl-C and Ctrl-Break, both as Ctrl-Break, since a new process group does not
// receive Ctrl-C.
func (c *child) forward(os.Signal) { c.signal(procgroup.Group.Terminate) }

// Signals returns the signals to send to [Options].Signals, and those to catch so that they do not
// end the process.
func Signals() (forward, catch []os.Signal) { return []os.Signal{os.Interrupt, syscall.SIGTERM}, nil }

func exitOf(state *os.ProcessState) capture.Exit { return capture.Exit{Code: state.ExitCode()} }
func exitStatus(e capture.Exit) int              { return e.Code }

// waitHangup does not wait: the job has ended, and with it all writers.
func waitHangup(*os.File, time.Duration) bool { return true }

func pipeEmpty(*os.File) bool { return true }

// waitReady is not needed: files are blocking, or in the runtime's poller.
func waitReady(*os.File, bool) bool { return false }

// readerGone returns false: only a write detects a missing reader.
func readerGone(*os.File) bool { return false }

// A parent is the process that started the tap.
type parent struct{ handle windows.Handle }

func currentParent() parent {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(os.Getppid()))
	if err != nil {
		return parent{}
	}
	return parent{h}
}

// gone reports whether the parent has ended.
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

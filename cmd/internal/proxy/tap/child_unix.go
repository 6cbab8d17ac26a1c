//go:build unix

package tap

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mcpwire/capture"
	"mcpwire/internal/proc/procgroup"
)

// forward sends the server a signal that the tap received.
func (c *child) forward(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok {
		send := procgroup.Group.SignalLeader
		if n == unix.SIGINT || n == unix.SIGQUIT { // a terminal sends these to a whole group
			send = procgroup.Group.Signal
		}
		c.signal(func(g procgroup.Group) { send(g, n) })
	}
}

// forwardedSignals are the signals to forward. SIGPIPE is not one: a failed write reports that
// nobody reads, which must not end the tap.
var forwardedSignals = [...]os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH,
}

// Signals returns the signals to send to [Options].Signals, and those to catch so that they do not
// end the process. It omits the signals that the process was told to ignore, for example by nohup:
// if the tap caught one, the server would not ignore it either.
func Signals() (forward, catch []os.Signal) {
	for _, s := range forwardedSignals {
		if !signal.Ignored(s) {
			forward = append(forward, s)
		}
	}
	// SIGXFSZ: a capture may reach the limit of file sizes and is then incomplete.
	return forward, []os.Signal{unix.SIGPIPE, unix.SIGXFSZ}
}

// exitOf describes the end of a process.
func exitOf(state *os.ProcessState) capture.Exit {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return capture.Exit{Code: -1, Signal: unix.SignalName(ws.Signal())}
	}
	return capture.Exit{Code: state.ExitCode()}
}

// exitStatus returns the exit status that a shell would show.
func exitStatus(e capture.Exit) int {
	if e.Signal != "" {
		return 128 + int(unix.SignalNum(e.Signal))
	}
	return e.Code
}

// pollFile waits until a file has one of the events, an error or a hangup, or d has passed.
func pollFile(f *os.File, events int16, d time.Duration) (revents int16) {
	conn, err := f.SyscallConn()
	if err != nil {
		return unix.POLLNVAL
	}
	if err := conn.Control(func(fd uintptr) {
		for limit := time.Now().Add(d); ; {
			fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
			left := max(time.Until(limit), 0)
			_, err := unix.Poll(fds, int((left+time.Millisecond-1)/time.Millisecond))
			if err != unix.EINTR {
				revents = fds[0].Revents
				return
			}
		}
	}); err != nil {
		return unix.POLLNVAL
	}
	return revents
}

// waitReady waits until a file is readable or writable. It returns false if it cannot wait.
func waitReady(f *os.File, write bool) bool {
	events := int16(unix.POLLIN)
	if write {
		events = unix.POLLOUT
	}
	for {
		revents := pollFile(f, events, time.Minute)
		if revents != 0 {
			return revents&unix.POLLNVAL == 0
		}
	}
}

// waitHangup waits until a pipe has no writer, or d has passed. It reports whether the pipe has no
// writer.
func waitHangup(f *os.File, d time.Duration) bool {
	// macOS reports a hangup only if the events contain POLLHUP, and not to a poll that has seen
	// input before. So poll is called again.
	const again = 20 * time.Millisecond
	for limit := time.Now().Add(d); ; {
		began := time.Now()
		wait := min(limit.Sub(began), again)
		if pollFile(f, unix.POLLHUP, wait)&ended != 0 {
			return true
		}
		if !time.Now().Before(limit) {
			return false
		}
		time.Sleep(wait - time.Since(began)) // if poll has not waited
	}
}

// ended are the events of a file whose other end is closed.
const ended = unix.POLLHUP | unix.POLLNVAL | unix.POLLERR

// pipeEmpty reports whether a pipe is empty.
func pipeEmpty(f *os.File) bool { return pollFile(f, unix.POLLIN, 0)&unix.POLLIN == 0 }

// readerGone reports whether the other end of an output file is closed. macOS reports that only
// together with whether the file is writable, and POLLNVAL for devices that it cannot poll, such as
// the null device: those have no reader.
func readerGone(f *os.File) bool {
	return pollFile(f, unix.POLLOUT, 0)&(unix.POLLHUP|unix.POLLERR) != 0
}

// A parent is the process that started the tap.
type parent struct{ pid int }

func currentParent() parent { return parent{os.Getppid()} }

// gone reports whether the parent has ended; the process has another parent then.
func (p parent) gone() bool { return os.Getppid() != p.pid }

func (p parent) release() {}

// closeOutput closes a file. It redirects descriptors 0 to 2 to the null device instead, so that a
// later file does not get their number.
func closeOutput(f *os.File) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	standard := false
	_ = conn.Control(func(fd uintptr) {
		if standard = fd <= 2; !standard {
			return
		}
		null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			standard = false
			return
		}
		_ = unix.Dup2(null, int(fd))
		unix.Close(null)
	})
	if !standard {
		f.Close()
	}
}

//go:build unix

package tap

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mcpwire/capture"
)

// A group is a process group that we created. The zero value is none, and signalling it does nothing.
type group struct{ id int }

func newGroup(leader *os.Process) group { return group{leader.Pid} }

func (g group) terminate() { g.send(unix.SIGTERM, true) }
func (g group) kill()      { g.send(unix.SIGKILL, true) }

// send signals the leader, or all.
func (g group) send(s syscall.Signal, all bool) {
	switch {
	case g.id <= 1: // 0 is our own group, and -1 everybody
	case all:
		_ = unix.Kill(-g.id, s) // it may have ended just now
	default:
		_ = unix.Kill(g.id, s)
	}
}

// forward passes on a signal that we were sent.
func (c *child) forward(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok {
		c.signal(func(g group) { g.send(n, n == unix.SIGINT || n == unix.SIGQUIT) })
	}
}

// forwardedSignals are the signals that are passed on. SIGPIPE is not: that nobody reads shows in the error of the write, and must not end us.
var forwardedSignals = [...]os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH,
}

// Signals returns the signals that belong on [Options].Signals, and those that are to be caught so that they do not end the process. What the process was told to
// ignore, by nohup for example, is not among them: caught, it would not be ignored by the server either.
func Signals() (forward, catch []os.Signal) {
	for _, s := range forwardedSignals {
		if !signal.Ignored(s) {
			forward = append(forward, s)
		}
	}
	// SIGXFSZ: a capture may reach a limit for the size of files, and then is not complete.
	return forward, []os.Signal{unix.SIGPIPE, unix.SIGXFSZ}
}

// exitOf says how a process ended.
func exitOf(state *os.ProcessState) capture.Exit {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return capture.Exit{Code: -1, Signal: unix.SignalName(ws.Signal())}
	}
	return capture.Exit{Code: state.ExitCode()}
}

// exitStatus is what a shell makes of how a process ended.
func exitStatus(e capture.Exit) int {
	if e.Signal != "" {
		return 128 + int(unix.SignalNum(e.Signal))
	}
	return e.Code
}

// pollFile waits until one of the events, an error or the end shows at a file, or d has passed.
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

// waitReady waits until a file can be read or written, and reports whether it was possible to wait.
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

// waitHangup waits until nobody can write to a pipe any more, or d has passed, and reports which.
func waitHangup(f *os.File, d time.Duration) bool {
	return pollFile(f, 0, d)&(unix.POLLHUP|unix.POLLNVAL|unix.POLLERR) != 0
}

// pipeEmpty reports whether nothing is in a pipe.
func pipeEmpty(f *os.File) bool { return pollFile(f, unix.POLLIN, 0)&unix.POLLIN == 0 }

// readerGone reports whether the other end of a file that we write to is closed.
func readerGone(f *os.File) bool {
	return pollFile(f, 0, 0)&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
}

// A parent is the process that has started us.
type parent struct{ pid int }

func currentParent() parent { return parent{os.Getppid()} }

// gone reports whether it has ended: we have another one then.
func (p parent) gone() bool { return os.Getppid() != p.pid }

func (p parent) release() {}

// closeOutput closes our side of a file. Descriptors 0 to 2 go on to exist, so that no file that is opened later gets their number.
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

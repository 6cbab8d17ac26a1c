package tap

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func groupAttr() *syscall.SysProcAttr {
	// SIGTERM and not SIGKILL: launchers pass it on to the server they have started. The guardian has the last word.
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
}

// reap waits until the process has ended, then a little until what it has left running lets go of the pipes, ends what is left of the group, and takes the exit
// status. Up to then the dead process keeps the group's number from being given to another.
func (c *child) reap(cmd *exec.Cmd) {
	for {
		if err := unix.Waitid(unix.P_PID, c.pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			break
		}
	}
	limit := time.Now().Add(lingerGrace)
	waitHangup(c.stdout, time.Until(limit))
	waitHangup(c.stderr, time.Until(limit))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group.kill()
	c.group = group{}
	_ = cmd.Wait() // the state says more
}

// newPipe returns a pipe. Without polled its ends are not known to the runtime's poller: reads and writes are the system call and nothing more, and do not
// wake a thread that sits in the poller.
func newPipe(polled bool) (r, w *os.File, err error) {
	if polled {
		return os.Pipe()
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(p[0]), "|0"), os.NewFile(uintptr(p[1]), "|1"), nil
}

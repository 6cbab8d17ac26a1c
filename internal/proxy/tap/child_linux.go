package tap

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func groupAttr() *syscall.SysProcAttr {
	// SIGTERM and not SIGKILL: launchers forward it to the server they started. The guardian kills
	// the rest.
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
}

// reap waits for the end of the process, then briefly until the processes it left release the
// pipes, kills the rest of the group, and takes the exit status. Until then the dead process keeps
// the group's number from being reused.
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
	_ = cmd.Wait() // the state has more details
}

// newPipe returns a pipe. Unless polled is set, its ends are not registered with the runtime's
// poller: reads and writes are plain system calls and wake no polling thread.
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

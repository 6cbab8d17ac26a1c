package stdio

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lingerWait is how long what a server has left running may hold on to its pipes after the server's own end.
const lingerWait = 250 * time.Millisecond

func processGroupAttr() *syscall.SysProcAttr {
	// SIGTERM and not SIGKILL: launchers such as npx pass it on to the server they have started.
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
}

// reap waits until the process has ended, then a little until what it has left running lets go of the pipes, ends what is left of the
// group, and takes the exit status. Up to then the dead process keeps the group's number from being reused.
func (p *Process) reap(cmd *exec.Cmd) {
	for {
		if err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			break
		}
	}
	limit := time.Now().Add(lingerWait)
	awaitHangup(p.stdout, time.Until(limit))
	awaitHangup(p.stderr, time.Until(limit))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group.kill()
	p.group = processGroup{}
	cmd.Wait()
}

// awaitHangup waits until nobody can write to the pipe any more, or d has passed.
func awaitHangup(f *os.File, d time.Duration) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	conn.Control(func(fd uintptr) {
		pollFDs([]unix.PollFd{{Fd: int32(fd)}}, int(max(d, 0).Milliseconds()))
	})
}

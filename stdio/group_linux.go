package stdio

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lingerWait limits how long the descendants of a server may hold its pipes open after its end.
const lingerWait = 250 * time.Millisecond

func processGroupAttr() *syscall.SysProcAttr {
	// SIGTERM, not SIGKILL: launchers such as npx forward it to the server.
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
}

// reap waits until the process has ended, and then briefly until its descendants have closed the
// pipes. It kills the rest of the group before it collects the exit status, because until then the
// dead process keeps the group's id from being reused.
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

// awaitHangup waits until the pipe has no writers or d has passed.
func awaitHangup(f *os.File, d time.Duration) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	conn.Control(func(fd uintptr) {
		pollFDs([]unix.PollFd{{Fd: int32(fd)}}, int(max(d, 0).Milliseconds()))
	})
}

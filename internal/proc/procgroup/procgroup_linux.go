package procgroup

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attr returns the attributes with which to start the child.
func Attr() *syscall.SysProcAttr {
	// SIGTERM, not SIGKILL: launchers such as npx forward it to the program that they started.
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
}

// Reap waits until the child has ended, calls linger, in which the processes that it left may
// release its pipes, and then end, which must close the group. It collects the exit status last,
// because until then the dead child keeps the group's id from being reused.
func Reap(cmd *exec.Cmd, linger, end func()) {
	for {
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			break
		}
	}
	linger()
	end()
	_ = cmd.Wait() // cmd.ProcessState has more details
}

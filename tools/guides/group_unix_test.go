//go:build unix

package guides

import (
	"os/exec"
	"syscall"
	"time"
)

// runGroup makes the command a process group, which ends with it: servers in the background too.
func runGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
}

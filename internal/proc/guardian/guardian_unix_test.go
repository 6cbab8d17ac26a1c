//go:build unix

package guardian

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"mcpwire/internal/test/wait"
)

// TestMain is also the owner that TestStart kills: it starts a group and a guardian, and prints a
// line.
func TestMain(m *testing.M) {
	if os.Getenv("MCPWIRE_GUARDIAN_OWNER") == "" {
		os.Exit(m.Run())
	}
	// The grandchild ignores the end of its input, and SIGTERM.
	c := exec.Command("/bin/sh", "-c", `(trap '' TERM; while :; do sleep 1000; done) & wait`)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	g := Start()
	if err := c.Start(); err != nil {
		panic(err)
	}
	g.Watch(c.Process.Pid)
	os.Stdout.Write([]byte{byte(c.Process.Pid >> 24), byte(c.Process.Pid >> 16), byte(c.Process.Pid >> 8), byte(c.Process.Pid)})
	select {}
}

// ended reports whether a group has no running process.
func ended(group int) bool { return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) }

// TestStart checks that a group ends with its owner, even if one of its processes ignores all
// signals that it can.
func TestStart(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("there is no /bin/sh")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	owner := exec.Command(self)
	owner.Env = append(os.Environ(), "MCPWIRE_GUARDIAN_OWNER=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(out, b); err != nil {
		t.Fatal(err)
	}
	group := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	defer syscall.Kill(-group, syscall.SIGKILL)
	if ended(group) {
		t.Fatal("the group ended before its owner")
	}
	_ = owner.Process.Kill()
	_ = owner.Wait()
	wait.Until(t, "the group to end after its owner", func() bool { return ended(group) })
}

// TestDismiss checks that a dismissed guardian kills no process.
func TestDismiss(t *testing.T) {
	bystander := exec.Command("sleep", "1000")
	bystander.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	g := Start()
	if g == nil {
		t.Skip("there is no /bin/sh")
	}
	g.Watch(bystander.Process.Pid)
	g.Stop()
	if code := g.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the guardian ended with status %d", code)
	}
	if err := bystander.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Errorf("the group has ended: %v", err)
	}
	err := bystander.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGUSR1 {
		t.Errorf("kill the group: %v", err)
	}
	unused := Start() // without a group, as after a failed start
	unused.Stop()
	if code := unused.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("a guardian without a group ended with status %d", code)
	}
	var none *Guardian
	none.Watch(1)
	none.Stop()
}

package stdio

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mcpwire/internal/test/process"
	"mcpwire/internal/test/wait"
)

// TestParentDeath checks that a server ends when its parent is killed.
func TestParentDeath(t *testing.T) {
	t.Parallel()
	c := helperCommand(t, "parent")
	cmd := exec.Command(c.Path)
	cmd.Env = append(os.Environ(), c.Env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !process.Running(pid) {
		t.Fatalf("%q is no live process", line)
	}
	unix.Kill(cmd.Process.Pid, unix.SIGKILL)
	cmd.Wait()
	wait.Until(t, "end of the orphan", func() bool { return !process.Running(pid) })
}

//go:build unix

package procgroup

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestReap checks a child with a descendant, which keeps the pipe open until the group is closed.
func TestReap(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & echo started; exit 3")
	cmd.SysProcAttr = Attr()
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	g := New(cmd.Process)
	var steps []string
	Reap(cmd, func() { steps = append(steps, "linger") }, func() {
		steps = append(steps, "end")
		g.Close()
	})
	if got := strings.Join(steps, " "); got != "linger end" {
		t.Errorf("steps %q", got)
	}
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("exit status %d, want 3", code)
	}
	if out, err := io.ReadAll(stdout); string(out) != "started\n" || err != nil { // it ends with the descendant
		t.Errorf("output %q, %v", out, err)
	}
}

// TestZeroGroup checks that the zero Group signals no process, in particular not the group of this
// process.
func TestZeroGroup(t *testing.T) {
	var g Group
	g.Terminate()
	g.Kill()
	g.SignalLeader(9)
	g.Close()
}

package procgroup

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// role is the environment variable that makes the test's program a child or a grandchild.
const role = "PROCGROUP_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "child": // starts the grandchild when its input has a line: the group exists
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), role+"=grandchild")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			os.Exit(1)
		}
		_ = cmd.Wait()
		os.Exit(1)
	case "grandchild":
		_, _ = os.Stdout.WriteString("ready\n")
		select {}
	}
	os.Exit(m.Run())
}

// TestKill checks that a grandchild ends with its group: both hold the pipe.
func TestKill(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(g Group, leader *os.Process)
	}{
		{"kill", func(g Group, _ *os.Process) { g.Kill() }},
		// The descendants of a killed leader end when the group is closed.
		{"close", func(_ Group, leader *os.Process) { _ = leader.Kill() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), role+"=child")
			cmd.SysProcAttr = Attr()
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			g := New(cmd.Process)
			if _, err := io.WriteString(stdin, "begin\n"); err != nil {
				t.Error(err)
			}
			output := bufio.NewReader(r)
			if line, err := output.ReadString('\n'); strings.TrimSpace(line) != "ready" {
				t.Errorf("the grandchild wrote %q, %v", line, err)
			}
			tt.end(g, cmd.Process)
			Reap(cmd, func() {}, g.Close)
			if rest, err := io.ReadAll(output); len(rest) > 0 || err != nil {
				t.Errorf("after the end: %q, %v", rest, err)
			}
		})
	}
}

//go:build unix

package cli

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestCallInterrupted interrupts a call. The server is told, and the exit status is 130.
func TestCallInterrupted(t *testing.T) {
	for _, protocol := range []string{"modern", "legacy"} {
		t.Run(protocol, func(t *testing.T) {
			cmd := exec.Command("mcpwire", "call", "slow", "steps=600", "delay_ms=100", "--protocol", protocol, "-v", "--", "mcpwire", "serve", "--trace")
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill() // should the test end early; later it does nothing
			lines := bufio.NewReader(stderr)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatalf("no progress: %v", err)
				}
				if strings.HasPrefix(line, "progress ") {
					break
				}
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(lines)
			if err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
				t.Errorf("%v, want status %d", err, exitInterrupted)
			}
			if !strings.Contains(string(rest), "notifications/cancelled") {
				t.Errorf("the server was not told:\n%s", rest)
			}
		})
	}
}

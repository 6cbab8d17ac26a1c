//go:build unix

package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mcpwire/cmd/internal/exit"
)

// TestCallInterrupted interrupts a call. The server gets a cancellation, and the exit status is
// that of the signal.
func TestCallInterrupted(t *testing.T) {
	for _, tt := range []struct {
		protocol string
		signal   syscall.Signal
		want     int
	}{
		{"modern", syscall.SIGINT, exit.Interrupted},
		{"legacy", syscall.SIGINT, exit.Interrupted},
		{"modern", syscall.SIGTERM, exit.Terminated},
	} {
		t.Run(tt.protocol+" "+tt.signal.String(), func(t *testing.T) {
			rest := afterSignal(t, tt.signal, tt.want, "progress ", "", "call", "slow", "steps=600", "delay_ms=100", "--protocol", tt.protocol, "-v", "--", "mcpwire", "serve", "--trace")
			if !strings.Contains(rest, "notifications/cancelled") {
				t.Errorf("the server got no cancellation:\n%s", rest)
			}
		})
	}
}

// TestSignalStatus sends signals to commands that run until they are stopped.
func TestSignalStatus(t *testing.T) {
	running := filepath.Join(t.TempDir(), "running.mcpcap.ndjson") // its last line is missing
	text := `{"k":"head","v":1,"id":"A","at":"2026-11-20T12:00:00Z","tool":"test","transport":"stdio","name":"shop","redact":"default"}
{"n":1,"t":0.001,"dir":"c2s","k":"msg","len":40,"msg":{"jsonrpc":"2.0","id":1,"method":"ping"}}
{"n":2,"t":0.002,"dir":"s2c","k":"msg","len":40,"msg":{"jsonrpc":"2.0","id":1,"result":{}}}
`
	if err := os.WriteFile(running, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	home := "MCPWIRE_HOME=" + t.TempDir()
	for _, command := range [][]string{
		{"watch", "--plain", running},
		{"watch", "--json", running},
		{"show", "--follow", running},
		{"shell", "--", "mcpwire", "serve"},
	} {
		for _, tt := range []struct {
			signal syscall.Signal
			want   int
		}{{syscall.SIGINT, exit.Interrupted}, {syscall.SIGTERM, exit.Terminated}} {
			t.Run(strings.Join(command[:2], " ")+" "+tt.signal.String(), func(t *testing.T) {
				afterSignal(t, tt.signal, tt.want, "", home, command...)
			})
		}
	}
}

// afterSignal runs mcpwire, and sends it a signal once a line of its standard output or error
// begins with ready. It returns the later standard error, if the line was on that stream.
func afterSignal(t *testing.T, sig syscall.Signal, want int, ready, env string, args ...string) string {
	t.Helper()
	cmd := exec.Command("mcpwire", args...)
	if env != "" {
		cmd.Env = append(os.Environ(), env)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	open := cmd.StderrPipe
	if ready == "" { // the first line of standard output is enough
		open = cmd.StdoutPipe
	}
	out, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() // if the test ends early; else it has no effect
	if args[0] == "shell" {
		if _, err := io.WriteString(in, "ping\n"); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("it was never ready: %v", err)
		}
		if strings.HasPrefix(line, ready) {
			break
		}
	}
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != want {
		t.Errorf("%v, want status %d", err, want)
	}
	return string(rest)
}

//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestServeSignal sends a signal during a tool call. The call ends, and its response is sent.
func TestServeSignal(t *testing.T) {
	for _, signal := range endSignals {
		t.Run(signal.String(), func(t *testing.T) {
			const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"steps":2,"delay_ms":200},"_meta":{"progressToken":"p"}}}`
			stdout, stderr := runUntilSignal(t, signal, call, "serve", "--lenient")
			want := []string{
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":2,"message":"step 1 of 2"}}` + "\n",
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":2,"total":2,"message":"step 2 of 2"}}` + "\n",
				`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done after 2 steps"}]}}` + "\n",
				"",
			}
			if diff := cmp.Diff(want, strings.SplitAfter(stdout, "\n")); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
			if want := "Info: signal received"; !strings.HasPrefix(stderr, want) {
				t.Errorf("stderr = %q, want it to begin with %q", stderr, want)
			}
		})
	}
}

// TestSignalEndsServers sends a signal to each command that is a server over stdio, after a request.
func TestSignalEndsServers(t *testing.T) {
	t.Setenv("MCPWIRE_HOME", t.TempDir())
	for _, args := range [][]string{
		{"serve"},
		{"mcp"},
		{"bridge", "--", "mcpwire", "serve"},
	} {
		for _, signal := range endSignals {
			t.Run(args[0]+" "+signal.String(), func(t *testing.T) {
				const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
				stdout, _ := runUntilSignal(t, signal, discover, args...)
				if line, rest, _ := strings.Cut(stdout, "\n"); !strings.Contains(line, `"result"`) || rest != "" {
					t.Errorf("stdout = %q, want a result and nothing else", stdout)
				}
			})
		}
	}
}

// endSignals are the signals that end a server.
var endSignals = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}

// runUntilSignal runs mcpwire, sends a request, and a signal as soon as a line has arrived. It
// checks that the exit status is 0, although the input has not ended, and returns the output.
func runUntilSignal(t *testing.T, signal syscall.Signal, request string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command("mcpwire", args...)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() // if the test ends early; else it has no effect

	if _, err := io.WriteString(stdin, request+"\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v, want status 0\n%s", err, &errors)
	}
	return first + string(rest), errors.String()
}

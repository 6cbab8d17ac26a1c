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

// TestServeSignal sends a signal during a tool call. The call ends, its response is sent, and the
// exit status is 0, although the client has not closed the input.
func TestServeSignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd := exec.Command("mcpwire", "serve", "--lenient")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill() // if the test ends early; else it has no effect

			const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"steps":2,"delay_ms":200},"_meta":{"progressToken":"p"}}}`
			if _, err := io.WriteString(stdin, call+"\n"); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(stdout)
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
				t.Errorf("exit: %v, want status 0", err)
			}
			got := strings.SplitAfter(first+string(rest), "\n")
			want := []string{
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":2,"message":"step 1 of 2"}}` + "\n",
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":2,"total":2,"message":"step 2 of 2"}}` + "\n",
				`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done after 2 steps"}]}}` + "\n",
				"",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
			if got, want := stderr.String(), "Info: signal received"; !strings.HasPrefix(got, want) {
				t.Errorf("stderr = %q, want it to begin with %q", got, want)
			}
		})
	}
}

// TestSignalEndsServers sends a signal to each command that is a server over stdio, after a request.
// The exit status is 0, although the client has not closed the input.
func TestSignalEndsServers(t *testing.T) {
	for _, args := range [][]string{
		{"serve"},
		{"mcp"},
		{"bridge", "--", "mcpwire", "serve"},
	} {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			t.Run(args[0]+" "+signal.String(), func(t *testing.T) {
				cmd := exec.Command("mcpwire", args...)
				cmd.Env = append(cmd.Environ(), "MCPWIRE_HOME="+t.TempDir())
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				stdin, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				stdout, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				defer cmd.Process.Kill() // if the test ends early; else it has no effect

				const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
				if _, err := io.WriteString(stdin, discover+"\n"); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewReader(stdout)
				if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"result"`) {
					t.Fatalf("response %q, %v, want a result", line, err)
				}
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
					t.Errorf("output after the signal: %q, %v, want none", rest, err)
				}
				if err := cmd.Wait(); err != nil {
					t.Errorf("exit: %v, want status 0\n%s", err, &stderr)
				}
			})
		}
	}
}

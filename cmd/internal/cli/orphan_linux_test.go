package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"mcpwire/internal/test/process"
	"mcpwire/internal/test/wait"
)

// launcher is a server like many others: a launcher that does not forward signals, and a program
// that does not read its input yet. It writes the program's process id to a file after the guardian
// knows it: an owner that is killed between the two system calls before that cannot end the
// program.
const launcher = `sleep 1000 & echo $! >pid.new; sleep 0.3; mv pid.new pid; wait`

const orphanInitialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// TestNoOrphans shows that no process of a server outlives a command that is killed.
func TestNoOrphans(t *testing.T) {
	for _, args := range [][]string{
		{"list"},
		{"call", "echo"},
		{"bridge"},
		{"bridge", "--listen", "127.0.0.1:0"},
		{"tap", "-o", "capture.ndjson"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := exec.Command("mcpwire", append(args, "--", "sh", "-c", launcher)...)
			c.Dir, c.Env = dir, append(os.Environ(), "MCPWIRE_HOME="+dir)
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			out, err := c.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if len(args) > 1 && args[1] == "--listen" {
				p, err := launch(c, out)
				if err != nil {
					t.Fatal(err)
				}
				defer p.kill()
				asked := make(chan struct{})
				defer func() { <-asked }()
				go func() {
					defer close(asked)
					r, _ := http.NewRequest(http.MethodPost, p.url, strings.NewReader(orphanInitialize))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Accept", "application/json, text/event-stream")
					if resp, err := http.DefaultClient.Do(r); err == nil { // it is killed
						resp.Body.Close()
					}
				}()
			} else if err := c.Start(); err != nil {
				t.Fatal(err)
			} else {
				fmt.Fprintln(in, orphanInitialize)
				go io.Copy(io.Discard, out)
			}
			pid := 0
			wait.Until(t, "the server to start", func() bool {
				text, err := os.ReadFile(filepath.Join(dir, "pid"))
				if err == nil {
					pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
				}
				return err == nil
			})
			defer syscall.Kill(pid, syscall.SIGKILL)
			_ = c.Process.Kill()
			_ = c.Wait()
			wait.Until(t, "the server to end", func() bool { return !process.Running(pid) })
		})
	}
}

package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpwire/internal/test/buffer"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
)

const ghToken = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

// A deadFramer is the framer of a process that has ended.
type deadFramer struct{ err error }

func (f deadFramer) ReadFrame() ([]byte, error) { return nil, f.err }
func (f deadFramer) WriteFrame([]byte) error    { return f.err }
func (f deadFramer) Close() error               { return nil }

// TestProcessErrors checks that remote clients get the exit status of a server's process, but not
// its command and its standard error, which are in the log. Local clients get all of them, without
// secrets.
func TestProcessErrors(t *testing.T) {
	exit := &stdio.ExitError{Name: "node secret-server.js", Code: 3, After: time.Second, Stderr: "TOKEN=" + ghToken + "\nthe configuration is missing\n"}
	killed := &stdio.ExitError{Name: "node secret-server.js", Code: -1, Signal: syscall.SIGKILL, After: time.Second, Stderr: "the configuration is missing"}
	for _, test := range []struct {
		name string
		// read and start are the errors of the server's process; start is nil if it starts.
		read, start        error
		remote, unredacted bool
		has, lacks         []string
	}{
		{
			name: "remote", read: exit, remote: true,
			has:   []string{"the connection to the server ended: its process exited with status 3 after 1s", `"data":{"exitCode":3}`},
			lacks: []string{"node", "secret", "TOKEN", "configuration"},
		},
		{
			name: "remote, killed", read: fmt.Errorf("read: %w", killed), remote: true,
			has:   []string{"its process was terminated by a signal (killed) after 1s", `"data":{"exitCode":-1,"signal":"killed"}`},
			lacks: []string{"node", "secret", "configuration"},
		},
		{
			name: "remote, not started", start: fmt.Errorf("start %q: %w", "node secret-server.js", errTest), remote: true,
			has:   []string{"the server cannot be started: see the operator's log"},
			lacks: []string{"node", "secret"},
		},
		{
			name: "remote, start timeout", start: fmt.Errorf("start %q: %w", "node secret-server.js", context.DeadlineExceeded), remote: true,
			has:   []string{"the server cannot be started: context deadline exceeded"},
			lacks: []string{"node", "secret"},
		},
		{
			name: "local", read: exit,
			has:   []string{"node secret-server.js", "exited with status 3", "the configuration is missing", `"exitCode":3,"stderr":"TOKEN=`},
			lacks: []string{ghToken},
		},
		{
			name: "local, unredacted", read: exit, unredacted: true,
			has: []string{"node secret-server.js", "exited with status 3", "the configuration is missing", ghToken},
		},
	} {
		for _, transport := range []string{"http", "pipe"} {
			t.Run(test.name+"/"+transport, func(t *testing.T) {
				var log buffer.Buffer
				b := newBridge(t, &Options{
					Remote: test.remote, Unredacted: test.unredacted, Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) {
						if test.start != nil {
							return nil, test.start
						}
						return deadFramer{test.read}, nil
					},
				})
				var got []string
				if transport == "http" {
					ts := served(t, b, nil)
					for range 3 { // the error of the first start, and of later attempts
						_, _, body := post(t, ts.URL+"/mcp", httpInitialize)
						got = append(got, body)
					}
					if err := b.Ready(t.Context()); err != nil {
						got = append(got, "ready: "+err.Error())
					}
				} else {
					p, _ := dialPipe(t, b)
					p.send(httpInitialize)
					got = append(got, p.read())
				}
				all := strings.Join(got, "\n")
				for _, text := range test.has {
					if !strings.Contains(all, text) {
						t.Errorf("got errors without %q:\n%s", text, all)
					}
				}
				for _, text := range test.lacks {
					if strings.Contains(all, text) {
						t.Errorf("got errors with %q:\n%s", text, all)
					}
				}
				if want := errors.Join(test.start, test.read); !strings.Contains(log.String(), "secret-server.js") {
					t.Errorf("got a log without %v:\n%s", want, log.String())
				}
			})
		}
	}
}

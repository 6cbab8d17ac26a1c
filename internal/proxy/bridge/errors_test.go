package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/stdio"
)

const ghToken = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

// A dying framer is that of a process that has ended.
type dying struct{ err error }

func (f dying) ReadFrame() ([]byte, error) { return nil, f.err }
func (f dying) WriteFrame([]byte) error    { return f.err }
func (f dying) Close() error               { return nil }

// safeBuffer is a buffer for a logger.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestProcessShown shows that other clients than the user hear how a server's process ended, but
// not its command or what it wrote to standard error, which are in the log. The user hears all but
// secrets.
func TestProcessShown(t *testing.T) {
	exit := &stdio.ExitError{Name: "node secret-server.js", Code: 3, After: time.Second, Stderr: "TOKEN=" + ghToken + "\nthe configuration is missing\n"}
	killed := &stdio.ExitError{Name: "node secret-server.js", Code: -1, Signal: syscall.SIGKILL, After: time.Second, Stderr: "the configuration is missing"}
	for _, test := range []struct {
		name       string
		read       error // of reading the server
		start      error // of starting it; nil if it starts
		remote     bool
		unredacted bool
		has, lacks []string
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
			name: "remote, started for too long", start: fmt.Errorf("start %q: %w", "node secret-server.js", context.DeadlineExceeded), remote: true,
			has:   []string{"the server cannot be started: context deadline exceeded"},
			lacks: []string{"node", "secret"},
		},
		{
			name: "local", read: exit,
			has:   []string{"node secret-server.js", "exited with status 3", "the configuration is missing", `"exitCode":3,"stderr":"TOKEN=`},
			lacks: []string{ghToken},
		},
		{
			name: "local, all", read: exit, unredacted: true,
			has: []string{"node secret-server.js", "exited with status 3", "the configuration is missing", ghToken},
		},
	} {
		for _, transport := range []string{"http", "pipe"} {
			t.Run(test.name+"/"+transport, func(t *testing.T) {
				var log safeBuffer
				b := newBridge(t, &Options{
					Remote: test.remote, Unredacted: test.unredacted, Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) {
						if test.start != nil {
							return nil, test.start
						}
						return dying{test.read}, nil
					},
				})
				var got []string
				if transport == "http" {
					ts := served(t, b, nil)
					for range 3 { // the first start, and the error after it
						_, _, body := post(t, ts.URL+"/mcp", httpHello)
						got = append(got, body)
					}
					if err := b.Ready(t.Context()); err != nil {
						got = append(got, "ready: "+err.Error())
					}
				} else {
					p, _ := client0(t, b)
					p.send(httpHello)
					got = append(got, p.read())
				}
				all := strings.Join(got, "\n")
				for _, text := range test.has {
					if !strings.Contains(all, text) {
						t.Errorf("no %q in\n%s", text, all)
					}
				}
				for _, text := range test.lacks {
					if strings.Contains(all, text) {
						t.Errorf("%q is in\n%s", text, all)
					}
				}
				if want := errors.Join(test.start, test.read); !strings.Contains(log.String(), "secret-server.js") {
					t.Errorf("the log lacks %v:\n%s", want, log.String())
				}
			})
		}
	}
}

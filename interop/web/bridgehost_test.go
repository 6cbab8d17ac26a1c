package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A desk is a machine with hosts that start bridges to a site, and a user with a
// browser.
type desk struct {
	*machine
	site *site
	user *visitor // of whom only the browser is used
}

// newDesk makes one whose browser opens nothing: it notes what it was to open.
func newDesk(t *testing.T, s *site) *desk {
	t.Helper()
	d := &desk{newMachine(t), s, newVisitor(t, s, "alice", nil)}
	bin := filepath.Join(d.home, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho \"$1\" >> \"$MCPWIRE_HOME/opened\"\n"
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	d.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "CI="}
	return d
}

// opened is how often the browser was.
func (d *desk) opened() int {
	text, err := os.ReadFile(filepath.Join(d.home, "opened"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

// A hosted is a bridge that a host has started.
type hosted struct {
	*process               // once there is one
	started  chan struct{} // closed then
	d        *desk
	flags    []string
	visit    int // logins that were finished

	mu  sync.Mutex
	odd bytes.Buffer // what came on standard output that is no message
}

// host returns a transport that starts a bridge to the site when a client connects.
func (d *desk) host(flags ...string) *hosted {
	return &hosted{d: d, flags: flags, started: make(chan struct{})}
}

// Connect implements client.Transport.
func (h *hosted) Connect(context.Context) (jsonrpc.Framer, error) {
	if err := h.start(); err != nil {
		return nil, err
	}
	return jsonrpc.NewFramer(h, nil), nil
}

func (h *hosted) start() error {
	args := append([]string{"bridge"}, h.flags...)
	p, err := h.d.run(append(args, h.d.site.url)...)
	if err != nil {
		return err
	}
	h.process = p
	close(h.started)
	return nil
}

// listen starts a bridge that listens, and returns where its clients reach it.
func (h *hosted) listen() string {
	h.d.t.Helper()
	if err := h.start(); err != nil {
		h.d.t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if at := listening.FindStringSubmatch(h.log.String()); at != nil {
			return at[1]
		}
		<-time.After(10 * time.Millisecond)
	}
	h.d.t.Fatalf("the bridge does not listen\n%s", h.log.String())
	return ""
}

// Read reads standard output, all of which must be lines of JSON.
func (h *hosted) Read(b []byte) (int, error) {
	n, err := h.stdout.Read(b)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.odd.Write(b[:n])
	for {
		line, rest, whole := bytes.Cut(h.odd.Bytes(), []byte("\n"))
		if !whole || !json.Valid(line) || line[0] != '{' {
			return n, err
		}
		h.odd.Next(h.odd.Len() - len(rest))
	}
}

func (h *hosted) Write(b []byte) (int, error) { return h.stdin.Write(b) }

// Close does what hosts do: it closes standard input and waits.
func (h *hosted) Close() error {
	h.stdin.Close()
	h.stop(syscall.SIGCONT) // which does nothing: it is waited for
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.odd.Len() > 0 {
		return fmt.Errorf("standard output has %q", h.odd.String())
	}
	return nil
}

// dial connects a client that the host has.
func (h *hosted) dial(revision mcp.Revision) (*client.Client, error) {
	c, err := client.Dial(h.d.t.Context(), h, &client.Options{Revisions: []mcp.Revision{revision}, Timeouts: client.Timeouts{Probe: 20 * time.Second}, Retry: client.RetryPolicy{}})
	if err != nil {
		return nil, err
	}
	h.d.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			h.d.t.Errorf("closing: %v", err)
		}
	})
	return c, nil
}

var loginURL = regexp.MustCompile(`http://\S+/auth\?\S+`)

// asks returns the login URLs that the user was shown.
func (h *hosted) asks() []string { return loginURL.FindAllString(h.log.String(), -1) }

// logIn does f while the user, once shown where, logs in.
func (h *hosted) logIn(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(h.d.t.Context(), 30*time.Second)
	defer cancel()
	<-h.started
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("nobody was asked to log in, and nothing came of it")
		}
		if asks := h.asks(); len(asks) > h.visit {
			h.visit++
			if err := h.d.user.loopback().Browse(ctx, asks[len(asks)-1]); err != nil {
				return err
			}
		}
	}
}

// whoami calls the tool of that name.
func whoami(ctx context.Context, c *client.Client) (identity, error) {
	return client.CallTool[identity](ctx, c, "whoami", nil)
}

// token is the one that is kept for the site.
func (d *desk) token() string {
	d.t.Helper()
	path := filepath.Join(d.home, "tokens.json")
	info, err := os.Stat(path)
	if err != nil {
		d.t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		d.t.Errorf("%s has mode %v", path, info.Mode())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	var stored struct {
		Records []struct {
			Resource string `json:"resource"`
			Record   struct {
				Tokens struct {
					Access string `json:"access_token"`
				} `json:"tokens"`
			} `json:"record"`
		} `json:"records"`
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		d.t.Fatal(err)
	}
	token := ""
	for _, r := range stored.Records {
		if r.Resource == d.site.url && r.Record.Tokens.Access != "" {
			token = r.Record.Tokens.Access
		}
	}
	if token == "" {
		d.t.Fatalf("no token is kept: %s", strings.Join(strings.Fields(string(text)), " "))
	}
	return token
}

var _ io.ReadWriteCloser = (*hosted)(nil)

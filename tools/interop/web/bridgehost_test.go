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

// A userMachine is a computer with hosts that start bridges to a site, and a user with a browser.
type userMachine struct {
	*machine
	site *site
	user *siteUser // only its browser is used
}

// newUserMachine returns a computer whose browser only records the URLs that it should open.
func newUserMachine(t *testing.T, s *site) *userMachine {
	t.Helper()
	d := &userMachine{newMachine(t), s, newSiteUser(t, s, "alice", nil)}
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

// opened returns the number of pages that the browser should open.
func (d *userMachine) opened() int {
	text, err := os.ReadFile(filepath.Join(d.home, "opened"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

// A bridgeHost is a bridge and the host that starts it.
type bridgeHost struct {
	*process               // nil before start
	started  chan struct{} // closed by start
	d        *userMachine
	flags    []string
	logins   int // finished logins

	mu      sync.Mutex
	unknown bytes.Buffer // standard output that is not a message
}

// host returns a host that starts a bridge to the site when a client connects.
func (d *userMachine) host(flags ...string) *bridgeHost {
	return &bridgeHost{d: d, flags: flags, started: make(chan struct{})}
}

// Connect implements client.Transport.
func (h *bridgeHost) Connect(context.Context) (jsonrpc.Framer, error) {
	if err := h.start(); err != nil {
		return nil, err
	}
	return jsonrpc.NewFramer(h, nil), nil
}

func (h *bridgeHost) start() error {
	args := append([]string{"bridge"}, h.flags...)
	p, err := h.d.run(append(args, h.d.site.url)...)
	if err != nil {
		return err
	}
	h.process = p
	close(h.started)
	return nil
}

// listen starts a bridge over HTTP, and returns its URL.
func (h *bridgeHost) listen() string {
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
	h.d.t.Fatalf("bridge does not listen\n%s", h.log.String())
	return ""
}

// Read reads standard output. It records what is not a line with a JSON object.
func (h *bridgeHost) Read(b []byte) (int, error) {
	n, err := h.stdout.Read(b)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unknown.Write(b[:n])
	for {
		line, rest, whole := bytes.Cut(h.unknown.Bytes(), []byte("\n"))
		if !whole || !json.Valid(line) || line[0] != '{' {
			return n, err
		}
		h.unknown.Next(h.unknown.Len() - len(rest))
	}
}

func (h *bridgeHost) Write(b []byte) (int, error) { return h.stdin.Write(b) }

// Close closes standard input and waits until the bridge has exited, as hosts do.
func (h *bridgeHost) Close() error {
	h.stdin.Close()
	h.stop(syscall.SIGCONT) // the signal has no effect; stop waits
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unknown.Len() > 0 {
		return fmt.Errorf("standard output has %q, which is not a message", h.unknown.String())
	}
	return nil
}

// dial connects a client of the host.
func (h *bridgeHost) dial(revision mcp.Revision) (*client.Client, error) {
	c, err := client.Dial(h.d.t.Context(), h, &client.Options{Revisions: []mcp.Revision{revision}, Timeouts: client.Timeouts{Probe: 20 * time.Second}, Retry: client.RetryPolicy{}})
	if err != nil {
		return nil, err
	}
	h.d.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			h.d.t.Errorf("close: %v", err)
		}
	})
	return c, nil
}

var loginURL = regexp.MustCompile(`http://\S+/auth\?\S+`)

// loginURLs returns the login URLs that the bridge printed.
func (h *bridgeHost) loginURLs() []string { return loginURL.FindAllString(h.log.String(), -1) }

// logIn calls f, and logs the user in when the bridge prints a login URL.
func (h *bridgeHost) logIn(f func() error) error {
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
			return errors.New("no login URL and no result")
		}
		if urls := h.loginURLs(); len(urls) > h.logins {
			h.logins++
			if err := h.d.user.loopback().Browse(ctx, urls[len(urls)-1]); err != nil {
				return err
			}
		}
	}
}

// whoami calls the tool whoami.
func whoami(ctx context.Context, c *client.Client) (identity, error) {
	return client.CallTool[identity](ctx, c, "whoami", nil)
}

// token returns the stored token for the site.
func (d *userMachine) token() string {
	d.t.Helper()
	path := filepath.Join(d.home, "tokens.json")
	info, err := os.Stat(path)
	if err != nil {
		d.t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		d.t.Errorf("mode of %s = %v, want 0600", path, info.Mode())
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
		d.t.Fatalf("no token is stored: %s", strings.Join(strings.Fields(string(text)), " "))
	}
	return token
}

var _ io.ReadWriteCloser = (*bridgeHost)(nil)

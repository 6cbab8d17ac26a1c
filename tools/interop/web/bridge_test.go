package web

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/internal/test/wait"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// TestBridgeLogin starts a bridge twice: the user logs in once. The bridge renews an invalid token;
// without a refresh token the user must log in again. Client and site have the same era or
// different eras.
func TestBridgeLogin(t *testing.T) {
	for _, downstream := range eras {
		for _, upstream := range eras {
			t.Run(downstream.name+" client, "+upstream.name+" site", func(t *testing.T) {
				t.Parallel()
				o := withoutCache
				o.revisions = []mcp.Revision{upstream.revision}
				s := newSite(t, issuers.at(t, ""), formatOpaque, o)
				checkBridgeLogin(t, newUserMachine(t, s), downstream.revision)
			})
		}
	}
}

func checkBridgeLogin(t *testing.T, d *userMachine, revision mcp.Revision) {
	t.Helper()
	first := d.host()
	var c *client.Client
	var me identity
	call := func() (err error) {
		me, err = whoami(t.Context(), c)
		return err
	}
	err := first.logIn(func() (err error) {
		c, err = first.dial(revision)
		return err
	})
	if err == nil {
		err = call()
	}
	if err != nil || me.Subject != "alice" || len(first.loginURLs()) != 1 || d.opened() != 1 {
		t.Fatalf("first process: %v; identity = %+v; login URLs = %d, opened pages = %d, want 1 and 1\n%s", err, me, len(first.loginURLs()), d.opened(), first.log.String())
	}
	id := me.ClientID

	second := d.host()
	if c, err = second.dial(revision); err == nil {
		err = call()
	}
	if err != nil || me.ClientID != id || len(second.loginURLs()) != 0 {
		t.Fatalf("second process: %v; identity = %+v, want the client id %s\n%s", err, me, id, second.log.String())
	}

	before := d.token()
	d.site.issuer.remove(t, "token", before)
	if err := call(); err != nil || len(second.loginURLs()) != 0 || d.token() == before {
		t.Fatalf("deleted token: %v, want a new token without a login\n%s", err, second.log.String())
	}

	d.site.issuer.revoke(t, d.token(), id, "")
	if err := second.logIn(call); err != nil || me.Subject != "alice" || len(second.loginURLs()) != 1 || d.opened() != 2 {
		t.Fatalf("revoked grant: %v; login URLs = %d, opened pages = %d, want 1 and 2\n%s", err, len(second.loginURLs()), d.opened(), second.log.String())
	}
}

// TestBridgeHeadless runs a bridge on a machine without a browser. The bridge prints the login URL.
func TestBridgeHeadless(t *testing.T) {
	t.Parallel()
	d := newUserMachine(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
	d.env = []string{"PATH=", "CI="}
	h := d.host()
	err := h.logIn(func() error {
		_, err := h.dial(mcp.LatestLegacyRevision)
		return err
	})
	if err != nil || d.opened() != 0 {
		t.Fatalf("login: %v; opened pages = %d, want 0\n%s", err, d.opened(), h.log.String())
	}
}

// TestConcurrentBridges starts several bridges at the same time, as hosts do. One starts a login,
// and none blocks another.
func TestConcurrentBridges(t *testing.T) {
	t.Parallel()
	d := newUserMachine(t, newSite(t, issuers.at(t, ""), formatOpaque, withoutCache))
	hosts := make([]*bridgeHost, 4)
	for i := range hosts {
		hosts[i] = d.host()
	}
	err := concurrently(len(hosts), func(i int) error {
		return hosts[i].logIn(func() error {
			c, err := hosts[i].dial(eras[i%2].revision)
			if err != nil {
				return err
			}
			me, err := whoami(t.Context(), c)
			if err == nil && me.Subject != "alice" {
				err = fmt.Errorf("identity = %+v, want alice", me)
			}
			return err
		})
	})
	logins, notified := 0, 0
	for _, h := range hosts {
		logins += len(h.loginURLs())
		notified += strings.Count(h.log.String(), "Another mcpwire has asked you")
	}
	if err != nil || logins != 1 || d.opened() != 1 {
		t.Errorf("login: %v; login URLs = %d, opened pages = %d, want 1 and 1; %d bridges waited", err, logins, d.opened(), notified)
	}
}

// TestBridgeKilledDuringElicitation kills a bridge that has started a login. Another bridge, which
// waited for this login, then starts one.
func TestBridgeKilledDuringElicitation(t *testing.T) {
	t.Parallel()
	d := newUserMachine(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
	first, second := d.host(), d.host()
	ended := make(chan error, 1)
	go func() {
		_, err := first.dial(mcp.LatestLegacyRevision)
		ended <- err
	}()
	<-first.started
	wait.Until(t, "first login", func() bool { return d.opened() == 1 })
	dialed := make(chan error, 1)
	go func() {
		_, err := second.dial(mcp.LatestRevision)
		dialed <- err
	}()
	<-second.started
	wait.Until(t, "second bridge waits", func() bool { return strings.Contains(second.log.String(), "Another mcpwire") })
	first.process.cmd.Process.Signal(syscall.SIGKILL)
	if err := <-ended; err == nil {
		t.Error("dial of the first: error = nil, want one")
	}
	if err := second.logIn(func() error { return <-dialed }); err != nil || len(second.loginURLs()) != 1 {
		t.Errorf("login of the second: %v; login URLs = %d, want 1\n%s", err, len(second.loginURLs()), second.log.String())
	}
}

// TestBridgeLoginMissing tests a user who does not log in. All clients that wait for the login get
// an error, and the next process may start another login.
func TestBridgeLoginMissing(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			d := newUserMachine(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
			hosts := []*bridgeHost{d.host("--login-timeout", "2s"), d.host("--login-timeout", "2s")}
			errs := make([]error, len(hosts))
			concurrently(len(hosts), func(i int) error {
				_, errs[i] = hosts[i].dial(era.revision)
				return nil
			})
			for i, err := range errs {
				if err == nil || !strings.Contains(err.Error(), "the user must log in") {
					t.Errorf("host %d: error = %v, want that the user must log in\n%s", i, err, hosts[i].log.String())
				}
			}
			if n := d.opened(); n != 1 {
				t.Errorf("opened pages = %d, want 1", n)
			}
			next := d.host()
			err := next.logIn(func() error {
				_, err := next.dial(era.revision)
				return err
			})
			if err != nil {
				t.Errorf("login of the next process: %v\n%s", err, next.log.String())
			}
		})
	}
}

// TestBridgeStepUp calls tools that need further scopes.
func TestBridgeStepUp(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			d := newUserMachine(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
			h := d.host()
			err := h.logIn(func() error {
				c, err := h.dial(era.revision)
				for _, tool := range []string{"change", "rule", "change"} {
					if err == nil {
						_, err = client.CallTool[string](t.Context(), c, tool, nil)
					}
				}
				return err
			})
			urls := h.loginURLs()
			if err != nil || len(urls) != 3 {
				t.Fatalf("calls: %v; login URLs = %d, want 3\n%s", err, len(urls), h.log.String())
			}
			last, err := url.Parse(urls[2])
			if err != nil {
				t.Fatal(err)
			}
			for _, scope := range []string{scopeRead, scopeWrite, scopeAdmin} {
				if scopes := strings.Fields(last.Query().Get("scope")); !slices.Contains(scopes, scope) {
					t.Errorf("scopes of the last login = %q, want %s among them", scopes, scope)
				}
			}
		})
	}
}

// TestBridgeReady checks the readiness of a bridge to a server that requires a login. The check
// must not start a login; the first client does. The same applies after the login has become
// invalid.
func TestBridgeReady(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) { checkReady(t, era.revision) })
		t.Run(era.name+" shared", func(t *testing.T) { checkReady(t, era.revision, "--sessions", "shared") })
	}
}

func checkReady(t *testing.T, revision mcp.Revision, flags ...string) {
	t.Parallel()
	d := newUserMachine(t, newSite(t, issuers.at(t, ""), formatOpaque, withoutCache))
	h := d.host(append(flags, "--listen", "127.0.0.1:0")...)
	at := h.listen()
	for range 3 {
		status, text := readyz(t, at)
		if status != http.StatusServiceUnavailable || !strings.Contains(text, "the user must log in, but this request must not start a login") {
			t.Errorf("readyz before the login: status = %d, body = %s, want %d", status, text, http.StatusServiceUnavailable)
		}
	}
	if n := d.opened() + len(h.loginURLs()); n != 0 {
		t.Errorf("opened pages and login URLs = %d, want 0\n%s", n, h.log.String())
	}
	var c *client.Client
	err := h.logIn(func() (err error) {
		c, err = client.Dial(t.Context(), streamable.NewTransport(at, nil), &client.Options{Revisions: []mcp.Revision{revision}, Timeouts: client.Timeouts{Probe: 20 * time.Second}})
		return err
	})
	if err != nil {
		t.Fatalf("dial: %v\n%s", err, h.log.String())
	}
	defer c.Close()
	me, err := whoami(t.Context(), c)
	if err != nil || me.Subject != "alice" {
		t.Fatalf("whoami = %+v, %v, want alice", me, err)
	}
	if status, text := readyz(t, at); status != http.StatusOK {
		t.Errorf("readyz after the login: status = %d, body = %s, want %d", status, text, http.StatusOK)
	}
	d.site.issuer.revoke(t, d.token(), me.ClientID, "")
	wait.Until(t, "readyz with an invalid login", func() bool {
		status, text := readyz(t, at)
		return status == http.StatusServiceUnavailable && strings.Contains(text, "the user must log in, but this request must not start a login")
	})
	if n := d.opened(); n != 1 || len(h.loginURLs()) != 1 {
		t.Errorf("opened pages = %d, login URLs = %d, want 1 and 1\n%s", n, len(h.loginURLs()), h.log.String())
	}
}

// readyz returns the status and body of the readiness check of the bridge at an address.
func readyz(t *testing.T, at string) (status int, text string) {
	t.Helper()
	resp, err := http.Get(strings.TrimSuffix(at, "/mcp") + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestBridgeClientCredentials runs a bridge with client credentials.
func TestBridgeClientCredentials(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			d := newUserMachine(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
			d.env = append(d.env, "SECRET="+machineSecret)
			h := d.host("--client-id", machineID, "--client-secret-env", "SECRET")
			c, err := h.dial(era.revision)
			if err != nil {
				t.Fatalf("dial: %v\n%s", err, h.log.String())
			}
			if me, err := whoami(t.Context(), c); err != nil || me.ClientID != machineID || h.log.String() != "" {
				t.Errorf("whoami = %+v, %v, want the client id %s and no log\n%s", me, err, machineID, h.log.String())
			}
		})
	}
}

// TestBridgeClosedDuringElicitation closes the host's pipes before the user has logged in. The
// bridge exits.
func TestBridgeClosedDuringElicitation(t *testing.T) {
	t.Parallel()
	d := newUserMachine(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
	h := d.host()
	ended := make(chan error, 1)
	go func() {
		_, err := h.dial(mcp.LatestLegacyRevision)
		ended <- err
	}()
	<-h.started
	wait.Until(t, "login", func() bool { return d.opened() == 1 })
	h.stdin.Close()
	h.stdout.(io.Closer).Close()
	if err := <-ended; err == nil {
		t.Error("dial: error = nil, want one")
	}
}

package web

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// TestBridgeLogin has a host start a bridge, and start it again: the user logs in once. A lost
// token is renewed, and without a refresh token the user must log in again. Client and site are of
// the same era, or of different ones.
func TestBridgeLogin(t *testing.T) {
	for _, downstream := range eras {
		for _, upstream := range eras {
			t.Run(downstream.name+" client, "+upstream.name+" site", func(t *testing.T) {
				t.Parallel()
				o := withoutCache
				o.revisions = []mcp.Revision{upstream.revision}
				s := newSite(t, issuers.at(t, ""), formatOpaque, o)
				checkBridgeLogin(t, newDesk(t, s), downstream.revision)
			})
		}
	}
}

func checkBridgeLogin(t *testing.T, d *desk, revision mcp.Revision) {
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
	if err != nil || me.Subject != "alice" || len(first.asks()) != 1 || d.opened() != 1 {
		t.Fatalf("%v; the site takes the caller for %+v; the user was asked %d times, the browser opened %d times\n%s", err, me, len(first.asks()), d.opened(), first.log.String())
	}
	id := me.ClientID

	second := d.host()
	if c, err = second.dial(revision); err == nil {
		err = call()
	}
	if err != nil || me.ClientID != id || len(second.asks()) != 0 {
		t.Fatalf("the second process: %v; %+v\n%s", err, me, second.log.String())
	}

	before := d.token()
	d.site.issuer.lose(t, "token", before)
	if err := call(); err != nil || len(second.asks()) != 0 || d.token() == before {
		t.Fatalf("a token that is gone: %v\n%s", err, second.log.String())
	}

	d.site.issuer.revoke(t, d.token(), id, "")
	if err := second.logIn(call); err != nil || me.Subject != "alice" || len(second.asks()) != 1 || d.opened() != 2 {
		t.Fatalf("a grant that was revoked: %v; the user was asked %d times, the browser opened %d times\n%s", err, len(second.asks()), d.opened(), second.log.String())
	}
}

// TestBridgeHeadless runs on a machine without a browser: the address is shown.
func TestBridgeHeadless(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
	d.env = []string{"PATH=", "CI="}
	h := d.host()
	err := h.logIn(func() error {
		_, err := h.dial(mcp.LatestLegacyRevision)
		return err
	})
	if err != nil || d.opened() != 0 {
		t.Fatalf("%v\n%s", err, h.log.String())
	}
}

// TestBridgesAtOnce starts several bridges together, as hosts do. One starts a login, and none
// blocks another.
func TestBridgesAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newSite(t, issuers.at(t, ""), formatOpaque, withoutCache))
	hosts := make([]*hosted, 4)
	for i := range hosts {
		hosts[i] = d.host()
	}
	err := atOnce(len(hosts), func(i int) error {
		return hosts[i].logIn(func() error {
			c, err := hosts[i].dial(eras[i%2].revision)
			if err != nil {
				return err
			}
			me, err := whoami(t.Context(), c)
			if err == nil && me.Subject != "alice" {
				err = errors.New("it is not alice")
			}
			return err
		})
	})
	asks, notified := 0, 0
	for _, h := range hosts {
		asks += len(h.asks())
		notified += strings.Count(h.log.String(), "Another mcpwire has asked you")
	}
	if err != nil || asks != 1 || d.opened() != 1 {
		t.Errorf("%v; the user was asked %d times, the browser opened %d times; %d others waited", err, asks, d.opened(), notified)
	}
}

// TestBridgeKilledDuringElicitation has a host end the bridge that has started a login. Another one
// that has waited for it then starts one.
func TestBridgeKilledDuringElicitation(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
	first, second := d.host(), d.host()
	ended := make(chan error, 1)
	go func() {
		_, err := first.dial(mcp.LatestLegacyRevision)
		ended <- err
	}()
	<-first.started
	eventually(t, "the first asks", func() bool { return d.opened() == 1 })
	waits := make(chan error, 1)
	go func() {
		_, err := second.dial(mcp.LatestRevision)
		waits <- err
	}()
	<-second.started
	eventually(t, "the second waits", func() bool { return strings.Contains(second.log.String(), "Another mcpwire") })
	first.process.cmd.Process.Signal(syscall.SIGKILL)
	if err := <-ended; err == nil {
		t.Error("the first connected")
	}
	if err := second.logIn(func() error { return <-waits }); err != nil || len(second.asks()) != 1 {
		t.Errorf("%v\n%s", err, second.log.String())
	}
}

// TestBridgeLoginMissing has users who do nothing, or refuse. All clients that wait for the same
// login get an error, and the next process may start another login.
func TestBridgeLoginMissing(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
			hosts := []*hosted{d.host("--login-timeout", "2s"), d.host("--login-timeout", "2s")}
			errs := make([]error, len(hosts))
			atOnce(len(hosts), func(i int) error {
				_, errs[i] = hosts[i].dial(era.revision)
				return nil
			})
			for i, err := range errs {
				if err == nil || !strings.Contains(err.Error(), "the user must log in") {
					t.Errorf("host %d: got %v, want that the user must log in\n%s", i, err, hosts[i].log.String())
				}
			}
			if n := d.opened(); n != 1 {
				t.Errorf("the browser opened %d times, want once", n)
			}
			again := d.host()
			err := again.logIn(func() error {
				_, err := again.dial(era.revision)
				return err
			})
			if err != nil {
				t.Errorf("the next process: %v\n%s", err, again.log.String())
			}
		})
	}
}

// TestBridgeStepUp calls a tool that needs another scope than the session had.
func TestBridgeStepUp(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
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
			asks := h.asks()
			if err != nil || len(asks) != 3 {
				t.Fatalf("%v; the user was asked %d times, want 3\n%s", err, len(asks), h.log.String())
			}
			last, err := url.Parse(asks[2])
			if err != nil {
				t.Fatal(err)
			}
			for _, scope := range []string{scopeRead, scopeWrite, scopeAdmin} {
				if scopes := strings.Fields(last.Query().Get("scope")); !slices.Contains(scopes, scope) {
					t.Errorf("at last, the user was asked for %q, without %s", scopes, scope)
				}
			}
		})
	}
}

// TestBridgeReady checks readiness with a server that requires a login: the check must not start a
// login; the first client does. The same applies when the login has become invalid.
func TestBridgeReady(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) { checkReady(t, era.revision) })
		t.Run(era.name+" shared", func(t *testing.T) { checkReady(t, era.revision, "--sessions", "shared") })
	}
}

func checkReady(t *testing.T, revision mcp.Revision, flags ...string) {
	t.Parallel()
	d := newDesk(t, newSite(t, issuers.at(t, ""), formatOpaque, withoutCache))
	h := d.host(append(flags, "--listen", "127.0.0.1:0")...)
	at := h.listen()
	for range 3 {
		status, text := readyz(t, at)
		if status != http.StatusServiceUnavailable || !strings.Contains(text, "the user must log in, but this request must not start a login") {
			t.Errorf("got status %d, %s", status, text)
		}
	}
	if n := d.opened() + len(h.asks()); n != 0 {
		t.Errorf("the user was asked %d times\n%s", n, h.log.String())
	}
	var c *client.Client
	err := h.logIn(func() (err error) {
		c, err = client.Dial(t.Context(), streamable.Dial(at, nil), &client.Options{Revisions: []mcp.Revision{revision}, Timeouts: client.Timeouts{Probe: 20 * time.Second}})
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, h.log.String())
	}
	defer c.Close()
	me, err := whoami(t.Context(), c)
	if err != nil || me.Subject != "alice" {
		t.Fatalf("got %+v, %v", me, err)
	}
	if status, text := readyz(t, at); status != http.StatusOK {
		t.Errorf("after the login: got status %d, %s", status, text)
	}
	d.site.issuer.revoke(t, d.token(), me.ClientID, "")
	eventually(t, "the login is no longer valid", func() bool {
		status, text := readyz(t, at)
		return status == http.StatusServiceUnavailable && strings.Contains(text, "the user must log in, but this request must not start a login")
	})
	if n := d.opened(); n != 1 || len(h.asks()) != 1 {
		t.Errorf("the browser opened %d times, want once\n%s", n, h.log.String())
	}
}

// readyz queries the readiness of the bridge at this address.
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

// TestBridgeForItself runs a bridge with its own credentials.
func TestBridgeForItself(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
			d.env = append(d.env, "SECRET="+machineSecret)
			h := d.host("--client-id", machineID, "--client-secret-env", "SECRET")
			c, err := h.dial(era.revision)
			if err != nil {
				t.Fatalf("%v\n%s", err, h.log.String())
			}
			if me, err := whoami(t.Context(), c); err != nil || me.ClientID != machineID || h.log.String() != "" {
				t.Errorf("%v; the site takes the caller for %+v\n%s", err, me, h.log.String())
			}
		})
	}
}

// TestBridgeClosedDuringElicitation has a host end before the user has logged in: the
// bridge ends too.
func TestBridgeClosedDuringElicitation(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newSite(t, issuers.at(t, ""), formatJWT, siteOptions{}))
	h := d.host()
	ended := make(chan error, 1)
	go func() {
		_, err := h.dial(mcp.LatestLegacyRevision)
		ended <- err
	}()
	<-h.started
	eventually(t, "the user is asked", func() bool { return d.opened() == 1 })
	h.stdin.Close()
	h.stdout.(io.Closer).Close()
	if err := <-ended; err == nil {
		t.Error("the client connected")
	}
}

package login

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// toolsOf returns the names of the tools that a client sees.
func toolsOf(t *testing.T, c *client.Client) (names []string) {
	t.Helper()
	c.ForgetCached()
	for tool, err := range c.Tools(t.Context()) {
		must(t, err)
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// TestLogin checks for all pairs of eras that a caller gets a login page, that its login is used
// for this caller only, and that no token of a caller reaches the upstream.
//
// Spec: S195 S196 S197 S199 S214
func TestLogin(t *testing.T) {
	for _, revision := range eras {
		for _, upstream := range eras {
			t.Run(fmt.Sprintf("%v to %v", revision, upstream), func(t *testing.T) { testLogin(t, revision, upstream) })
		}
	}
}

func testLogin(t *testing.T, revision, upstream mcp.Revision) {
	w := newWorld(t, upstream)
	tokens := []string{w.idp.Token("alice", testResource, nil), w.idp.Token("bob", testResource, nil)}
	alice := newCaller(w, tokens[0], revision, w.browser("alice", "alice.up"))
	bob := newCaller(w, tokens[1], revision, w.browser("bob", "bob.up"))
	if diff := cmp.Diff([]string{"up__log_in"}, toolsOf(t, alice.Client)); diff != "" {
		t.Errorf("tools before the login (-want +got):\n%s", diff)
	}
	if got := alice.call("up__whoami"); got != "alice.up" {
		t.Errorf("upstream user of alice: got %q, want alice.up", got)
	}
	if diff := cmp.Diff([]string{"up__delete", "up__whoami"}, toolsOf(t, alice.Client)); diff != "" {
		t.Errorf("tools after the login (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"up__log_in"}, toolsOf(t, bob.Client)); diff != "" {
		t.Errorf("bob's tools after alice's login (-want +got):\n%s", diff)
	}
	if got := bob.call("up__log_in"); !strings.Contains(got, "You are logged in to up") {
		t.Errorf("log_in: got %q", got)
	}
	// Another client of alice does not need to log in.
	other := newCaller(w, w.idp.Token("alice", testResource, map[string]any{"client_id": "other"}), revision, nil)
	for who, c := range map[string]*caller{"alice.up": alice, "bob.up": bob} {
		if got := c.call("up__whoami"); got != who {
			t.Errorf("upstream user: got %q, want %s", got, who)
		}
	}
	if got := other.call("up__whoami"); got != "alice.up" {
		t.Errorf("upstream user of alice's other client: got %q, want alice.up", got)
	}
	if alice.pages != 1 || bob.pages != 1 || len(w.as.Authorized) != 2 || len(w.as.Registrations) != 1 {
		t.Errorf("got %d and %d pages, %d logins, %d registrations, want 1, 1, 2, 1", alice.pages, bob.pages, len(w.as.Authorized), len(w.as.Registrations))
	}
	// Access tokens are refreshed without a login.
	w.as.Revoke("alice.up", false)
	if got := alice.call("up__whoami"); got != "alice.up" || alice.pages != 1 {
		t.Errorf("after a refresh: got upstream user %q of alice, %d pages", got, alice.pages)
	}
	// Without a valid refresh token, the user logs in again.
	w.as.Revoke("bob.up", true)
	if got := bob.call("up__whoami"); got != "bob.up" || bob.pages != 2 {
		t.Errorf("after a second login: got upstream user %q of bob, %d pages", got, bob.pages)
	}
	sent := w.upstream.String()
	if !strings.Contains(sent, "Bearer SECRET-access-alice.up-") || !strings.Contains(sent, "whoami") {
		t.Fatalf("the %d recorded bytes have no request", len(sent))
	}
	for _, token := range tokens {
		if strings.Contains(sent, token) || strings.Contains(sent, token[strings.LastIndex(token, ".")+1:]) {
			t.Error("a caller's token was sent to the upstream")
		}
	}
	records := w.noted()
	for _, want := range []string{"alice app tools/call whoami login_required", "alice app login  ok", "alice app tools/call whoami ok", "bob app login  ok"} {
		if revision == mcp.LatestRevision || !strings.Contains(want, "required") {
			if !slices.Contains(records, want) {
				t.Errorf("records: got %q, want %q in it", records, want)
			}
		}
	}
}

// A caller is a client whose user opens login pages in a browser.
type caller struct {
	*client.Client
	w       *world
	browser *browser
	pages   int
	done    chan string
}

func newCaller(w *world, token string, revision mcp.Revision, b *browser) *caller {
	c := &caller{w: w, browser: b, done: make(chan string, 10)}
	c.Client = w.dial(token, revision, c.show, func(method, params string) {
		if method == mcp.NotificationElicitationComplete {
			c.done <- params
		}
	})
	return c
}

// show opens a login page and logs the user in.
func (c *caller) show(url string) mcp.ElicitAction {
	c.pages++
	if status, page := c.browser.login(url); status != http.StatusOK || !strings.Contains(page, "You are logged in to up") {
		c.w.t.Errorf("login: got %d, %s", status, page)
	}
	return mcp.ElicitActionAccept
}

// call calls a tool. A legacy client gets an error with a login page, and calls again after the
// login.
func (c *caller) call(name string) string {
	c.w.t.Helper()
	got, err := client.CallTool[string](c.w.t.Context(), c.Client, name, nil)
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == mcp.CodeURLElicitationRequired {
		var data mcp.URLElicitationRequiredData
		must(c.w.t, data.UnmarshalJSON(e.Data))
		page := data.Elicitations[0]
		if !strings.Contains(e.Message, page.URL) || !strings.Contains(page.Message, "Log in to up (http://127.0.0.1:") {
			c.w.t.Errorf("got error %q with message %q", e.Message, page.Message)
		}
		c.show(page.URL)
		select {
		case params := <-c.done:
			if want := `{"elicitationId":"` + page.ElicitationID + `"}`; params != want {
				c.w.t.Errorf("notification of the completed login: got %s, want %s", params, want)
			}
		case <-time.After(time.Minute):
			c.w.t.Error("no notification of the completed login")
		}
		got, err = client.CallTool[string](c.w.t.Context(), c.Client, name, nil)
	}
	if err != nil {
		c.w.t.Errorf("call %s: %v", name, err)
	}
	return got
}

// A metadataServer serves the metadata of an issuer, unless it is down.
type metadataServer struct {
	down     bool
	requests int
}

// RoundTrip implements http.RoundTripper.
func (m *metadataServer) RoundTrip(req *http.Request) (*http.Response, error) {
	m.requests++
	if m.down {
		return nil, errors.New("the issuer is down")
	}
	return respond(req, http.StatusOK, http.Header{}, `{"issuer":"https://idp.example.com","authorization_endpoint":"https://idp.example.com/a","token_endpoint":"https://idp.example.com/t","jwks_uri":"https://idp.example.com/k"}`), nil
}

// TestMetadataRefresh checks that logins use the last metadata while the issuer is down, and do not
// wait for it each time.
func TestMetadataRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &metadataServer{}
		i := newIdentity(&config.LoginIdentity{Issuer: "https://idp.example.com", ID: "c"}, auth.Secret{}, s, "https://gw.example.com/oauth/identity")
		for _, step := range []struct {
			after time.Duration
			down  bool
			// requests is the number of requests after the step.
			requests int
		}{{0, false, 1}, {metadataTTL - 1, true, 1}, {1, true, 2}, {metadataRetry - 1, true, 2}, {1, true, 3}, {metadataRetry, false, 4}, {metadataTTL - 1, false, 4}} {
			time.Sleep(step.after)
			s.down = step.down
			if _, err := i.metadata(t.Context()); err != nil || s.requests != step.requests {
				t.Errorf("%v later: got %v after %d requests, want %d", step.after, err, s.requests, step.requests)
			}
		}
	})
}

package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/mcp"
)

// A fakeLogin is the login of one caller.
type fakeLogin struct {
	mu      sync.Mutex
	in      bool
	page    *LoginPage
	done    chan struct{}
	pageErr error
}

func newFakeLogin() *fakeLogin {
	f := &fakeLogin{done: make(chan struct{})}
	f.page = &LoginPage{ID: "1", URL: "https://gw.example.com/login/1", Host: "https://one.example.com", Done: f.done, Expires: time.Now().Add(10 * time.Minute)}
	return f
}

func (f *fakeLogin) LoggedIn(context.Context) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.in
}

func (f *fakeLogin) Refused(context.Context) bool { return false }

func (f *fakeLogin) Pending(_ context.Context, id string) *LoginPage {
	if f.LoggedIn(context.Background()) || id != f.page.ID {
		return nil
	}
	return f.page
}

func (f *fakeLogin) Page(context.Context) (*LoginPage, error) { return f.page, f.pageErr }

// finish logs the caller in.
func (f *fakeLogin) finish(g *Gateway) {
	f.mu.Lock()
	f.in = true
	f.mu.Unlock()
	close(f.done)
	g.LoginChanged("one", time.Now(), func(context.Context) bool { return true })
}

// loginGateway returns a gateway with an upstream that needs a login, one that does not, and a
// view.
func loginGateway(t *testing.T, login *fakeLogin, view View) *Gateway {
	one := streamUpstream("one", toolServer("one", "a", "log_out"))
	one.Login, one.PerPrincipal = login, true
	o := &Options{Upstreams: []Upstream{one, streamUpstream("two", toolServer("two", "a"))}}
	if view != nil {
		o.View = func(context.Context) View { return view }
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// TestLoginRounds checks that the retry of a call waits for the login, and that the client gets the
// input request again after loginWait.
func TestLoginRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login := newFakeLogin()
		g := loginGateway(t, login, nil)
		var prompts []time.Time
		o := client.Options{Revisions: []mcp.Revision{mcp.LatestRevision}}
		o.Input.ElicitModes = []mcp.ElicitMode{mcp.ElicitModeURL}
		o.Input.Elicit = func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			prompts = append(prompts, time.Now())
			if p.URL != login.page.URL || p.Message != "Log in to one (https://one.example.com), so that its tools can be used on your behalf." {
				t.Errorf("input request: got %s: %s", p.URL, p.Message)
			}
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept}, nil
		}
		c := dialStream(t, g, o)
		if got, want := toolNames(t, c), "one__log_in two__a"; got != want {
			t.Errorf("tools before the login: got %q, want %q", got, want)
		}
		start := time.Now()
		time.AfterFunc(40*time.Second, func() { login.finish(g) })
		if _, err := c.CallTool(t.Context(), "one__a", nil); err != nil {
			t.Error(err)
		}
		var got []time.Duration
		for _, at := range prompts {
			got = append(got, at.Sub(start))
		}
		if diff := cmp.Diff([]time.Duration{0, loginWait}, got); diff != "" || time.Since(start) < 40*time.Second || time.Since(start) > 50*time.Second {
			t.Errorf("the call took %v, with input requests after (-want +got):\n%s", time.Since(start), diff)
		}
		if got, want := toolNames(t, c), "one__a one__log_out two__a"; got != want {
			t.Errorf("tools after the login: got %q, want %q", got, want)
		}
		if got, err := client.CallTool[string](t.Context(), c, "one__log_in", nil); err != nil || !strings.HasPrefix(got, "You are logged in to one.") {
			t.Errorf("log_in after the login: got %q, %v", got, err)
		}
		if len(prompts) != 2 {
			t.Errorf("got %d input requests, want 2", len(prompts))
		}
	})
}

// TestLoginView checks that the view of a caller decides whether it has the tool log_in.
func TestLoginView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for prefix, want := range map[string]string{"one__log": "one__log_in", "two": "two__a", "": "one__log_in two__a", "one__a": ""} {
			g := loginGateway(t, newFakeLogin(), prefixView(prefix))
			c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{mcp.LatestRevision}})
			if got := toolNames(t, c); got != want {
				t.Errorf("%q: tools: got %q, want %q", prefix, got, want)
			}
			_, err := c.CallTool(t.Context(), "one__log_in", nil)
			if unknown := client.IsServerError(err); unknown == strings.Contains(want, "one__log_in") {
				t.Errorf("%q: log_in: got %v", prefix, err)
			}
		}
	})
}

// TestLoginFails checks the error of a call for which no login page can be made.
func TestLoginFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		login := newFakeLogin()
		login.pageErr = errors.New("too many logins are pending")
		g := loginGateway(t, login, nil)
		for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
			c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{revision}})
			if _, err := c.CallTool(t.Context(), "one__a", nil); !client.IsServerError(err) || !strings.Contains(err.Error(), "one: too many logins are pending") {
				t.Errorf("%v: got %v", revision, err)
			}
			if _, err := c.CallTool(t.Context(), "two__a", nil); err != nil {
				t.Errorf("%v: the other upstream: %v", revision, err)
			}
		}
	})
}

// TestLoginState checks that the request state of a login is valid for its upstream only, and that
// the upstream does not get the state and the input responses.
func TestLoginState(t *testing.T) {
	g := loginGateway(t, newFakeLogin(), nil)
	one := g.state.Load().byName["one"]
	seal := func(upstream string) string {
		text, _, err := g.ring.Seal(nil, purposeLogin, []byte("1"), loginData(upstream, ""))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	frame := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","requestState":%q,"inputResponses":{"login":{"action":"accept"}},"_meta":{"x":1}}}`
	got, id, action := g.openLogin(t.Context(), one, fmt.Appendf(nil, frame, seal("one")))
	if want := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"x":1}}}`; string(got) != want || id != "1" || action != "accept" {
		t.Errorf("got %s, page %q, action %q", got, id, action)
	}
	for _, state := range []string{seal("two"), "x", seal("one") + "A"} {
		in := fmt.Sprintf(frame, state)
		if got, _, action := g.openLogin(t.Context(), one, []byte(in)); string(got) != in || action != "" {
			t.Errorf("state of another upstream: got %s, action %q", got, action)
		}
	}
}

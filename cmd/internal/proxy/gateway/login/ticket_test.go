package login

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/base/seal"
	"mcpwire/mcp"
)

// sharedKeys makes a world one whose gateways have keys and a folder in common.
func sharedKeys(t *testing.T) worldOption {
	dir := t.TempDir()
	return func(_ *world, o *Options, _ *UpstreamOptions) {
		o.Folder, o.Ring = dir, new(seal.Ring)
		must(t, o.Ring.Replace([]byte("0123456789abcdef0123456789abcdef")))
	}
}

// replica returns the logins of another gateway of the world.
func (w *world) replica(change func(*Options)) *Logins {
	w.t.Helper()
	o := w.options
	if change != nil {
		change(&o)
	}
	l, err := New(&o)
	must(w.t, err)
	w.t.Cleanup(l.Close)
	u, err := l.Upstream(w.up)
	must(w.t, err)
	u.Transport(ownTransport(w.t)) // for the question what the upstream needs
	return l
}

// stepOf returns the index of the step of a request of a browser: page, start, identity, callback.
func stepOf(r *http.Request) int {
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/start"):
		return 1
	case strings.HasSuffix(path, "/identity"):
		return 2
	case strings.Contains(path, "/callback/"):
		return 3
	}
	return 0
}

// TestReplicas has a browser reach one of two gateways in each step. The user is then logged in, and
// the call of the client goes on, which waits at the first gateway.
func TestReplicas(t *testing.T) {
	t.Run("bearer", func(t *testing.T) { testReplicas(t, false) })
	t.Run("DPoP", func(t *testing.T) { testReplicas(t, true) })
}

func testReplicas(t *testing.T, dpop bool) {
	w := newWorld(t, mcp.LatestRevision, sharedKeys(t))
	if dpop {
		w.as.Document()["dpop_signing_alg_values_supported"] = []string{"ES256"}
	}
	gateways := []*Logins{w.logins, w.replica(nil)}
	for _, at := range []int{0b0001, 0b0010, 0b0100, 0b1000, 0b0101, 0b1010, 0b1111} {
		t.Run(fmt.Sprintf("%04b", at), func(t *testing.T) {
			w.pages = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { gateways[at>>stepOf(r)&1].ServeHTTP(rw, r) })
			user := fmt.Sprint("user", at)
			b := w.browser(user, "up-"+user)
			c := w.dial(w.idp.Token(user, testResource, nil), mcp.LatestRevision, func(page string) mcp.ElicitAction {
				status, text := b.login(page)
				if status != http.StatusOK || !strings.Contains(text, "You are logged in") {
					t.Errorf("status %d: %s", status, text)
				}
				return mcp.ElicitActionAccept
			}, nil)
			if got, err := client.CallTool[string](t.Context(), c, "up__whoami", nil); got != "up-"+user || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			w.as.Revoke("up-"+user, false)
			if got, err := client.CallTool[string](t.Context(), c, "up__whoami", nil); got != "up-"+user || err != nil {
				t.Errorf("after the token expired: got %q, %v", got, err)
			}
		})
	}
	if got := strings.Contains(w.upstream.String(), "Authorization: DPoP "); got != dpop {
		t.Errorf("tokens bound to keys: got %v, want %v", got, dpop)
	}
}

// TestCompleteElsewhere checks that a legacy client is notified of a login that another gateway has
// finished.
func TestCompleteElsewhere(t *testing.T) {
	w := newWorld(t, mcp.LatestLegacyRevision, sharedKeys(t))
	w.pages = w.replica(nil)
	done := make(chan string, 1)
	b := w.browser("ann", "up-ann")
	c := w.dial(w.idp.Token("ann", testResource, nil), mcp.LatestLegacyRevision, func(string) mcp.ElicitAction { return mcp.ElicitActionAccept }, func(method, params string) {
		if method == mcp.NotificationElicitationComplete {
			done <- params
		}
	})
	_, err := client.CallTool[string](t.Context(), c, "up__whoami", nil)
	if err == nil {
		t.Fatal("the call succeeds without a login")
	}
	_, rest, _ := strings.Cut(err.Error(), "open ")
	link, _, _ := strings.Cut(rest, " ")
	if status, text := b.login(link); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	if params := <-done; !strings.Contains(params, link[strings.LastIndex(link, "/")+1:]) {
		t.Errorf("the notification has %s", params)
	}
	if got, err := client.CallTool[string](t.Context(), c, "up__whoami", nil); got != "up-ann" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestForeignReplica checks that links and cookies of gateways with other keys, old ones and changed
// ones are refused, and that a response is used once at a gateway.
func TestForeignReplica(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision, sharedKeys(t))
	stranger := w.replica(func(o *Options) {
		o.Ring = new(seal.Ring)
		must(t, o.Ring.Replace([]byte("fedcba9876543210fedcba9876543210")))
	})
	page := func() string {
		w.logins.mu.Lock()
		defer w.logins.mu.Unlock()
		a, err := w.logins.accountLocked(w.logins.upstreams["up"], userText(w.idp.URL, "ann"), nil)
		must(t, err)
		id, err := w.logins.newPageID(a, time.Now())
		must(t, err)
		return w.url + Path + "login/" + id
	}
	serve := func(l *Logins) {
		w.pages = l
	}
	others := w.replica(func(o *Options) { o.Identity = &config.LoginIdentity{Issuer: w.idp.URL, ID: "another"} })
	w.up.Issuer = w.as.URL
	moved := w.replica(nil)
	w.up.Issuer = ""
	link := page()
	for name, tt := range map[string]struct {
		l       *Logins
		address string
	}{"other keys": {stranger, link}, "another identity": {others, link}, "another server": {moved, link}, "changed": {w.logins, link[:len(link)-1]}, "random": {w.logins, w.url + Path + "login/ABC"}} {
		serve(tt.l)
		if status, _ := w.browser("ann", "up").login(tt.address); status != http.StatusNotFound {
			t.Errorf("%s: status %d", name, status)
		}
	}

	// The page is for ann. Bob's browser may open the link anywhere, and gets nothing.
	other := w.replica(nil)
	serve(other)
	if status, text := w.browser("bob", "up-bob").login(link); status != http.StatusForbidden || !strings.Contains(text, "not yours") {
		t.Errorf("bob: status %d: %s", status, text)
	}

	// The response to one gateway is not accepted twice, nor without the cookie.
	b := w.browser("ann", "up-ann")
	serve(w.logins)
	if status, text := b.login(link); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	var callback *url.URL
	for _, u := range b.visited {
		if strings.Contains(u.Path, "/callback/") {
			callback = u
		}
	}
	for name, l := range map[string]*Logins{"the same gateway": w.logins, "another gateway": other} {
		serve(l)
		if status, _ := w.browser("ann", "up-ann").open(callback.String()); status == http.StatusOK {
			t.Errorf("%s accepts a response without a cookie", name)
		}
		if status, _ := b.open(callback.String()); status == http.StatusOK {
			t.Errorf("%s accepts a response twice", name)
		}
	}
	if n := strings.Count(strings.Join(w.noted(), "\n"), "login  ok"); n != 1 {
		t.Errorf("%d logins are noted in %q", n, w.noted())
	}
	serve(w.logins)
	if status, _ := b.login(link); status != http.StatusNotFound {
		t.Errorf("a used link has the status %d", status)
	}
}

// TestReplay checks that a response, and a link after the login, are refused by a gateway that has
// not seen their use. The gateways share the folder of tokens.
func TestReplay(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision, sharedKeys(t))
	other := w.replica(nil)
	link := w.loginPage(w.idp.Token("ann", testResource, nil))
	other.find(link[strings.LastIndex(link, "/")+1:]) // knows the page, and not that it was used
	b := w.browser("ann", "up-ann")
	callback := b.followUntil(link+"/start", w.url+Path+"callback/")
	// A wrong code uses the state up, too, but not the link.
	if status, text := b.open(strings.Replace(callback, "code=", "code=x", 1)); status != http.StatusBadGateway {
		t.Errorf("a wrong code: got %d, %s", status, text)
	}
	w.pages = other
	if status, text := b.open(callback); status != http.StatusNotFound || len(w.as.Tokens) != 0 {
		t.Errorf("the response at another gateway: got %d, %s, and %d tokens", status, text, len(w.as.Tokens))
	}
	if status, text := b.login(link); status != http.StatusOK {
		t.Errorf("the link: got %d, %s", status, text)
	}
	w.pages = w.logins
	if status, text := b.open(link); status != http.StatusNotFound {
		t.Errorf("the link after the login: got %d, %s", status, text)
	}
}

// TestTicketLife checks that links of other gateways expire.
func TestTicketLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := new(seal.Ring)
		must(t, ring.Replace([]byte("0123456789abcdef0123456789abcdef")))
		open := func() *Logins {
			l, err := New(&Options{URL: "http://127.0.0.1:1", Ring: ring})
			must(t, err)
			_, err = l.Upstream(UpstreamOptions{Name: "up", Server: "http://127.0.0.1:2/mcp"})
			must(t, err)
			return l
		}
		one, two := open(), open()
		defer one.Close()
		defer two.Close()
		p, err := one.upstreams["up"].Page(t.Context())
		must(t, err)
		time.Sleep(pageLife - time.Second)
		if two.find(p.ID) == nil {
			t.Error("the link has expired too early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if two.find(p.ID) != nil || open().find(p.ID) != nil {
			t.Error("the link has not expired")
		}
	})
}

// TestTicketSize checks that a cookie fits into a browser, whatever an upstream has answered.
func TestTicketSize(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision, sharedKeys(t))
	p, err := w.logins.upstreams["up"].l.pageFor(&account{up: w.logins.upstreams["up"], user: strings.Repeat("u", 700)})
	must(t, err)
	a := w.logins.newAttempt(w.logins.find(p.ID))
	for _, n := range []int{10, 100_000} {
		a.rejection = &rejection{status: 403, header: []string{strings.Repeat(`"`, n)}}
		text, err := a.ticket()
		if err != nil || len(text) > maxTicket {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	}
	if _, err := w.logins.pageFor(&account{up: w.logins.upstreams["up"], user: strings.Repeat("u", 2000)}); err == nil {
		t.Error("a link of more than the limit is made")
	}
}

// TestPrincipalOf checks that the principal of a user has the user's text as its id.
func TestPrincipalOf(t *testing.T) {
	for _, user := range []string{userText("https://idp.example.com", "alice"), userText("https://idp.example.com", "alice b%/"), userText("an issuer", "alice")} {
		if p := principalOf(user); p == nil || userText(p.Issuer, p.Subject) != user {
			t.Errorf("%s: got %+v", user, p)
		}
	}
	if p := principalOf("https://idp.example.com alice%20b"); p.Issuer != "https://idp.example.com" || p.Subject != "alice b" {
		t.Errorf("got %+v, want alice b", p)
	}
	if p := principalOf("https://idp.example.com %zz"); p.Subject != "%zz" {
		t.Errorf("a malformed user: got %+v", p)
	}
	if p := principalOf(localUser); p != nil {
		t.Errorf("the local user: got %+v, want none", p)
	}
}

// TestAddState checks that an attempt has one state, and none if its page cannot be used.
func TestAddState(t *testing.T) {
	l, u := newTestLogins(t)
	attemptOf := func(user string) *attempt {
		p, err := u.Page(as(user))
		must(t, err)
		return l.newAttempt(l.find(p.ID))
	}
	a, b := attemptOf("alice"), attemptOf("bob")
	check := func(what string, got, want bool, states ...string) {
		t.Helper()
		if all := slices.Sorted(maps.Keys(l.states)); got != want || !slices.Equal(all, states) {
			t.Errorf("%s: got %v with the states %q, want %v with %q", what, got, all, want, states)
		}
	}
	check("first", l.addState("1", a), true, "1")
	check("of another", l.addState("2", b), true, "1", "2")
	check("second", l.addState("3", a), true, "2", "3")
	check("empty", l.addState("", a), false, "2", "3")
	l.remove(b.page)
	check("page removed", l.addState("4", b), false, "2", "3")
	check("third", l.addState("5", a), true, "5")
	l.Close()
	check("closed", l.addState("6", a), false, "5")
}

// TestWatch checks that a page ends when the user logs in at another gateway, however long that
// takes.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l, err := New(&Options{URL: "http://127.0.0.1:1", Identity: &config.LoginIdentity{Issuer: "https://idp.example.com", ID: "a"}, Folder: dir, Ring: newRing(t, 1)})
		must(t, err)
		defer l.Close()
		u, err := l.Upstream(UpstreamOptions{Name: "up", Server: "https://up.example.com/mcp"})
		must(t, err)
		p, err := u.Page(as("alice"))
		must(t, err)
		ended := func() bool {
			synctest.Wait()
			select {
			case <-p.Done:
				return true
			default:
				return false
			}
		}
		time.Sleep(5*watchInterval + time.Millisecond)
		if ended() {
			t.Error("the page ends before the login")
		}
		saveTokens(t, l.folder, "https://idp.example.com alice", "token")
		time.Sleep(watchInterval + logoutTTL)
		if !ended() || l.find(p.ID) != nil {
			t.Error("the page does not end after the login")
		}
	})
}

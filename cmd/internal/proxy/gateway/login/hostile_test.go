package login

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/mcp"
)

// loginPage makes a call whose caller declines to log in, and returns the URL of the login page.
func (w *world) loginPage(token string) string {
	w.t.Helper()
	var page string
	c := w.dial(token, mcp.LatestRevision, func(url string) mcp.ElicitAction {
		page = url
		return mcp.ElicitActionDecline
	}, nil)
	if _, err := c.CallTool(w.t.Context(), "up__whoami", nil); err == nil || !strings.Contains(err.Error(), "did not agree to log in to up") {
		w.t.Errorf("declined login: got %v", err)
	}
	if page == "" {
		w.t.Fatal("the call led to no login page")
	}
	return page
}

// checkNoLogin checks that the upstream has no login, and that a caller gets a login page.
func (w *world) checkNoLogin(token string) {
	w.t.Helper()
	if len(w.as.Authorized) != 0 && len(w.as.Tokens) != 0 {
		w.t.Errorf("the authorization server of the upstream has issued %d tokens, want 0", len(w.as.Tokens))
	}
	if strings.Contains(w.upstream.String(), "Authorization") {
		w.t.Error("the upstream got a token")
	}
	w.loginPage(token)
}

// TestStolenLink checks that only the caller for whom a link was made can log in with it.
//
// Spec: S182 S189 S192 S193
func TestStolenLink(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision)
	token := w.idp.Token("mallory", testResource, nil)
	page := w.loginPage(token)
	victim := w.browser("alice", "alice.up")
	status, text := victim.login(page)
	if status != http.StatusForbidden || !strings.Contains(text, "This link is not yours") || strings.Contains(text, "mallory") {
		t.Errorf("victim: got %d, %s", status, text)
	}
	if slices.ContainsFunc(victim.visited, func(u *url.URL) bool { return "http://"+u.Host == w.as.URL }) {
		t.Error("the victim was redirected to the authorization server of the upstream")
	}
	w.checkNoLogin(token)
	if diff := cmp.Diff([]string{"mallory app tools/call whoami login_required", "mallory app tools/call whoami error", "mallory app login  denied"}, w.noted()[:3]); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	// The link needs an account at the authorization server of the gateway.
	if status, _ := w.browser("", "alice.up").login(page); status != http.StatusUnauthorized {
		t.Errorf("user without an account: got status %d, want 401", status)
	}
	// The link still works for its owner.
	if status, text := w.browser("mallory", "mallory.up").login(page); status != http.StatusOK {
		t.Errorf("owner: got %d, %s", status, text)
	}
	if status, text := w.browser("mallory", "mallory.up").login(page); status != http.StatusNotFound || !strings.Contains(text, "no longer valid") {
		t.Errorf("used link: got %d, %s", status, text)
	}
}

// followUntil has the browser follow redirects until a URL begins with a prefix. It returns that
// URL without opening it.
func (b *browser) followUntil(address, prefix string) string {
	b.t.Helper()
	follow := b.CheckRedirect
	defer func() { b.CheckRedirect = follow }()
	found := ""
	b.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(req.URL.String(), prefix) {
			found = req.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	resp, err := b.Get(address)
	must(b.t, err)
	resp.Body.Close()
	if found == "" {
		b.t.Fatalf("open %s: got status %d, want a redirect to %s", address, resp.StatusCode, prefix)
	}
	return found
}

// TestForgedCallback checks that the response of an authorization server is accepted only once, in
// the browser that requested it, at its own redirect URI, and from the right server.
func TestForgedCallback(t *testing.T) {
	for _, tt := range []struct {
		name string
		// at is the path of the attacked redirect URI.
		at string
		// edit returns the browser that opens the redirect URI, and the modified URL.
		edit func(w *world, own *browser, real string) (*browser, string)
		want int
		// text is part of the page.
		text string
		// works means that the login completes in spite of the attack.
		works bool
	}{
		{"another browser", "callback/up", func(w *world, _ *browser, real string) (*browser, string) {
			return w.browser("alice", "alice.up"), real
		}, 403, "began in another browser", false},
		{"another browser at the identity", "identity", func(w *world, _ *browser, real string) (*browser, string) {
			return w.browser("alice", "alice.up"), real
		}, 403, "began in another browser", false},
		{"a cookie of another login", "callback/up", func(w *world, own *browser, real string) (*browser, string) {
			own.followUntil(w.loginPage(w.idp.Token("alice", testResource, nil))+"/start", w.idp.URL)
			return own, real
		}, 403, "began in another browser", false},
		{"an unknown state", "callback/up", edited("state", "x"), 404, "no longer valid", false},
		{"no state", "callback/up", edited("state", ""), 404, "no longer valid", false},
		{"two states", "callback/up", func(_ *world, own *browser, real string) (*browser, string) { return own, real + "&state=x" }, 502, "state twice", false},
		{"another issuer", "callback/up", edited("iss", "https://evil.example"), 502, "another authorization server", false},
		{"no issuer", "callback/up", edited("iss", ""), 502, "has no iss", false},
		{"another issuer of the identity", "identity", edited("iss", "https://evil.example"), 502, "another authorization server", false},
		{"no issuer of the identity", "identity", edited("iss", ""), 502, "another authorization server", false},
		{"a foreign code", "callback/up", edited("code", "x"), 502, "invalid_grant", false},
		{"a foreign code of the identity", "identity", edited("code", "x"), 502, "no ID token", false},
		{"an error", "callback/up", func(_ *world, own *browser, real string) (*browser, string) {
			u := parseURL(real)
			q := u.Query()
			q.Del("code")
			q.Set("error", "access_denied")
			q.Set("error_description", "<script>")
			u.RawQuery = q.Encode()
			return own, u.String()
		}, 403, "Access was not allowed", false},
		{"an error of the identity", "identity", edited("error", "<script>"), 403, "did not let you log in", false},
		{"the state of the identity at the callback", "identity", func(_ *world, own *browser, real string) (*browser, string) {
			return own, strings.Replace(real, "/identity?", "/callback/up?", 1)
		}, 404, "no longer valid", false},
		{"the state of the callback at the identity", "callback/up", func(_ *world, own *browser, real string) (*browser, string) {
			return own, strings.Replace(real, "/callback/up?", "/identity?", 1)
		}, 404, "no longer valid", false},
		{"the callback of another upstream", "callback/up", func(_ *world, own *browser, real string) (*browser, string) {
			return own, strings.Replace(real, "/callback/up?", "/callback/other?", 1)
		}, 502, "another upstream", false},
		{"a replay", "callback/up", func(_ *world, own *browser, real string) (*browser, string) {
			own.open(real)
			return own, real
		}, 404, "no longer valid", true},
		{"a second response after a failed one", "callback/up", func(w *world, own *browser, real string) (*browser, string) {
			if status, _ := own.open(strings.Replace(real, "code=", "code=x", 1)); status != http.StatusBadGateway {
				w.t.Errorf("wrong code: got status %d", status)
			}
			return own, real
		}, 404, "no longer valid", false},
		{"a replay of the identity", "identity", func(_ *world, own *browser, real string) (*browser, string) {
			own.open(real)
			return own, real
		}, 404, "no longer valid", true},
		{"an open redirect", "callback/up", func(_ *world, own *browser, real string) (*browser, string) {
			return own, real + "&redirect_uri=https://evil.example&next=https://evil.example"
		}, 200, "You are logged in", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, mcp.LatestRevision)
			token := w.idp.Token("alice", testResource, nil)
			own := w.browser("alice", "alice.up")
			page := w.loginPage(token)
			b, address := tt.edit(w, own, own.followUntil(page+"/start", w.url+Path+tt.at))
			var visited []string
			b.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
				visited = append(visited, req.URL.Host)
				return nil
			}
			status, text := b.open(address)
			if status != tt.want || !strings.Contains(text, tt.text) || strings.Contains(text, "<script") {
				t.Errorf("got %d, %s, want %d with %q", status, text, tt.want, tt.text)
			}
			for _, host := range visited {
				if host == "evil.example" {
					t.Error("the browser was redirected to another host")
				}
			}
			if !tt.works {
				w.checkNoLogin(token)
			} else if got := newCaller(w, token, mcp.LatestRevision, nil).call("up__whoami"); got != "alice.up" {
				t.Errorf("upstream user: got %q, want alice.up", got)
			}
		})
	}
}

// edited returns an edit that replaces a parameter of the URL, or removes it.
func edited(name, value string) func(*world, *browser, string) (*browser, string) {
	return func(_ *world, own *browser, real string) (*browser, string) {
		u := parseURL(real)
		q := u.Query()
		q.Del(name)
		if value != "" {
			q.Set(name, value)
		}
		u.RawQuery = q.Encode()
		return own, u.String()
	}
}

// TestForgedIdentity checks that an ID token is accepted only if all of its claims are valid.
func TestForgedIdentity(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(map[string]any)
		want int
		text string
	}{
		{"another subject", func(c map[string]any) { c["sub"] = "bob" }, 403, "not yours"},
		{"no subject", func(c map[string]any) { delete(c, "sub") }, 502, "ID token"},
		{"another nonce", func(c map[string]any) { c["nonce"] = "x" }, 502, "nonce differs"},
		{"no nonce", func(c map[string]any) { delete(c, "nonce") }, 502, "nonce differs"},
		{"another audience", func(c map[string]any) { c["aud"] = "other" }, 502, "ID token"},
		{"another client", func(c map[string]any) { c["azp"] = "other" }, 502, "another client"},
		{"several audiences", func(c map[string]any) { c["aud"] = []string{"gateway-web", "other"} }, 502, "another client"},
		{"another issuer", func(c map[string]any) { c["iss"] = "https://evil.example" }, 502, "ID token"},
		{"expired", func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }, 502, "ID token"},
		{"valid, with azp and an audience in a list", func(c map[string]any) { c["aud"], c["azp"] = []string{"gateway-web"}, "gateway-web" }, 200, "You are logged in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, mcp.LatestRevision)
			w.idp.EditIDToken = tt.edit
			token := w.idp.Token("alice", testResource, nil)
			status, text := w.browser("alice", "alice.up").login(w.loginPage(token))
			if status != tt.want || !strings.Contains(text, tt.text) {
				t.Errorf("got %d, %s, want %d with %q", status, text, tt.want, tt.text)
			}
			if tt.want != 200 {
				w.checkNoLogin(token)
			}
		})
	}
}

// TestClaim checks that a claim other than the subject can identify users.
func TestClaim(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision, func(_ *world, o *Options, _ *UpstreamOptions) { o.Identity.Claim = "oid" })
	w.idp.EditIDToken = func(c map[string]any) { c["oid"], c["sub"] = "id of "+c["sub"].(string), "pairwise" }
	token := w.idp.Token("x1", testResource, map[string]any{"oid": "id of alice"})
	if got := newCaller(w, token, mcp.LatestRevision, w.browser("alice", "alice.up")).call("up__whoami"); got != "alice.up" {
		t.Errorf("upstream user: got %q, want alice.up", got)
	}
	other := w.dial(w.idp.Token("x1", testResource, map[string]any{"oid": "id of bob"}), mcp.LatestRevision, nil, nil)
	if _, err := client.CallTool[string](t.Context(), other, "up__whoami", nil); err == nil || !strings.Contains(err.Error(), w.url+Path) {
		t.Errorf("bob: got %v", err)
	}
	none := w.dial(w.idp.Token("x1", testResource, nil), mcp.LatestRevision, nil, nil)
	if _, err := none.CallTool(t.Context(), "up__whoami", nil); err == nil || !strings.Contains(err.Error(), `up: the token has no claim "oid"`) {
		t.Errorf("caller without the claim: got %v", err)
	}
}

// TestWithoutPages checks the error for clients that cannot open URLs.
//
// Spec: S172
func TestWithoutPages(t *testing.T) {
	for _, revision := range eras {
		w := newWorld(t, mcp.LatestRevision)
		c := w.dial(w.idp.Token("alice", testResource, nil), revision, nil, nil)
		if _, err := client.CallTool[string](t.Context(), c, "up__whoami", nil); err == nil || client.IsServerError(err) || !strings.Contains(err.Error(), "up needs the user to log in: open "+w.url+Path+"login/") {
			t.Errorf("%v: got %v", revision, err)
		}
		if _, err := c.GetPrompt(t.Context(), "up__hello", nil); !client.IsServerError(err) || !strings.Contains(err.Error(), "up needs the user to log in: open "+w.url+Path+"login/") {
			t.Errorf("%v: prompt: got %v", revision, err)
		}
	}
}

// TestPageHeaders checks the headers, cookies and methods that protect the pages.
func TestPageHeaders(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision)
	b := w.browser("alice", "alice.up")
	page := w.loginPage(w.idp.Token("alice", testResource, nil))
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, address := range []string{page, page + "/start", w.url + Path + "login/x", w.url + Path + "callback/up"} {
		resp, err := b.Get(address)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		resp.Body.Close()
		h := resp.Header
		if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || !strings.Contains(csp, "frame-ancestors 'none'") ||
			h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %v", address, h)
		}
		if strings.Contains(string(body), "<script") || strings.Contains(string(body), "alice") {
			t.Errorf("%s: got %s", address, body)
		}
	}
	resp, err := b.Get(page + "/start")
	must(t, err)
	resp.Body.Close()
	if c := resp.Cookies(); len(c) != 1 || !c[0].HttpOnly || c[0].SameSite != http.SameSiteLaxMode || c[0].Path != "/" || c[0].MaxAge != 600 || len(c[0].Value) < 26 {
		t.Errorf("cookies: got %v", c)
	}
	if n := len(w.idp.Authorized) + len(w.as.Authorized); n != 0 {
		t.Errorf("got %d logins after opening pages, want 0", n)
	}
	resp, err = http.Post(page, "text/plain", nil)
	must(t, err)
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", resp.StatusCode)
	}
	if l, err := New(&Options{URL: "https://gw.example.com", Identity: &config.LoginIdentity{Issuer: "https://idp.example.com", ID: "a"}}); err != nil || l.cookieName() != "__Host-mcpwire-login" {
		t.Errorf("cookie over https: got %q, %v", l.cookieName(), err)
	}
}

// TestLocal checks that only this machine can open the pages of a gateway without authorization.
func TestLocal(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision, func(_ *world, o *Options, _ *UpstreamOptions) { o.Identity = nil })
	if got := newCaller(w, "", mcp.LatestRevision, w.browser("", "me.up")).call("up__whoami"); got != "me.up" {
		t.Errorf("upstream user: got %q", got)
	}
	for _, tt := range []struct {
		name, from, host, header string
		want                     int
	}{
		{"local", "127.0.0.1:1", "127.0.0.1:8080", "", 404},
		{"local, IPv6", "[::1]:1", "localhost:8080", "", 404},
		{"another machine", "192.0.2.1:1", "127.0.0.1:8080", "", 403},
		{"another name", "127.0.0.1:1", "rebound.example:8080", "", 403},
		{"a reverse proxy", "127.0.0.1:1", "127.0.0.1:8080", "X-Forwarded-For", 403},
		{"a reverse proxy", "127.0.0.1:1", "127.0.0.1:8080", "Forwarded", 403},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://x"+Path+"login/x", nil)
		r.RemoteAddr, r.Host = tt.from, tt.host
		if tt.header != "" {
			r.Header.Set(tt.header, "192.0.2.1")
		}
		out := httptest.NewRecorder()
		w.logins.ServeHTTP(out, r)
		if out.Code != tt.want {
			t.Errorf("%s: status %d, want %d", tt.name, out.Code, tt.want)
		}
	}
	for _, o := range []Options{{URL: "https://gw.example.com"}, {URL: "http://gw.example.com"}, {URL: "http://127.0.0.1/x"}, {URL: "ftp://127.0.0.1"}} {
		if l, err := New(&o); err == nil {
			t.Errorf("%s without an identity: got %v", o.URL, l)
		}
	}
}

// TestMoreScopes checks that a caller logs in again for a tool that needs more scopes, and that the
// new token still has the former ones.
func TestMoreScopes(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision, func(_ *world, _ *Options, u *UpstreamOptions) { u.Scopes = []string{"read"} })
	c := newCaller(w, w.idp.Token("alice", testResource, nil), mcp.LatestRevision, w.browser("alice", "alice.up"))
	c.call("up__whoami")
	if got := c.call("up__delete"); got != "deleted" || c.pages != 2 {
		t.Errorf("delete: got %q with %d logins", got, c.pages)
	}
	w.as.Mu.Lock()
	defer w.as.Mu.Unlock()
	for token, g := range w.as.Tokens {
		if slices.Contains(g.Scopes, "admin") && !slices.Contains(g.Scopes, "read") {
			t.Errorf("scopes of token %s: got %q", token[:6], g.Scopes)
		}
	}
}

// TestEndpoints checks a login at an authorization server without metadata.
func TestEndpoints(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision, func(w *world, _ *Options, u *UpstreamOptions) {
		w.as.Metadata = nil
		u.Issuer, u.ID, u.ClientSecret = w.as.URL, "gateway", auth.NewSecret("secret")
		u.AuthorizationEndpoint, u.TokenEndpoint = w.as.URL+"/authorize", w.as.URL+"/token"
	})
	c := newCaller(w, w.idp.Token("alice", testResource, nil), mcp.LatestRevision, w.browser("alice", "alice.up"))
	if got := c.call("up__whoami"); got != "alice.up" {
		t.Errorf("upstream user: got %q, want alice.up", got)
	}
	w.as.Revoke("alice.up", false)
	if got := c.call("up__whoami"); got != "alice.up" || c.pages != 1 {
		t.Errorf("after a refresh: got upstream user %q, %d pages", got, c.pages)
	}
}

// newTestLogins returns logins without servers.
func newTestLogins(t *testing.T) (*Logins, *Upstream) {
	l, err := New(&Options{URL: "http://127.0.0.1:1", Identity: &config.LoginIdentity{Issuer: "https://idp.example.com", ID: "a"}, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(l.Close)
	u, err := l.Upstream(UpstreamOptions{Name: "up", Server: "https://up.example.com/mcp"})
	must(t, err)
	return l, u
}

func as(user string) context.Context {
	return auth.WithPrincipal(context.Background(), &auth.Principal{Issuer: "https://idp.example.com", Subject: user, ClientID: "app"})
}

// TestExpiry checks that a page is reused until it expires, and belongs to its caller only.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, u := newTestLogins(t)
		first, err := u.Page(as("alice"))
		must(t, err)
		time.Sleep(pageLife - time.Second)
		if again, err := u.Page(as("alice")); err != nil || again.ID != first.ID {
			t.Errorf("before the expiry: got %v, %v", again, err)
		}
		if u.Pending(as("alice"), first.ID) == nil || u.Pending(as("bob"), first.ID) != nil || u.Pending(as("alice"), "x") != nil {
			t.Error("got the pending page of another caller")
		}
		b := httptest.NewRecorder()
		l.ServeHTTP(b, httptest.NewRequest(http.MethodGet, first.URL, nil))
		if b.Code != http.StatusOK {
			t.Errorf("before the expiry: got status %d", b.Code)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b = httptest.NewRecorder()
		l.ServeHTTP(b, httptest.NewRequest(http.MethodGet, first.URL, nil))
		if b.Code != http.StatusNotFound || u.Pending(as("alice"), first.ID) != nil {
			t.Errorf("after the expiry: got status %d", b.Code)
		}
		if again, err := u.Page(as("alice")); err != nil || again.ID == first.ID {
			t.Errorf("after the expiry: got %v, %v", again, err)
		}
	})
}

// TestPageLimits checks the limits on the pages of one user and of all users.
func TestPageLimits(t *testing.T) {
	l, _ := newTestLogins(t)
	page := func(user string, i int) (*gateway.LoginPage, error) {
		u, err := l.Upstream(UpstreamOptions{Name: fmt.Sprintf("up%d", i), Server: "https://up.example.com/mcp"})
		must(t, err)
		return u.Page(as(user))
	}
	for i := range maxPagesPerUser {
		_, err := page("alice", i)
		must(t, err)
	}
	if _, err := page("alice", maxPagesPerUser); err == nil {
		t.Error("the pages of one user have no limit")
	}
	if _, err := page("bob", 0); err != nil {
		t.Error(err)
	}
	for i := 0; len(l.pages.byID) < maxPages; i++ {
		_, err := page(fmt.Sprint("user", i), 0)
		must(t, err)
	}
	if _, err := page("carol", 0); err == nil {
		t.Error("the pages of all users have no limit")
	}
	if n := len(l.accounts); n > maxAccounts || n != l.recent.Len() {
		t.Errorf("got %d accounts in memory and %d in the list", n, l.recent.Len())
	}
}

// TestStarts checks the limit on the attempts to log in with a page.
func TestStarts(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision)
	page := w.loginPage(w.idp.Token("alice", testResource, nil))
	jar, err := cookiejar.New(nil)
	must(t, err)
	b := &http.Client{Jar: jar, Transport: ownTransport(t), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for i := range maxStarts + 1 {
		resp, err := b.Get(page + "/start")
		must(t, err)
		resp.Body.Close()
		if want := resp.StatusCode == http.StatusTooManyRequests; want != (i == maxStarts) {
			t.Errorf("attempt %d: status %d", i+1, resp.StatusCode)
		}
	}
	if n := len(w.logins.states); n > maxStarts {
		t.Errorf("got %d states, want at most %d", n, maxStarts)
	}
}

// TestBusy checks that a step that is refused because too many browsers wait for authorization
// servers can be repeated.
func TestBusy(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision)
	b := w.browser("ann", "up-ann")
	// busy opens an address while the gateway is busy.
	busy := func(address string) {
		t.Helper()
		for range maxExchanges {
			w.logins.exchanges <- struct{}{}
		}
		if status, text := b.open(address); status != http.StatusServiceUnavailable || !strings.Contains(text, "Too many logins at once") {
			t.Errorf("got status %d: %s", status, text)
		}
		for range maxExchanges {
			<-w.logins.exchanges
		}
	}
	address := w.loginPage(w.idp.Token("ann", testResource, nil)) + "/start"
	for range maxStarts { // a refused request is no attempt
		busy(address)
	}
	for _, next := range []string{"identity", "callback/"} {
		address = b.followUntil(address, w.url+Path+next)
		busy(address)
	}
	if status, text := b.open(address); status != http.StatusOK || !strings.Contains(text, "You are logged in to up") {
		t.Errorf("got status %d: %s", status, text)
	}
}

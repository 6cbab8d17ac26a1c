package login

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/mcp"
	"mcpwire/oauth"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRedeem checks how the gateway authenticates at the token endpoint: with and without a secret,
// by what the issuer supports.
func TestRedeem(t *testing.T) {
	const secret = "s:/"
	for _, tt := range []struct {
		name, secret string
		methods      []string
		basic        string
		form         map[string]string
	}{
		{"no secret", "", nil, "", map[string]string{"client_id": "c d"}},
		{"no secret, basic supported", "", []string{"client_secret_basic"}, "", map[string]string{"client_id": "c d"}},
		{"no metadata", secret, nil, "c+d:s%3A%2F", nil},
		{"basic", secret, []string{"private_key_jwt", "client_secret_basic"}, "c+d:s%3A%2F", nil},
		{"post", secret, []string{"client_secret_post"}, "", map[string]string{"client_id": "c d", "client_secret": secret}},
		{"empty list", secret, []string{}, "", map[string]string{"client_id": "c d", "client_secret": secret}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var basic string
			form := map[string]string{}
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				if user, password, ok := r.BasicAuth(); ok {
					basic = user + ":" + password
				}
				must(t, r.ParseForm())
				for _, name := range []string{"client_id", "client_secret"} {
					if r.PostForm.Has(name) {
						form[name] = r.PostForm.Get(name)
					}
				}
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"id_token":"T"}`)), Request: r}, nil
			})
			i := newIdentity(&config.LoginIdentity{Issuer: "https://idp", ID: "c d"}, auth.NewSecret(tt.secret), rt, "https://gw/oauth/identity")
			token, err := i.redeem(t.Context(), &identification{meta: &oidcMetadata{Token: "https://idp/token", AuthMethods: tt.methods}, verifier: "v"}, "code")
			if token != "T" || err != nil {
				t.Errorf("got %q, %v", token, err)
			}
			if tt.form == nil {
				tt.form = map[string]string{}
			}
			if diff := cmp.Diff(tt.form, form); diff != "" || basic != tt.basic {
				t.Errorf("basic %q, want %q; form (-want +got):\n%s", basic, tt.basic, diff)
			}
		})
	}
}

// TestOtherStep checks that the cookie of one step of a login is not accepted in the other one at
// another gateway with the same keys.
func TestOtherStep(t *testing.T) {
	w := newWorld(t, mcp.LatestRevision, sharedKeys(t))
	other := w.replica(nil)
	w.logins.mu.Lock()
	account, err := w.logins.accountLocked(w.logins.upstreams["up"], userText(w.idp.URL, "ann"), nil)
	w.logins.mu.Unlock()
	must(t, err)
	p, err := w.logins.pageFor(account)
	must(t, err)
	for _, tt := range []struct {
		name           string
		identification *identification
		state          string
	}{
		{"login to the gateway", &identification{state: "s1", nonce: "n", verifier: "v"}, "s1"},
		{"login to the upstream", nil, "s2"},
	} {
		a := w.logins.newAttempt(w.logins.find(p.ID))
		a.identification, a.state = tt.identification, tt.state
		value, err := a.ticket()
		must(t, err)
		for _, identified := range []bool{false, true} {
			for _, state := range []string{tt.state, tt.state + "x", ""} {
				r := httptest.NewRequest(http.MethodGet, w.url+Path+"identity?"+url.Values{"state": {state}}.Encode(), nil)
				r.AddCookie(&http.Cookie{Name: other.cookieName(), Value: value})
				want := state == tt.state && identified == (tt.identification == nil)
				if got := other.restore(r, state, identified) != nil; got != want {
					t.Errorf("%s, identified %v, state %q: got %v, want %v", tt.name, identified, state, got, want)
				}
			}
		}
		// Neither is the cookie of a request of this gateway, nor that of a response that was used.
		r := httptest.NewRequest(http.MethodGet, w.url+Path+"identity", nil)
		r.AddCookie(&http.Cookie{Name: other.cookieName(), Value: value})
		if !w.logins.addState(tt.state, a) || w.logins.restore(r, tt.state, tt.identification == nil) != nil {
			t.Errorf("%s: a request of this gateway is restored", tt.name)
		}
		if _, err := w.logins.used.add(tt.state); err != nil || other.restore(r, tt.state, tt.identification == nil) != nil {
			t.Errorf("%s: a used response is restored, %v", tt.name, err)
		}
	}
}

// TestTransport checks that only requests of callers with a token that was not rejected are sent to
// the upstream.
func TestTransport(t *testing.T) {
	const server = "http://127.0.0.1:2/mcp"
	for _, tt := range []struct {
		name, token string
		identity    *config.LoginIdentity
		rejected    *rejection
		sent        int
	}{
		{"no token", "", nil, nil, 0},
		{"a token", "T", nil, nil, 1},
		{"rejected", "T", nil, &rejection{status: 401, token: hashOf("Bearer T")}, 0},
		{"another one rejected", "T", nil, &rejection{status: 401, token: hashOf("Bearer U")}, 1},
		{"needs more for some requests", "T", nil, &rejection{status: 403, token: hashOf("Bearer T")}, 1},
		{"unknown caller", "", &config.LoginIdentity{Issuer: "https://idp", ID: "c"}, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := New(&Options{URL: "http://127.0.0.1:1", Identity: tt.identity})
			must(t, err)
			defer l.Close()
			u, err := l.Upstream(UpstreamOptions{Name: "up", Server: server})
			must(t, err)
			if tt.identity == nil {
				a, err := l.accountOf(t.Context(), u)
				must(t, err)
				a.rejected = tt.rejected
				if tt.token != "" {
					tokens := &oauth.Tokens{Access: auth.NewSecret(tt.token), Type: "Bearer"}
					must(t, a.store.Save(t.Context(), oauth.RecordKey{Resource: server, Account: a.store.account}, &oauth.Record{Tokens: tokens}))
				}
			}
			sent := 0
			rt := u.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
				sent++
				return respond(r, http.StatusOK, http.Header{}, r.Header.Get("Authorization")), nil
			}))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server, strings.NewReader("{}"))
			must(t, err)
			resp, err := rt.RoundTrip(req)
			if sent != tt.sent || (err == nil) != (tt.sent > 0) {
				t.Errorf("sent %d requests, want %d; error %v", sent, tt.sent, err)
			}
			if _, ok := errors.AsType[*oauth.AuthorizationError](err); err != nil && !ok {
				t.Errorf("got the error %v", err)
			}
			if err == nil {
				resp.Body.Close()
			}
		})
	}
}

// TestLoggedInElsewhere checks that only a token that the upstream has not rejected counts as a
// login at another gateway.
func TestLoggedInElsewhere(t *testing.T) {
	const server = "http://127.0.0.1:2/mcp"
	for _, tt := range []struct {
		name     string
		stored   string
		rejected *rejection
		want     bool
	}{
		{"no token", "", nil, false},
		{"a token", "new", nil, true},
		{"another token", "new", &rejection{status: 403, token: hashOf("Bearer old")}, true},
		{"the rejected token", "old", &rejection{status: 403, token: hashOf("Bearer old")}, false},
		{"no token after a rejection", "", &rejection{status: 403, token: hashOf("Bearer old")}, false},
		{"an invalid token", "old", &rejection{status: 401, token: hashOf("Bearer old")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := New(&Options{URL: "http://127.0.0.1:1"})
			must(t, err)
			defer l.Close()
			u, err := l.Upstream(UpstreamOptions{Name: "up", Server: server})
			must(t, err)
			a, err := l.accountOf(t.Context(), u)
			must(t, err)
			if tt.stored != "" {
				tokens := &oauth.Tokens{Access: auth.NewSecret(tt.stored), Type: "Bearer"}
				must(t, a.store.Save(t.Context(), oauth.RecordKey{Resource: server, Account: a.store.account}, &oauth.Record{Tokens: tokens}))
			}
			a.rejected = tt.rejected
			if got := a.hasLoggedInElsewhere(t.Context()); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// An idleTransport counts calls of CloseIdleConnections.
type idleTransport struct {
	roundTripper
	closed int
}

func (t *idleTransport) CloseIdleConnections() { t.closed++ }

// TestCloseIdle checks that Close closes the idle connections of the transport.
func TestCloseIdle(t *testing.T) {
	tr := new(idleTransport)
	l, err := New(&Options{URL: "http://127.0.0.1:1", Transport: tr})
	must(t, err)
	l.Close()
	if tr.closed != 1 {
		t.Errorf("closed %d times", tr.closed)
	}
}

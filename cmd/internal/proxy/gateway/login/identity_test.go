package login

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

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
	// Neither is that of a link with too many attempts, nor any after Close.
	a := w.logins.newAttempt(w.logins.find(p.ID))
	a.state = "s3"
	value, err := a.ticket()
	must(t, err)
	r := httptest.NewRequest(http.MethodGet, w.url+Path+"identity", nil)
	r.AddCookie(&http.Cookie{Name: other.cookieName(), Value: value})
	for _, tt := range []struct {
		starts       int
		closed, want bool
	}{{0, false, true}, {maxStarts - 1, false, true}, {maxStarts, false, false}, {0, true, false}} {
		page := other.find(p.ID)
		other.mu.Lock()
		page.starts, other.closed = tt.starts, tt.closed
		other.mu.Unlock()
		if got := other.restore(r, "s3", true) != nil; got != tt.want {
			t.Errorf("after %d attempts, closed %t: got %t, want %t", tt.starts, tt.closed, got, tt.want)
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
		{"a token that was just removed", "removed", &rejection{status: 403, token: hashOf("Bearer old")}, false},
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
			if tt.stored == "removed" {
				a.setLocked(true, time.Now())
				must(t, a.store.Delete(t.Context(), oauth.RecordKey{Resource: server, Account: a.store.account}))
			}
			if got := a.hasLoggedInElsewhere(t.Context()); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestFinishedElsewhere checks that the gateway is notified of a login at another gateway if the user
// has been logged in before, and that the client with the former tokens is gone then.
func TestFinishedElsewhere(t *testing.T) {
	for _, tt := range []struct {
		name     string
		rejected *rejection
		want     int
	}{
		{"no rejection", nil, 0},
		{"an invalid token", &rejection{status: http.StatusUnauthorized}, 0}, // loggedIn has noticed
		{"a token with too few scopes", &rejection{status: http.StatusForbidden}, 1},
	} {
		l, u := newTestLogins(t)
		changes := 0
		l.Notify(nil, func(string, time.Time, func(context.Context) bool) { changes++ })
		a, err := l.accountOf(as("alice"), u)
		must(t, err)
		_, err = a.transport(roundTripper(nil))
		must(t, err)
		a.rejected, a.refused = tt.rejected, true
		a.finishedElsewhere()
		l.Close() // waits for the notification
		if changes != tt.want || (a.client == nil) != (tt.want > 0) || a.rejected != nil || a.refused {
			t.Errorf("%s: got %d changes, want %d; client %v, rejection %v, refused %v", tt.name, changes, tt.want, a.client, a.rejected, a.refused)
		}
	}
}

// TestIdentityResponses checks what of the issuer's redirects and responses of its token endpoint is
// malformed.
func TestIdentityResponses(t *testing.T) {
	const issuer = "https://idp.example.com"
	for _, tt := range []struct {
		name, query string
		// iss means that the issuer names itself in each response.
		iss    bool
		status int
		body   string
		want   string
	}{
		{"two codes", "code=a&code=b", false, 200, "", "the response is malformed"},
		{"two issuers", "code=a&iss=a&iss=b", false, 200, "", "the response is malformed"},
		{"a long code", "code=" + strings.Repeat("x", maxCode+1), false, 200, "", "the response is malformed"},
		{"a long error", "error=" + strings.Repeat("x", maxCode+1), false, 200, "", "the response is malformed"},
		{"another issuer", "code=a&iss=https://evil.example", false, 200, "", "the response is from another authorization server"},
		{"no issuer", "code=a", true, 200, "", "the response is from another authorization server"},
		{"an error", "error=access_denied", false, 200, "", errRefused.Error()},
		{"no code", "", false, 200, "", "the response has no code"},
		{"status", "code=a", false, 400, `{"id_token":"T"}`, "the token endpoint of the issuer answered with status 400 and no ID token"},
		{"not JSON", "code=a", false, 200, `{"id_token":"T"`, "the token endpoint of the issuer answered with status 200 and no ID token"},
		{"no token", "code=a", false, 200, `{"id_token":""}`, "the token endpoint of the issuer answered with status 200 and no ID token"},
		{"a long code that is short enough", "code=" + strings.Repeat("x", maxCode), false, 200, `{}`, "the token endpoint of the issuer answered with status 200 and no ID token"},
		{"a long response", "code=a", false, 200, strings.Repeat(" ", maxIdentityBytes+1), "token endpoint: the response is too long"},
		{"not a token", "code=a&iss=" + issuer, true, 201, `{"id_token":"T"}`, "the ID token: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := newIdentity(&config.LoginIdentity{Issuer: issuer, ID: "c"}, auth.Secret{}, roundTripper(func(r *http.Request) (*http.Response, error) {
				return respond(r, tt.status, http.Header{}, tt.body), nil
			}), "https://gw/oauth/identity")
			meta := &oidcMetadata{Issuer: issuer, Authorization: issuer + "/a", Token: issuer + "/t", JWKS: issuer + "/k", IssInResponse: tt.iss}
			must(t, i.check(meta))
			q, err := url.ParseQuery(tt.query)
			must(t, err)
			user, err := i.finish(t.Context(), &identification{meta: meta}, q)
			if err == nil || user != "" || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %q, %v, want the error %s", user, err, tt.want)
			}
		})
	}
}

// TestIssuerMetadata checks where the metadata of the issuer is requested, and what of it is
// invalid.
func TestIssuerMetadata(t *testing.T) {
	const oidc, oauth2 = "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"
	doc := func(edit string) string {
		m := map[string]string{"issuer": "https://idp.example.com/t", "authorization_endpoint": "https://idp.example.com/a", "token_endpoint": "https://idp.example.com/t", "jwks_uri": "https://idp.example.com/k"}
		if name, value, ok := strings.Cut(edit, "="); ok {
			m[name] = value
		}
		text, err := json.Marshal(m)
		must(t, err)
		return string(text)
	}
	const endpoint = "the metadata of the issuer has an endpoint that is missing or not https"
	for _, tt := range []struct {
		name string
		docs map[string]string
		want string
	}{
		{"OpenID Connect", map[string]string{"/t" + oidc: doc("")}, ""},
		{"OAuth", map[string]string{oauth2 + "/t": doc("")}, ""},
		{"both", map[string]string{"/t" + oidc: doc(""), oauth2 + "/t": "{"}, ""},
		{"the first is not JSON", map[string]string{"/t" + oidc: "<html>", oauth2 + "/t": doc("")}, ""},
		{"none", nil, "metadata of the issuer: status 404"},
		{"another issuer", map[string]string{"/t" + oidc: doc("issuer=https://evil.example"), oauth2 + "/t": doc("")}, "the metadata of the issuer is that of another one"},
		{"no endpoint", map[string]string{"/t" + oidc: doc("token_endpoint=")}, endpoint},
		{"a relative endpoint", map[string]string{"/t" + oidc: doc("token_endpoint=/t")}, endpoint},
		{"an endpoint with a user", map[string]string{"/t" + oidc: doc("token_endpoint=https://me@idp.example.com/t")}, endpoint},
		{"http", map[string]string{"/t" + oidc: doc("authorization_endpoint=http://idp.example.com/a")}, endpoint},
		{"http on this machine", map[string]string{"/t" + oidc: doc("authorization_endpoint=http://127.0.0.1:1/a")}, ""},
		{"another scheme on this machine", map[string]string{"/t" + oidc: doc("authorization_endpoint=ftp://127.0.0.1:1/a")}, endpoint},
		{"a malformed endpoint", map[string]string{"/t" + oidc: doc("jwks_uri=https://%zz/k")}, endpoint},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := newIdentity(&config.LoginIdentity{Issuer: "https://idp.example.com/t", ID: "c"}, auth.Secret{}, roundTripper(func(r *http.Request) (*http.Response, error) {
				text, ok := tt.docs[r.URL.Path]
				if !ok {
					return respond(r, http.StatusNotFound, http.Header{}, doc("")), nil
				}
				return respond(r, http.StatusOK, http.Header{}, text), nil
			}), "https://gw/oauth/identity")
			meta, err := i.metadata(t.Context())
			if got := text(err); got != tt.want || (meta != nil) != (tt.want == "") {
				t.Errorf("got %v, %q, want %q", meta, got, tt.want)
			}
		})
	}
	i := newIdentity(&config.LoginIdentity{Issuer: "https://idp.example.com", ID: "c"}, auth.Secret{}, roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }), "https://gw/oauth/identity")
	if meta, err := i.metadata(t.Context()); meta != nil || text(err) != "metadata of the issuer: no route" {
		t.Errorf("no route: got %v, %v", meta, err)
	}
}

// text returns the text of an error, or "".
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
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
	l, err = New(&Options{URL: "http://127.0.0.1:1", Transport: roundTripper(nil)})
	must(t, err)
	l.Close() // has nothing to close
}

// TestClientOptions checks which servers may be reached over http, and which client the gateway is
// to an authorization server.
func TestClientOptions(t *testing.T) {
	for _, tt := range []struct {
		name, gateway, server, issuer, id string
		local                             bool
		kind, document                    string
	}{
		{"public", "https://gw.example.com", "https://up.example.com/mcp", "", "", false, "web", "https://gw.example.com/oauth/client/up"},
		{"a client id", "https://gw.example.com", "https://up.example.com/mcp", "https://as.example.com", "c", false, "web", ""},
		{"an upstream on this machine", "https://gw.example.com", "http://127.0.0.1:1/mcp", "https://as.example.com", "c", true, "web", ""},
		{"an issuer on this machine", "https://gw.example.com", "https://up.example.com/mcp", "http://127.0.0.1:1", "c", true, "web", ""},
		{"a gateway on this machine", "http://127.0.0.1:2", "https://up.example.com/mcp", "", "", false, "native", ""},
	} {
		l, err := New(&Options{URL: tt.gateway, Identity: &config.LoginIdentity{Issuer: "https://idp.example.com", ID: "a"}})
		must(t, err)
		defer l.Close()
		u, err := l.Upstream(UpstreamOptions{Name: "up", Server: tt.server, UpstreamLogin: config.UpstreamLogin{Issuer: tt.issuer, ID: tt.id}})
		must(t, err)
		o := u.clientOptions(oauth.NewMemoryStore(), "")
		if o.AllowLoopbackHTTP != tt.local || o.Registration.ApplicationType != tt.kind || o.ClientIDMetadataURL != tt.document || (o.MetadataTransport != nil) != (tt.issuer != "") {
			t.Errorf("%s: got local %t, type %s, document %q, transport %v", tt.name, o.AllowLoopbackHTTP, o.Registration.ApplicationType, o.ClientIDMetadataURL, o.MetadataTransport)
		}
		// The document is there if the gateway is a client with this id.
		out := httptest.NewRecorder()
		l.ServeHTTP(out, httptest.NewRequest(http.MethodGet, tt.gateway+Path+"client/up", nil))
		if got := out.Code == http.StatusOK && strings.Contains(out.Body.String(), tt.document); got != (tt.document != "") {
			t.Errorf("%s: document: got status %d, %s", tt.name, out.Code, out.Body)
		}
	}
	l, _ := newTestLogins(t)
	out := httptest.NewRecorder()
	l.ServeHTTP(out, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:1"+Path+"client/other", nil))
	if out.Code != http.StatusNotFound {
		t.Errorf("the document of an unknown upstream: got status %d", out.Code)
	}
	for _, server := range []string{"/mcp", "https://%zz/mcp", ""} {
		if _, err := l.Upstream(UpstreamOptions{Name: "other", Server: server}); text(err) != "login: the URL of the server is malformed" {
			t.Errorf("server %q: got %v", server, err)
		}
	}
}

// TestEndpointsTransport checks which requests are answered from the configuration.
func TestEndpointsTransport(t *testing.T) {
	const resource, server = "/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server"
	e := &endpoints{&UpstreamOptions{Server: "https://up.example.com/mcp", UpstreamLogin: config.UpstreamLogin{Issuer: "https://as.example.com"}}, roundTripper(func(r *http.Request) (*http.Response, error) {
		return respond(r, http.StatusTeapot, http.Header{}, ""), nil
	})}
	for _, tt := range []struct {
		method, url string
		want        string // in the document; "" means that the request is sent
	}{
		{"GET", "https://up.example.com" + resource, `"resource":"https://up.example.com/mcp"`},
		{"GET", "HTTPS://UP.example.com:443" + resource + "/mcp", `"resource":"https://up.example.com/mcp"`},
		{"GET", "https://as.example.com" + server, `"issuer":"https://as.example.com"`},
		{"POST", "https://up.example.com" + resource, ""},
		{"GET", "https://up.example.com/mcp", ""},
		{"GET", "https://up.example.com" + server, ""},
		{"GET", "https://up.example.com:444" + resource, ""},
		{"GET", "https://other.example.com" + resource, ""},
		{"GET", "https://as.example.com" + resource, ""},
		{"GET", "https://as.example.com/token", ""},
		{"GET", "https://other.example.com" + server, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, nil)
		must(t, err)
		resp, err := e.RoundTrip(req)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		if got := resp.StatusCode == http.StatusOK; got != (tt.want != "") || !strings.Contains(string(body), tt.want) {
			t.Errorf("%s %s: got status %d, %s", tt.method, tt.url, resp.StatusCode, body)
		}
	}
}

// TestRefused checks that a refusal is reported once, and only to a known caller.
func TestRefused(t *testing.T) {
	l, u := newTestLogins(t)
	a, err := l.accountOf(as("alice"), u)
	must(t, err)
	if u.Refused(as("alice")) || u.Refused(t.Context()) {
		t.Error("a refusal is reported before there is one")
	}
	a.reject(&rejection{status: http.StatusUnauthorized})
	if u.Refused(as("alice")) {
		t.Error("an invalid token is reported as a refusal")
	}
	a.reject(&rejection{status: http.StatusForbidden})
	if u.Refused(as("bob")) || u.Refused(t.Context()) {
		t.Error("the refusal is reported to another caller")
	}
	if got := []bool{u.Refused(as("alice")), u.Refused(as("alice"))}; !got[0] || got[1] {
		t.Errorf("got %v, want one refusal", got)
	}
}

// TestObserver checks which rejections are noted, and that the URL of metadata is hidden if the
// configuration has the endpoints.
func TestObserver(t *testing.T) {
	const header = `Bearer error="invalid_token", scope="a", resource_metadata="https://evil.example/m"`
	for _, tt := range []struct {
		status    int
		endpoints bool
		want      string
	}{
		{http.StatusOK, false, ""},
		{http.StatusNotFound, true, ""},
		{http.StatusUnauthorized, false, header},
		{http.StatusForbidden, false, header},
		{http.StatusUnauthorized, true, `bearer error="invalid_token", scope="a"`},
		{http.StatusForbidden, true, `bearer error="invalid_token", scope="a"`},
	} {
		o := UpstreamOptions{}
		if tt.endpoints {
			o.TokenEndpoint = "https://as.example.com/token"
		}
		rt := &observer{&account{up: &Upstream{opts: o}}, roundTripper(func(r *http.Request) (*http.Response, error) {
			return respond(r, tt.status, http.Header{"Www-Authenticate": {header}}, ""), nil
		})}
		seen := new(rejection)
		req, err := http.NewRequestWithContext(context.WithValue(t.Context(), rejectionKey{}, seen), http.MethodPost, "https://up.example.com/mcp", nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer T")
		resp, err := rt.RoundTrip(req)
		must(t, err)
		if got := strings.Join(seen.header, "; "); got != tt.want || (seen.status == tt.status) != (tt.want != "") || resp.StatusCode != tt.status || tt.want != "" && seen.token != hashOf("Bearer T") {
			t.Errorf("status %d, endpoints %t: noted status %d, %s, want %s", tt.status, tt.endpoints, seen.status, got, tt.want)
		}
	}
}

// TestPublicURL checks which URLs a gateway may have.
func TestPublicURL(t *testing.T) {
	for address, want := range map[string]bool{
		"https://gw.example.com": true, "https://gw.example.com:444": true, "http://127.0.0.1:1": true, "http://localhost:1": true,
		"http://gw.example.com": false, "https://gw.example.com/": false, "https://gw.example.com/x": false, "https://gw.example.com?x": false, "https://me@gw.example.com": false,
		"https://": false, "gw.example.com": false, "https://%zz": false, "ftp://127.0.0.1": false, "": false,
	} {
		l, err := New(&Options{URL: address, Identity: &config.LoginIdentity{Issuer: "https://idp.example.com", ID: "a"}})
		if (err == nil) != want {
			t.Errorf("%s: got %v, want valid %t", address, err, want)
		}
		if err == nil {
			l.Close()
		}
	}
}

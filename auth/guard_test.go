package auth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
)

const rsMetadataURL = "https://api.example.com/.well-known/oauth-protected-resource/mcp"

// rsUsers maps tokens to results: "down" is unavailable, "expired-late" has expired without an
// error of the verifier, and tokens that begin with "user-" are valid and have the scopes that
// follow, separated by dots.
var rsUsers = verifierFunc(func(_ context.Context, token string) (*auth.Principal, error) {
	switch {
	case token == "down":
		return nil, auth.ErrUnavailable
	case token == "broken":
		return nil, errors.New("a bug")
	case token == "nothing":
		return nil, nil
	case token == "expired-late":
		return &auth.Principal{Subject: "x", Expires: time.Now().Add(-time.Second)}, nil
	case strings.HasPrefix(token, "user-"):
		return &auth.Principal{Issuer: rsIssuer, Subject: "alice", ClientID: "app", Scopes: strings.Split(token[5:], ".")}, nil
	}
	return nil, auth.ErrInvalidToken
})

// Spec: S201 S202 S203 S206 S207 S209 S212 S213 S217
func TestProtect(t *testing.T) {
	g := rsGuard(t, rsUsers, auth.GuardOptions{
		AuthorizationServers: []string{rsIssuer}, RequiredScopes: []string{"mcp", "read"}, Realm: "demo",
		FailureLimit: &auth.FailureLimit{PerAddress: -1, PerToken: -1},
	})
	const (
		plain   = `Bearer realm="demo", scope="mcp read", resource_metadata="` + rsMetadataURL + `"`
		invalid = `Bearer realm="demo", error="invalid_token", error_description="The token is not valid here.", ` +
			`scope="mcp read", resource_metadata="` + rsMetadataURL + `"`
		malformed = `Bearer realm="demo", error="invalid_request", error_description="The request is malformed.", ` +
			`scope="mcp read", resource_metadata="` + rsMetadataURL + `"`
		lack = `Bearer realm="demo", error="insufficient_scope", error_description="The operation needs more scopes.", ` +
			`scope="mcp read", resource_metadata="` + rsMetadataURL + `"`
	)
	const good = "user-read.mcp"
	for _, tt := range []struct {
		name, query string
		headers     []string
		status      int
		challenge   string
	}{
		{"good", "", []string{"Authorization", "Bearer " + good}, 200, ""},
		{"scheme by case", "", []string{"authorization", "bEARER  " + good}, 200, ""},
		{"other query", "?x=access_token", []string{"Authorization", "Bearer " + good}, 200, ""},
		{"nothing", "", nil, 401, plain},
		{"another scheme", "", []string{"Authorization", "Basic YTpi"}, 401, plain},
		{"empty", "", []string{"Authorization", ""}, 401, plain},
		{"unknown", "", []string{"Authorization", "Bearer x"}, 401, invalid},
		{"expired", "", []string{"Authorization", "Bearer expired-late"}, 401, invalid},
		{"no token", "", []string{"Authorization", "Bearer"}, 400, malformed},
		{"blank", "", []string{"Authorization", "Bearer  "}, 400, malformed},
		{"two tokens", "", []string{"Authorization", "Bearer " + good + " " + good}, 400, malformed},
		{"a list", "", []string{"Authorization", "Bearer " + good + ", Bearer x"}, 400, malformed},
		{"parameters", "", []string{"Authorization", `Bearer token="x"`}, 400, malformed},
		{"tab", "", []string{"Authorization", "Bearer \t" + good}, 400, malformed},
		{"not ASCII", "", []string{"Authorization", "Bearer \u00fc"}, 400, malformed},
		{"too long", "", []string{"Authorization", "Bearer " + strings.Repeat("x", 16<<10+1)}, 400, malformed},
		{"two headers", "", []string{"Authorization", "Bearer " + good, "Authorization", "Bearer " + good}, 400, malformed},
		{"two headers, one empty", "", []string{"Authorization", "", "Authorization", "Bearer " + good}, 400, malformed},
		{"in the query", "?access_token=" + good, nil, 400, malformed},
		{"in the query too", "?access_token=" + good, []string{"Authorization", "Bearer " + good}, 400, malformed},
		{"in the query, escaped", "?a&%61ccess_token=", []string{"Authorization", "Bearer " + good}, 400, malformed},
		{"in a broken query", "?a;access_token=x", []string{"Authorization", "Bearer " + good}, 400, malformed},
		{"scope", "", []string{"Authorization", "Bearer user-mcp"}, 403, lack},
		{"unavailable", "", []string{"Authorization", "Bearer down"}, 503, ""},
		{"a bug", "", []string{"Authorization", "Bearer broken"}, 503, ""},
		{"no principal", "", []string{"Authorization", "Bearer nothing"}, 503, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			called := false
			h := g.Protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				called = true
				if p := auth.PrincipalOf(r.Context()); p.ID() != rsIssuer+" alice app" {
					t.Errorf("principal %v", p)
				}
				// Spec: S214
				if r.Header.Get("Authorization") != "" || r.Header.Get("DPoP") != "" || r.Header.Get("X-Kept") == "" {
					t.Errorf("the handler sees %v", r.Header)
				}
			}))
			w := serve(h, "POST", "/mcp"+tt.query, append([]string{"X-Kept", "x", "DPoP", "x"}, tt.headers...)...)
			var want []string
			if tt.challenge != "" {
				want = []string{tt.challenge}
			}
			if diff := cmp.Diff(want, w.Header().Values("WWW-Authenticate")); w.Code != tt.status || diff != "" {
				t.Errorf("status %d, want %d; challenges (-want +got):\n%s", w.Code, tt.status, diff)
			}
			if called != (tt.status == 200) {
				t.Errorf("handler called: %v", called)
			}
			if (w.Header().Get("Retry-After") != "") != (tt.status == 503) {
				t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
			}
			if tt.status != 200 && (w.Header().Get("Cache-Control") != "no-store" || strings.Contains(w.Body.String(), good)) {
				t.Errorf("headers %v, body %s", w.Header(), w.Body)
			}
		})
	}
}

// TestProtectCopies shows that only the handler's copy of a request lacks the headers, and that the
// original keeps them.
func TestProtectCopies(t *testing.T) {
	g := rsGuard(t, rsUsers, auth.GuardOptions{})
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.Header.Set("Authorization", "Bearer user-a")
	g.Protect(hello).ServeHTTP(httptest.NewRecorder(), r)
	if r.Header.Get("Authorization") != "Bearer user-a" || auth.PrincipalOf(r.Context()) != nil {
		t.Errorf("the caller's request was changed: %v", r.Header)
	}
}

// TestProtectHasNoSessions shows that each request is checked on its own: a valid one earlier on
// the connection changes nothing.
//
// Spec: S83 S201
func TestProtectHasNoSessions(t *testing.T) {
	g := rsGuard(t, rsUsers, auth.GuardOptions{})
	srv := httptest.NewServer(g.Protect(hello))
	defer srv.Close()
	for i, want := range []int{401, 200, 401, 200, 401} {
		req, err := http.NewRequest("POST", srv.URL+"/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		if want == 200 {
			req.Header.Set("Authorization", "Bearer user-a")
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i, resp.StatusCode, want)
		}
	}
}

// TestGuardStatic shows that with fixed tokens alone there are no authorization servers, and no
// metadata.
func TestGuardStatic(t *testing.T) {
	v, err := auth.NewStatic(auth.StaticToken{Token: rsSecret, Subject: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := auth.NewGuard(&auth.GuardOptions{Verifier: v})
	if err != nil {
		t.Fatal(err)
	}
	h := g.Handler(hello)
	if w := serve(h, "POST", "/mcp", "Authorization", "Bearer "+rsSecret); w.Code != 200 || w.Body.String() != "static alice " {
		t.Errorf("good token: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/mcp", "/.well-known/oauth-protected-resource"} {
		w := serve(h, "GET", path)
		if diff := cmp.Diff([]string{"Bearer"}, w.Header().Values("WWW-Authenticate")); w.Code != 401 || diff != "" {
			t.Errorf("%s without a token: status %d, challenges (-want +got):\n%s", path, w.Code, diff)
		}
	}
	if w := serve(g.Metadata(), "GET", "/"); w.Code != 404 || g.MetadataPaths() != nil {
		t.Errorf("metadata: status %d at %q, want 404 and no path", w.Code, g.MetadataPaths())
	}
}

// Spec: S215
func TestGuardLog(t *testing.T) {
	var log strings.Builder
	g := rsGuard(t, rsUsers, auth.GuardOptions{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	h := g.Protect(hello)
	for _, token := range []string{"bad-token", "down", "user-good", "broken"} {
		serve(h, "POST", "/mcp", "Authorization", "Bearer "+token)
	}
	serve(h, "POST", "/mcp?access_token=bad-token")
	got := log.String()
	if strings.Contains(got, "bad-token") || strings.Contains(got, "user-good") ||
		strings.Count(got, "level=DEBUG") != 2 || strings.Count(got, "level=WARN") != 2 {
		t.Errorf("log:\n%s", got)
	}
}

func TestGuardOptions(t *testing.T) {
	good := auth.GuardOptions{Verifier: rsUsers, Resource: rsResource, AuthorizationServers: []string{rsIssuer}}
	for _, tt := range []struct {
		name   string
		change func(*auth.GuardOptions)
		ok     bool
	}{
		{"good", func(*auth.GuardOptions) {}, true},
		{"no verifier", func(o *auth.GuardOptions) { o.Verifier = nil }, false},
		{"no resource", func(o *auth.GuardOptions) { o.Resource = "" }, false},
		{"resource by http", func(o *auth.GuardOptions) { o.Resource = "http://api.example.com" }, false},
		{"server by http", func(o *auth.GuardOptions) { o.AuthorizationServers = []string{"http://login.example.com"} }, false},
		{"server with a query", func(o *auth.GuardOptions) { o.AuthorizationServers = []string{rsIssuer + "?a"} }, false},
		{"a scope with a space", func(o *auth.GuardOptions) { o.RequiredScopes = []string{"a b"} }, false},
		{"a scope with a quote", func(o *auth.GuardOptions) { o.ScopesSupported = []string{`a"`} }, false},
		{"a scope in the tree", func(o *auth.GuardOptions) { o.ScopeIncludes = map[string][]string{"a": {"\n"}} }, false},
		{"offline_access supported", func(o *auth.GuardOptions) { o.ScopesSupported = []string{"offline_access"} }, false},
		{"offline_access required", func(o *auth.GuardOptions) { o.RequiredScopes = []string{"offline_access"} }, false},
		{"realm", func(o *auth.GuardOptions) { o.Realm = "a\r\nb" }, false},
		{"realm with a quote", func(o *auth.GuardOptions) { o.Realm = `a"` }, false},
		{"metadata elsewhere", func(o *auth.GuardOptions) { o.MetadataURL = "https://api.example.com/prm" }, true},
		{"metadata URL without authorization servers", func(o *auth.GuardOptions) { o.MetadataURL, o.AuthorizationServers = "https://x.example/", nil }, false},
		{"DPoP", func(o *auth.GuardOptions) { o.DPoP = &auth.DPoPOptions{} }, true},
		{"DPoP without a resource", func(o *auth.GuardOptions) { o.DPoP, o.Resource, o.AuthorizationServers = &auth.DPoPOptions{}, "", nil }, false},
		{"DPoP, symmetric", func(o *auth.GuardOptions) { o.DPoP = &auth.DPoPOptions{Algorithms: []string{"HS256"}} }, false},
		{"DPoP, short key", func(o *auth.GuardOptions) { o.DPoP = &auth.DPoPOptions{Nonces: true, NonceKeys: [][]byte{{1}}} }, false},
		{"nonce key without nonces", func(o *auth.GuardOptions) { o.DPoP = &auth.DPoPOptions{NonceKeys: [][]byte{make([]byte, 32)}} }, false},
	} {
		o := good
		tt.change(&o)
		if _, err := auth.NewGuard(&o); (err == nil) != tt.ok {
			t.Errorf("%s: NewGuard: %v, want accepted %v", tt.name, err, tt.ok)
		}
	}
	if _, err := auth.NewGuard(nil); err == nil {
		t.Error("NewGuard(nil) succeeded")
	}
}

func TestCanonicalResource(t *testing.T) {
	for in, want := range map[string]string{
		"https://api.example.com":               "https://api.example.com",
		"https://api.example.com/":              "https://api.example.com",
		"HTTPS://API.Example.com:443/MCP/":      "https://api.example.com/MCP",
		"https://api.example.com:8443/a/b":      "https://api.example.com:8443/a/b",
		"https://[2001:DB8::1]/":                "https://[2001:db8::1]",
		"http://localhost:80/mcp":               "http://localhost/mcp",
		"http://127.0.0.1:8080":                 "http://127.0.0.1:8080",
		"http://api.example.com":                "",
		"https://":                              "",
		"https://:443":                          "",
		"api.example.com/mcp":                   "",
		"https://api.example.com/mcp#x":         "",
		"https://api.example.com/mcp#":          "",
		"https://api.example.com/mcp?":          "",
		"https://api.example.com/mcp?x=1":       "",
		"https://alice@api.example.com":         "",
		"https://api.example.com/a/../b":        "",
		"https://api.example.com/a/%2e%2e/b":    "",
		"ftp://api.example.com":                 "",
		"http://localhost.evil.example/":        "",
		"https://api.example.com/a%20b":         "https://api.example.com/a%20b",
		"https://api.example.com/a\" evil=\"b/": "https://api.example.com/a%22%20evil=%22b",
	} {
		if got, err := auth.CanonicalResource(in); got != want || (err == nil) != (want != "") {
			t.Errorf("CanonicalResource(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

// FuzzBearerHeader shows that only the one token in the header is accepted, and that every other
// header gets a client error.
func FuzzBearerHeader(f *testing.F) {
	const good = "user-a"
	for _, s := range []string{"Bearer user-a", "bearer   user-a", "Bearer user-a=", "Bearer user-a,Bearer b", "Bearer\tuser-a", "DPoP user-a", "", "Bearer"} {
		f.Add(s)
	}
	only := verifierFunc(func(_ context.Context, token string) (*auth.Principal, error) {
		if token != good {
			return nil, auth.ErrInvalidToken
		}
		return &auth.Principal{Subject: "alice"}, nil
	})
	h := rsGuard(f, only, auth.GuardOptions{FailureLimit: &auth.FailureLimit{PerAddress: -1, PerToken: -1}}).Protect(hello)
	f.Fuzz(func(t *testing.T, header string) {
		w := serve(h, "POST", "/mcp", "Authorization", header)
		scheme, rest, _ := strings.Cut(header, " ")
		want := strings.EqualFold(scheme, "bearer") && strings.TrimLeft(rest, " ") == good
		if (w.Code == 200) != want || w.Code != 200 && w.Code != 400 && w.Code != 401 {
			t.Errorf("%q: status %d, want accepted %v", header, w.Code, want)
		}
	})
}

func ExampleGuard() {
	verifier, err := auth.NewStatic(auth.StaticToken{Token: "f3a9c1d27e5b48069d1c", Subject: "ci"})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{
		Resource:             "https://api.example.com/mcp",
		Verifier:             verifier,
		AuthorizationServers: []string{"https://login.example.com"},
		ScopesSupported:      []string{"read"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello", auth.PrincipalOf(r.Context()).Subject)
	}))
	ask := func(path, authorization string) {
		r := httptest.NewRequest("GET", path, nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("WWW-Authenticate")+w.Body.String())
	}
	ask("/mcp", "")
	ask("/.well-known/oauth-protected-resource/mcp", "")
	ask("/mcp", "Bearer f3a9c1d27e5b48069d1c")
	// Output: 401 Bearer resource_metadata="https://api.example.com/.well-known/oauth-protected-resource/mcp"
	// 200 {"resource":"https://api.example.com/mcp","authorization_servers":["https://login.example.com"],"scopes_supported":["read"],"bearer_methods_supported":["header"]}
	// 200 hello ci
}

// Spec: S202 S209
func TestDeny(t *testing.T) {
	g := rsGuard(t, rsUsers, auth.GuardOptions{AuthorizationServers: []string{rsIssuer}, RequiredScopes: []string{"mcp"}})
	lack := &auth.ScopeError{Scopes: []string{"read", "mcp", "write"}, Missing: []string{"write"}}
	const metadata = `, resource_metadata="` + rsMetadataURL + `"`
	for _, tt := range []struct {
		name      string
		err       error
		status    int
		challenge string
	}{
		{"scope", lack, 403, `Bearer error="insufficient_scope", error_description="The operation needs more scopes.", scope="mcp read write"` + metadata},
		{"wrapped", fmt.Errorf("tool: %w", lack), 403,
			`Bearer error="insufficient_scope", error_description="The operation needs more scopes.", scope="mcp read write"` + metadata},
		{"hostile scope", &auth.ScopeError{Scopes: []string{"a\" evil=\"b", "c\r\nX: y", "ok"}}, 403,
			`Bearer error="insufficient_scope", error_description="The operation needs more scopes.", scope="mcp ok"` + metadata},
		{"token", auth.ErrInvalidToken, 401, `Bearer error="invalid_token", error_description="The token is not valid here.", scope="mcp"` + metadata},
		{"nobody", auth.ErrUnauthenticated, 401, `Bearer scope="mcp"` + metadata},
		{"unavailable", auth.ErrUnavailable, 503, ""},
		{"other", errors.New("secret reason"), 403, ""},
	} {
		h := g.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { auth.Deny(w, r, tt.err) }))
		w := serve(h, "POST", "/mcp", "Authorization", "Bearer user-mcp")
		if w.Code != tt.status || firstChallenge(w) != tt.challenge || len(w.Header().Values("WWW-Authenticate")) > 1 || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: status %d, body %s, challenges (-want +got):\n%s", tt.name, w.Code, w.Body, cmp.Diff(tt.challenge, firstChallenge(w)))
		}
	}
}

func TestDenyWithoutGuard(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("HEAD", "/mcp", nil)
	auth.Deny(w, r, &auth.ScopeError{Scopes: []string{"read"}})
	want := `Bearer error="insufficient_scope", error_description="The operation needs more scopes.", scope="read"`
	if w.Code != 403 || firstChallenge(w) != want || w.Body.Len() != 0 {
		t.Errorf("status %d, challenge %s, body %q, want 403, %s and none", w.Code, firstChallenge(w), w.Body, want)
	}
	w = httptest.NewRecorder()
	auth.Deny(w, r, auth.ErrUnauthenticated)
	if w.Code != 401 || firstChallenge(w) != "Bearer" {
		t.Errorf("status %d, challenge %s, want 401 and Bearer", w.Code, firstChallenge(w))
	}
}

// TestDenyDPoP shows that a request that had a valid DPoP proof is denied with a DPoP challenge.
func TestDenyDPoP(t *testing.T) {
	key := newRSKey(t, "")
	const token = "the-token-of-alice"
	g := rsGuard(t, bound(t, token, key), auth.GuardOptions{DPoP: &auth.DPoPOptions{Algorithms: []string{"ES256", "EdDSA"}}})
	h := g.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { auth.Deny(w, r, auth.Require(r.Context(), "read")) }))
	w := serve(h, "POST", "/mcp", "Authorization", "DPoP "+token, "DPoP", key.proof(t, "POST", rsResource, token, nil, nil))
	want := []string{`DPoP error="insufficient_scope", error_description="The operation needs more scopes.", scope="read", algs="ES256 EdDSA"`}
	if diff := cmp.Diff(want, w.Header().Values("WWW-Authenticate")); w.Code != 403 || diff != "" {
		t.Errorf("status %d, challenges (-want +got):\n%s", w.Code, diff)
	}
	want = []string{"Bearer", `DPoP algs="ES256 EdDSA"`}
	w = serve(h, "POST", "/mcp")
	if diff := cmp.Diff(want, w.Header().Values("WWW-Authenticate")); w.Code != 401 || diff != "" {
		t.Errorf("without a token: status %d, challenges (-want +got):\n%s", w.Code, diff)
	}
}

// Spec: S204 S205 S207
func TestMetadata(t *testing.T) {
	g := rsGuard(t, rsUsers, auth.GuardOptions{
		Resource: "https://API.example.com:443/mcp/", AuthorizationServers: []string{rsIssuer, "https://second.example/"},
		ScopesSupported: []string{"read", "read"}, Name: "Demo <1>", Documentation: "https://api.example.com/doc",
		DPoP: &auth.DPoPOptions{Required: true, Algorithms: []string{"ES256"}},
	})
	h := g.Handler(hello)
	want := `{"resource":"https://api.example.com/mcp","authorization_servers":["https://login.example.com/tenant","https://second.example/"],` +
		`"scopes_supported":["read"],"bearer_methods_supported":["header"],"resource_name":"Demo \u003c1\u003e",` +
		`"resource_documentation":"https://api.example.com/doc","dpop_signing_alg_values_supported":["ES256"],"dpop_bound_access_tokens_required":true}`
	if diff := cmp.Diff([]string{"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"}, g.MetadataPaths()); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	for _, path := range g.MetadataPaths() {
		w := serve(h, "GET", path, "Origin", "https://inspector.example")
		if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("GET %s: %d %v, body (-want +got):\n%s", path, w.Code, w.Header(), cmp.Diff(want, w.Body.String()))
		}
		if w := serve(h, "HEAD", path); w.Code != 200 || w.Body.Len() != 0 {
			t.Errorf("HEAD %s: %d %s", path, w.Code, w.Body)
		}
		if w := serve(h, "OPTIONS", path, "Access-Control-Request-Method", "GET"); w.Code != 204 || w.Header().Get("Access-Control-Allow-Methods") == "" {
			t.Errorf("OPTIONS %s: %d %v", path, w.Code, w.Header())
		}
		if w := serve(h, "POST", path); w.Code != 405 || w.Header().Get("Allow") == "" {
			t.Errorf("POST %s: %d %v", path, w.Code, w.Header())
		}
	}
	for _, path := range []string{"/mcp", "/", "/.well-known/oauth-protected-resource/", "/.well-known/oauth-protected-resource/mcp/", "/.well-known/oauth-protected-resource/other"} {
		if w := serve(h, "GET", path); w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("GET %s: %d %v, want 401 and no open access", path, w.Code, w.Header())
		}
	}
}

func TestMetadataPaths(t *testing.T) {
	for _, tt := range []struct {
		resource, elsewhere, url string
		paths                    []string
	}{
		{"https://api.example.com/", "", "https://api.example.com/.well-known/oauth-protected-resource", []string{"/.well-known/oauth-protected-resource"}},
		{"https://api.example.com/a/b", "", "https://api.example.com/.well-known/oauth-protected-resource/a/b",
			[]string{"/.well-known/oauth-protected-resource/a/b", "/.well-known/oauth-protected-resource"}},
		{"https://api.example.com/a", `https://api.example.com/x"y`, "https://api.example.com/x%22y",
			[]string{"/.well-known/oauth-protected-resource/a", "/.well-known/oauth-protected-resource"}},
	} {
		g := rsGuard(t, rsUsers, auth.GuardOptions{Resource: tt.resource, AuthorizationServers: []string{rsIssuer}, MetadataURL: tt.elsewhere})
		if diff := cmp.Diff(tt.paths, g.MetadataPaths()); diff != "" {
			t.Errorf("%s: paths (-want +got):\n%s", tt.resource, diff)
		}
		want := `Bearer resource_metadata="` + tt.url + `"`
		if got := serve(g.Protect(hello), "GET", "/").Header().Get("WWW-Authenticate"); got != want {
			t.Errorf("%s: challenge %s, want %s", tt.resource, got, want)
		}
		for _, path := range tt.paths {
			if w := serve(g.Handler(http.NotFoundHandler()), "GET", path); w.Code != 200 {
				t.Errorf("%s: GET %s: status %d", tt.resource, path, w.Code)
			}
		}
	}
}

// TestTokenOf checks that only a guard with KeepToken keeps the token, that printing the context's
// value does not show it, and that it is never in the headers.
func TestTokenOf(t *testing.T) {
	const token = "user-read"
	for _, keep := range []bool{false, true} {
		g := rsGuard(t, rsUsers, auth.GuardOptions{AuthorizationServers: []string{rsIssuer}, KeepToken: keep})
		var got auth.Secret
		h := g.Protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = auth.TokenOf(r.Context())
			if h := fmt.Sprintf("%v %+v", r.Header, got); strings.Contains(h, token) {
				t.Errorf("the token is in %q", h)
			}
		}))
		req := httptest.NewRequest(http.MethodPost, "https://api.example.com/mcp", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		h.ServeHTTP(httptest.NewRecorder(), req)
		want := ""
		if keep {
			want = token
		}
		if got.Reveal() != want {
			t.Errorf("KeepToken %v: got %q, want %q", keep, got.Reveal(), want)
		}
	}
	if !auth.TokenOf(t.Context()).IsZero() {
		t.Error("a context without a request has a token")
	}
}

package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/internal/test/issuer"
	"mcpwire/oauth"
)

const wellKnownOfServer = "GET https://mcp.example.com/.well-known/oauth-protected-resource/mcp"

// Spec: C117 C118 C120 C126 C127 C128 C130 C131 C132 C133 C134 C135 C136 C140
func TestClientFlow(t *testing.T) {
	w := newWorld(t)
	rt := w.transport(nil)
	mustPost(t, rt)
	mustPost(t, rt)
	want := []string{
		"POST https://mcp.example.com/mcp",
		wellKnownOfServer,
		"GET https://as.example.com/.well-known/oauth-authorization-server",
		"POST https://as.example.com/register",
		"GET https://as.example.com/authorize",
		"POST https://as.example.com/token",
		"POST https://mcp.example.com/mcp",
		"POST https://mcp.example.com/mcp",
	}
	if diff := cmp.Diff(want, w.requests()); diff != "" {
		t.Error(diff)
	}
	as := w.as[worldAS]
	for i, q := range []url.Values{as.Authorized[0], as.Asked[0]} {
		if q.Get("resource") != worldServer || q.Has("scope") {
			t.Errorf("request %d: resource %q, scope %q", i, q.Get("resource"), q.Get("scope"))
		}
	}
	for i, h := range w.sent[1:] {
		if !strings.HasPrefix(h.Get("Authorization"), "Bearer SECRET-access-") {
			t.Errorf("request %d has Authorization %q", i+1, h.Get("Authorization"))
		}
	}
}

// Spec: C119 C121 C122
func TestDiscoveryOrder(t *testing.T) {
	doc := func(w *world) map[string]any {
		return w.resource["/.well-known/oauth-protected-resource/mcp"].(map[string]any)
	}
	const as = "GET " + worldAS
	move := func(w *world, issuer, path string) {
		s := w.as[worldAS]
		d := s.Document()
		s.Metadata = map[string]map[string]any{path: d}
		d["issuer"] = issuer
		s.Iss = issuer
		doc(w)["authorization_servers"] = []string{issuer}
	}
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   []string
	}{
		{"no header", func(w *world) { w.challenge = "Bearer" }, []string{
			wellKnownOfServer, as + "/.well-known/oauth-authorization-server"}},
		{"no challenge", func(w *world) { w.challenge = "" }, []string{
			wellKnownOfServer, as + "/.well-known/oauth-authorization-server"}},
		{"at the root", func(w *world) {
			w.challenge = "Bearer"
			w.resource = map[string]any{"/.well-known/oauth-protected-resource": doc(w)}
		}, []string{
			wellKnownOfServer, "GET https://mcp.example.com/.well-known/oauth-protected-resource",
			as + "/.well-known/oauth-authorization-server"}},
		{"by the header", func(w *world) {
			w.challenge = `Basic realm="x", Bearer resource_metadata="https://MCP.example.com:443/here"`
			w.resource = map[string]any{"/here": doc(w)}
		}, []string{
			"GET https://MCP.example.com:443/here", as + "/.well-known/oauth-authorization-server"}},
		{"by the header, without quotes", func(w *world) {
			w.challenge = "Bearer resource_metadata=" + strings.TrimPrefix(wellKnownOfServer, "GET ")
		}, []string{
			wellKnownOfServer, as + "/.well-known/oauth-authorization-server"}},
		{"by the header, in single quotes", func(w *world) {
			w.challenge = "Bearer resource_metadata='" + strings.TrimPrefix(wellKnownOfServer, "GET ") + "'"
		}, []string{
			wellKnownOfServer, as + "/.well-known/oauth-authorization-server"}},
		{"by the header, without commas", func(w *world) {
			w.challenge = `Bearer error="invalid_token" resource_metadata="` + strings.TrimPrefix(wellKnownOfServer, "GET ") + `"`
		}, []string{
			wellKnownOfServer, as + "/.well-known/oauth-authorization-server"}},
		{"by the header, relative", func(w *world) {
			w.challenge = `Bearer resource_metadata="/.well-known/oauth-protected-resource/mcp"`
		}, []string{
			wellKnownOfServer, as + "/.well-known/oauth-authorization-server"}},
		{"HTML for every URL", func(w *world) {
			w.challenge = "Bearer"
			w.resource = map[string]any{"/.well-known/oauth-protected-resource": doc(w)}
			w.odd["https://mcp.example.com/.well-known/oauth-protected-resource/mcp"] = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				io.WriteString(w, "<p>Welcome</p>")
			}
		}, []string{
			wellKnownOfServer, "GET https://mcp.example.com/.well-known/oauth-protected-resource",
			as + "/.well-known/oauth-authorization-server"}},
		{"OpenID Connect", func(w *world) { move(w, worldAS, "/.well-known/openid-configuration") }, []string{
			wellKnownOfServer, as + "/.well-known/oauth-authorization-server", as + "/.well-known/openid-configuration"}},
		{"issuer with a path", func(w *world) { move(w, worldAS+"/t", "/.well-known/oauth-authorization-server/t") }, []string{
			wellKnownOfServer, as + "/.well-known/oauth-authorization-server/t"}},
		{"issuer with a path, inserted", func(w *world) { move(w, worldAS+"/t", "/.well-known/openid-configuration/t") }, []string{
			wellKnownOfServer, as + "/.well-known/oauth-authorization-server/t", as + "/.well-known/openid-configuration/t"}},
		{"issuer with a path, appended", func(w *world) { move(w, worldAS+"/t", "/t/.well-known/openid-configuration") }, []string{
			wellKnownOfServer, as + "/.well-known/oauth-authorization-server/t", as + "/.well-known/openid-configuration/t",
			as + "/t/.well-known/openid-configuration"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			mustPost(t, w.transport(nil))
			var got []string
			for _, line := range w.requests() {
				if strings.HasPrefix(line, "GET ") && !strings.HasSuffix(line, "/authorize") {
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Spec: C123
func TestLegacyServer(t *testing.T) {
	const origin = "https://mcp.example.com"
	for _, withMetadata := range []bool{true, false} {
		t.Run(fmt.Sprint(withMetadata), func(t *testing.T) {
			w := newWorld(t)
			s := w.newIssuer(origin)
			w.resource, w.challenge, w.accept = nil, "Bearer", s
			prefix := ""
			if withMetadata {
				prefix = "/oauth"
				d := s.Document()
				for _, e := range []string{"authorization", "token", "registration"} {
					d[e+"_endpoint"] = strings.Replace(d[e+"_endpoint"].(string), origin, origin+prefix, 1)
				}
				w.resource = map[string]any{"/.well-known/oauth-authorization-server": d}
			}
			for _, path := range []string{"/register", "/authorize", "/token"} {
				w.odd[origin+prefix+path] = func(out http.ResponseWriter, req *http.Request) {
					req.URL.Path = path
					s.ServeHTTP(out, req)
				}
			}
			mustPost(t, w.transport(nil))
			if got := s.Asked[0].Get("resource"); got != worldServer {
				t.Errorf("got resource %q", got)
			}
			w.revoke()
			_, err := post(t.Context(), w.transport(func(o *oauth.ClientOptions) { o.RequireMetadata = true }))
			if !errors.Is(err, oauth.ErrUntrusted) {
				t.Errorf("with NoLegacy: %v", err)
			}
		})
	}
}

// TestClientFaults has a row for each possible fault of a server. In each, no party may get a
// secret of another.
//
// Spec: C124 C125 C129 C146 C155 C156 C157 C161
func TestClientFaults(t *testing.T) {
	prm := func(change func(map[string]any)) func(*world) {
		return func(w *world) { change(w.resource["/.well-known/oauth-protected-resource/mcp"].(map[string]any)) }
	}
	meta := func(name string, value any) func(*world) {
		return func(w *world) { w.as[worldAS].Document()[name] = value }
	}
	answer := func(change func(*issuer.Issuer)) func(*world) {
		return func(w *world) { change(w.as[worldAS]) }
	}
	raw := func(address string, status int, body string) func(*world) {
		return func(w *world) {
			w.odd[address] = func(out http.ResponseWriter, _ *http.Request) {
				out.Header().Set("Location", "https://evil.example.com/")
				out.WriteHeader(status)
				io.WriteString(out, body)
			}
		}
	}
	const wellKnown = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
	const asWellKnown = worldAS + "/.well-known/oauth-authorization-server"
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   error
		// last is the suffix of the last expected request.
		last string
	}{
		{"metadata on another host", func(w *world) {
			w.challenge = `Bearer resource_metadata="https://evil.example.com/.well-known/oauth-protected-resource"`
		}, oauth.ErrUntrusted, worldServer},
		{"metadata on another host, without a scheme", func(w *world) {
			w.challenge = `Bearer resource_metadata=//evil.example.com/x`
		}, oauth.ErrUntrusted, worldServer},
		{"metadata by http", func(w *world) { w.challenge = `Bearer resource_metadata="http://mcp.example.com/x"` }, oauth.ErrUntrusted, worldServer},
		{"metadata missing", func(w *world) { w.challenge = `Bearer resource_metadata="https://mcp.example.com/x"` }, oauth.ErrUntrusted, "/x"},
		{"metadata of another server", prm(func(m map[string]any) { m["resource"] = "https://evil.example.com/mcp" }), oauth.ErrUntrusted, wellKnown},
		{"metadata of a sibling", prm(func(m map[string]any) { m["resource"] = worldServer + "2" }), oauth.ErrUntrusted, wellKnown},
		{"metadata of something within", prm(func(m map[string]any) { m["resource"] = worldServer + "/x" }), oauth.ErrUntrusted, wellKnown},
		{"metadata of something with dots", prm(func(m map[string]any) { m["resource"] = worldServer + "/.." }), oauth.ErrUntrusted, wellKnown},
		{"metadata with a fragment", prm(func(m map[string]any) { m["resource"] = worldServer + "#x" }), oauth.ErrUntrusted, wellKnown},
		{"http metadata for https", prm(func(m map[string]any) { m["resource"] = "http://mcp.example.com/mcp" }), oauth.ErrUntrusted, wellKnown},
		{"metadata without resource", prm(func(m map[string]any) { delete(m, "resource") }), oauth.ErrUntrusted, wellKnown},
		{"no authorization server", prm(func(m map[string]any) { delete(m, "authorization_servers") }), oauth.ErrUntrusted, wellKnown},
		{"authorization server by http", prm(func(m map[string]any) { m["authorization_servers"] = []string{"http://as.example.com"} }), oauth.ErrUntrusted, wellKnown},
		{"authorization server with a query", prm(func(m map[string]any) { m["authorization_servers"] = []string{worldAS + "?x"} }), oauth.ErrUntrusted, wellKnown},
		{"authorization server with a password", prm(func(m map[string]any) { m["authorization_servers"] = []string{"https://a:b@as.example.com"} }), oauth.ErrUntrusted, wellKnown},
		{"metadata that is no JSON", raw(wellKnown, 200, "hello"), oauth.ErrUntrusted, wellKnown},
		{"metadata that redirects", raw(wellKnown, 302, ""), oauth.ErrUntrusted, wellKnown},
		{"metadata that is huge", raw(wellKnown, 200, "{"+strings.Repeat(" ", 300<<10)+"}"), oauth.ErrUntrusted, wellKnown},
		{"server down", raw(wellKnown, 503, ""), oauth.ErrUnreachable, wellKnown},

		{"metadata of another issuer", meta("issuer", "https://attacker.example.com"), oauth.ErrUntrusted, asWellKnown},
		{"metadata of the issuer with a slash", meta("issuer", worldAS+"/"), oauth.ErrUntrusted, asWellKnown},
		{"no authorization server's metadata", answer(func(s *issuer.Issuer) { s.Metadata = nil }), oauth.ErrUntrusted, "/.well-known/openid-configuration"},
		{"authorization server redirects", raw(asWellKnown, 307, ""), oauth.ErrUntrusted, asWellKnown},
		{"authorization server down", raw(asWellKnown, 500, ""), oauth.ErrUnreachable, asWellKnown},
		{"no PKCE", meta("code_challenge_methods_supported", nil), oauth.ErrUntrusted, asWellKnown},
		{"plain PKCE", meta("code_challenge_methods_supported", []string{"plain"}), oauth.ErrUntrusted, asWellKnown},
		{"token endpoint by http", meta("token_endpoint", "http://as.example.com/token"), oauth.ErrUntrusted, asWellKnown},
		{"no token endpoint", meta("token_endpoint", nil), oauth.ErrUntrusted, asWellKnown},
		{"authorization endpoint is a script", meta("authorization_endpoint", "javascript:alert(1)"), oauth.ErrUntrusted, asWellKnown},
		{"authorization endpoint is a file", meta("authorization_endpoint", "file:///etc/passwd"), oauth.ErrUntrusted, asWellKnown},
		{"authorization endpoint is an option", meta("authorization_endpoint", "--help"), oauth.ErrUntrusted, asWellKnown},
		{"no authorization endpoint", meta("authorization_endpoint", nil), oauth.ErrUntrusted, asWellKnown},
		{"no registration", meta("registration_endpoint", nil), oauth.ErrUnregistered, asWellKnown},
		{"registration rejected", raw(worldAS+"/register", 400, `{"error":"invalid_client_metadata"}`), oauth.ErrRefused, "/register"},
		{"registration without an id", raw(worldAS+"/register", 201, `{}`), oauth.ErrUntrusted, "/register"},
		{"registration redirects", raw(worldAS+"/register", 308, ""), oauth.ErrUntrusted, "/register"},
		{"registration wants mTLS", raw(worldAS+"/register", 201, `{"client_id":"x","token_endpoint_auth_method":"tls_client_auth"}`), oauth.ErrRefused, "/register"},

		{"iss missing", answer(func(s *issuer.Issuer) { s.Iss = "-" }), oauth.ErrUntrusted, "/authorize"},
		{"iss wrong", answer(func(s *issuer.Issuer) { s.Iss = "https://evil.example.com" }), oauth.ErrUntrusted, "/authorize"},
		{"iss with a slash", answer(func(s *issuer.Issuer) { s.Iss += "/" }), oauth.ErrUntrusted, "/authorize"},
		{"iss in capitals", answer(func(s *issuer.Issuer) { s.Iss = "HTTPS://as.example.com" }), oauth.ErrUntrusted, "/authorize"},
		{"iss wrong, not advertised", answer(func(s *issuer.Issuer) {
			delete(s.Document(), "authorization_response_iss_parameter_supported")
			s.Iss = "https://evil.example.com"
		}), oauth.ErrUntrusted, "/authorize"},
		{"denied", answer(func(s *issuer.Issuer) { s.Deny = "access_denied" }), oauth.ErrDenied, "/authorize"},
		{"denied by another issuer", answer(func(s *issuer.Issuer) { s.Deny, s.Iss = "access_denied", "https://evil.example.com" }), oauth.ErrUntrusted, "/authorize"},
		{"invalid scope", answer(func(s *issuer.Issuer) { s.Deny = "invalid_scope" }), oauth.ErrRefused, "/authorize"},
		{"login required", answer(func(s *issuer.Issuer) { s.Deny = "login_required" }), oauth.ErrConsentRequired, "/authorize"},

		{"code rejected", answer(func(s *issuer.Issuer) { s.TokenError = func(url.Values) string { return "invalid_grant" } }), oauth.ErrRefused, "/token"},
		{"code rejected with status 200", raw(worldAS+"/token", 200, `{"error":"bad_verification_code"}`), oauth.ErrRefused, "/token"},
		{"token endpoint redirects", raw(worldAS+"/token", 307, ""), oauth.ErrUntrusted, "/token"},
		{"token endpoint down", raw(worldAS+"/token", 502, ""), oauth.ErrUnreachable, "/token"},
		{"token with a line break", answer(func(s *issuer.Issuer) { s.EditToken = func(m map[string]any) { m["access_token"] = "a\r\nX: y" } }), oauth.ErrUntrusted, "/token"},
		{"token without a type", answer(func(s *issuer.Issuer) { s.EditToken = func(m map[string]any) { delete(m, "token_type") } }), oauth.ErrUntrusted, "/token"},
		{"token bound without a request", answer(func(s *issuer.Issuer) { s.EditToken = func(m map[string]any) { m["token_type"] = "DPoP" } }), oauth.ErrUntrusted, "/token"},
		{"huge token", answer(func(s *issuer.Issuer) {
			s.EditToken = func(m map[string]any) { m["access_token"] = strings.Repeat("a", 16<<10+1) }
		}), oauth.ErrUntrusted, "/token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			var logs strings.Builder
			_, err := post(t.Context(), w.transport(func(o *oauth.ClientOptions) {
				o.Logger = slog.New(slog.NewTextHandler(&logs, nil))
			}))
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if _, ok := errors.AsType[*oauth.AuthorizationError](err); !ok {
				t.Errorf("got a %T", err)
			}
			lines := w.requests()
			if last := lines[len(lines)-1]; !strings.HasSuffix(last, tt.last) {
				t.Errorf("last request is %s", last)
			}
			for _, line := range lines {
				if strings.Contains(line, "evil") || strings.Contains(line, "attacker") {
					t.Errorf("request %s", line)
				}
			}
			if text := fmt.Sprintf("%v %+v %#v %s", err, err, err, &logs); strings.Contains(text, "SECRET") || strings.ContainsAny(fmt.Sprint(err), "\r\n") {
				t.Errorf("a secret, or a line break, in %s", text)
			}
		})
	}
}

// TestStatuses shows that any status 2xx means success.
func TestStatuses(t *testing.T) {
	for _, path := range []string{"/token", "/register", "/.well-known/oauth-authorization-server"} {
		for _, status := range []int{200, 201, 202, 203} {
			w := newWorld(t)
			w.odd[worldAS+path] = func(rw http.ResponseWriter, r *http.Request) {
				rec := httptest.NewRecorder()
				w.as[worldAS].ServeHTTP(rec, r)
				maps.Copy(rw.Header(), rec.Header())
				rw.WriteHeader(status)
				rw.Write(rec.Body.Bytes())
			}
			mustPost(t, w.transport(nil))
		}
	}
}

// TestErrorWithStatus200 shows the code and the description of an error that came with status 200.
func TestErrorWithStatus200(t *testing.T) {
	w := newWorld(t)
	w.odd[worldAS+"/token"] = func(rw http.ResponseWriter, _ *http.Request) {
		issuer.Respond(rw, http.StatusOK, map[string]any{"error": "bad_verification_code", "error_description": "The code is wrong"})
	}
	_, err := post(t.Context(), w.transport(nil))
	for _, want := range []string{"bad_verification_code", "The code is wrong"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

// Spec: C137
func TestTokenStaysAtHome(t *testing.T) {
	w := newWorld(t)
	rt := w.transport(nil)
	mustPost(t, rt)
	for _, tt := range []struct {
		url, own, want string
	}{
		{"https://evil.example.com/mcp", "", ""},
		{"http://mcp.example.com/mcp", "", ""},
		{"https://mcp.example.com:8443/mcp", "", ""},
		{"https://mcp.example.com.evil.example.com/mcp", "", ""},
		{worldServer, "Basic eDp5", "Basic eDp5"},
	} {
		var got string
		w.odd[tt.url] = func(_ http.ResponseWriter, req *http.Request) { got = req.Header.Get("Authorization") }
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.own != "" {
			req.Header.Set("Authorization", tt.own)
		}
		if _, err := rt.RoundTrip(req); err != nil {
			t.Errorf("%s: %v", tt.url, err)
		}
		if got != tt.want {
			t.Errorf("%s got Authorization %q, want %q", tt.url, got, tt.want)
		}
	}
}

func TestRequestIsNotChanged(t *testing.T) {
	w := newWorld(t)
	rt := w.transport(nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, worldServer, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if len(req.Header) != 0 || resp.Request != req {
		t.Errorf("headers %v; response has the request with the token: %v", req.Header, resp.Request != req)
	}
}

func TestNotReplayable(t *testing.T) {
	w := newWorld(t)
	rt := w.transport(nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, worldServer, io.MultiReader(strings.NewReader("hello")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.RoundTrip(req); !errors.Is(err, oauth.ErrNotReplayable) {
		t.Fatalf("got %v", err)
	}
	// The token is there now.
	mustPost(t, rt)
	if got := w.count("/token"); got != 1 {
		t.Errorf("got %d token requests", got)
	}
}

// TestUnauthorizedAlways shows that a server that accepts no token gets one more attempt for each
// request, and that the caller gets its response.
func TestUnauthorizedAlways(t *testing.T) {
	w := newWorld(t)
	w.accept = w.newIssuer("https://nobody.example.com")
	resp, err := post(t.Context(), w.transport(nil))
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusUnauthorized || w.count("/token") != 1 || w.count(worldServer) != 2 {
		t.Errorf("got status %d after %v", resp.StatusCode, w.requests())
	}
}

// TestStreaming checks that a body is forwarded while it is sent.
func TestStreaming(t *testing.T) {
	more := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer tok" {
			t.Errorf("got %q", r.Header.Get("Authorization"))
		}
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-more
		io.WriteString(w, "data: 2\n\n")
	}))
	defer server.Close()
	c, err := oauth.NewClient(&oauth.ClientOptions{
		AllowLoopbackHTTP: true,
		Grant:             oauth.Preissued{Token: func(context.Context) (auth.Secret, error) { return auth.NewSecret("tok"), nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := c.Transport(server.URL, server.Client().Transport)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: rt}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	event := make([]byte, len("data: 1\n\n"))
	if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != "data: 1\n\n" {
		t.Errorf("got %q, %v", event, err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "data: 2\n\n" {
		t.Errorf("got %q, %v", rest, err)
	}
}

func TestNewClientErrors(t *testing.T) {
	secret := auth.NewSecret("SECRET")
	for _, tt := range []struct {
		name string
		o    oauth.ClientOptions
	}{
		{"id without issuer", oauth.ClientOptions{ClientID: "x"}},
		{"secret without id", oauth.ClientOptions{ClientSecret: secret}},
		{"credentials without secret", oauth.ClientOptions{Grant: oauth.ClientCredentials{}, ClientID: "x", ClientIssuer: worldAS}},
		{"JWT without source", oauth.ClientOptions{Grant: oauth.JWTBearer{}, ClientIssuer: worldAS}},
		{"JWT without issuer", oauth.ClientOptions{Grant: oauth.JWTBearer{Assertion: func(context.Context, oauth.AssertionRequest) (auth.Secret, error) { return secret, nil }}}},
		{"enterprise without endpoint", oauth.ClientOptions{Grant: oauth.EnterpriseManaged{}}},
		{"preissued without source", oauth.ClientOptions{Grant: oauth.Preissued{}}},
		{"metadata URL by http", oauth.ClientOptions{ClientIDMetadataURL: "http://example.com/client.json"}},
		{"metadata URL without path", oauth.ClientOptions{ClientIDMetadataURL: "https://example.com/"}},
		{"metadata URL with dots", oauth.ClientOptions{ClientIDMetadataURL: "https://example.com/a/%2e%2e/b"}},
		{"metadata URL with a fragment", oauth.ClientOptions{ClientIDMetadataURL: "https://example.com/a#b"}},
		{"redirect URI by http", oauth.ClientOptions{Registration: oauth.Registration{RedirectURIs: []string{"http://example.com/cb"}}}},
		{"redirect URI of an app", oauth.ClientOptions{Registration: oauth.Registration{RedirectURIs: []string{"com.example:/cb"}}}},
		{"application type", oauth.ClientOptions{Registration: oauth.Registration{ApplicationType: "other"}}},
		{"method", oauth.ClientOptions{ClientID: "x", ClientIssuer: worldAS, TokenAuthMethod: "magic"}},
		{"key without id", oauth.ClientOptions{ClientKey: testKey(t)}},
		{"key and secret", oauth.ClientOptions{ClientID: "x", ClientIssuer: worldAS, ClientKey: testKey(t), ClientSecret: secret}},
		{"key of another kind", oauth.ClientOptions{ClientID: "x", ClientIssuer: worldAS, ClientKey: &oauth.ClientKey{Key: testKey(t).Key, Algorithm: "RS256"}}},
	} {
		if _, err := oauth.NewClient(&tt.o); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
	c, err := oauth.NewClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{"", "mcp", "http://example.com/mcp", "http://localhost/mcp", "https://a:b@example.com/", "https://example.com/#x", "https://example.com/a/../b", "ftp://example.com"} {
		if _, err := c.Transport(u, nil); err == nil {
			t.Errorf("Transport(%q) is no error", u)
		}
	}
}

func ExampleNewClient() {
	client, err := oauth.NewClient(&oauth.ClientOptions{
		Grant: oauth.AuthorizationCode{Prompter: oauth.LoopbackPrompter{
			Show: func(u string) { fmt.Fprintln(os.Stderr, "Open this page to log in:", u) },
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	transport, err := client.Transport("https://mcp.example.com/mcp", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c := &http.Client{Transport: transport}
	_ = c // Its requests to mcp.example.com are authorized.

	_, err = client.Transport("http://mcp.example.com/mcp", nil)
	fmt.Println(err)
	// Output: oauth: not to be trusted: http://mcp.example.com is not https
}

// TestErrorText checks that the text of an error has no parts of the server's URL that may be
// secret.
func TestErrorText(t *testing.T) {
	for server, want := range map[string]string{
		"https://mcp.example.com:8443/a%2Fb?key=SECRET": "authorization for https://mcp.example.com:8443/a%2Fb: token: access was denied",
		"https://user:SECRET@mcp.example.com/#SECRET":   "authorization for https://mcp.example.com/: token: access was denied",
		"https://mcp.example.com:SECRET/":               "authorization for a malformed URL: token: access was denied",
	} {
		if got := (&oauth.AuthorizationError{Op: "token", Server: server, Err: oauth.ErrDenied}).Error(); got != want {
			t.Errorf("%s: got %q, want %q", server, got, want)
		}
	}
}

package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"mcpwire/cmd/internal/exit"
	"mcpwire/internal/test/issuer"
	"mcpwire/server"
	"mcpwire/streamable"
)

// runDoctorOn runs the command on a handler, and returns the exit status and what it printed. URL
// in args is that of the server.
func runDoctorOn(t *testing.T, srv *httptest.Server, args ...string) (int, string) {
	t.Helper()
	t.Setenv("MCPWIRE_HOME", t.TempDir())
	line := []string{"doctor"}
	for _, a := range args {
		line = append(line, strings.ReplaceAll(a, "URL", srv.URL))
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var out, errs bytes.Buffer
	status := Run(t.Context(), line, null, &out, &errs)
	if errs.Len() > 0 {
		t.Errorf("standard error: %s", errs.String())
	}
	return status, strings.ReplaceAll(out.String(), srv.URL, "URL")
}

// constant returns a handler that gives the same response to every request.
func constant(status int, header map[string]string, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestDoctorWeb(t *testing.T) {
	good := streamable.MustHandler(server.MustNew("fixture", "1", nil), nil)
	t.Cleanup(func() { _ = good.Shutdown(t.Context()) })
	for _, tt := range []struct {
		name    string
		handler http.Handler
		tls     bool
		args    []string
		status  int
		want    []string // in what is printed
	}{
		{"well", good, false, []string{"URL"}, exit.OK, []string{
			"✓ connected to 127.0.0.1", "POST server/discover: negotiated, HTTP 200", "with a session", "accepted: URL", "✓ pages of other sites are rejected: HTTP 403", "✓ no findings", "Result: healthy",
		}},
		{"any origin", dropOrigin(good), false, []string{"--quick", "URL"}, exit.Findings, []string{"✗ pages of any site are accepted", "Result: problems"}},
		{"elsewhere", mux("/mcp", good), false, []string{"URL/api"}, exit.Unreachable, []string{"HTTP 404: no MCP endpoint at /api", "→ an endpoint is at URL/mcp", "next: mcpwire doctor URL/mcp"}},
		{"nowhere", http.NotFoundHandler(), false, []string{"URL/api"}, exit.Unreachable, []string{"│ 404 page not found", "tried /mcp /sse"}},
		{"HTTP+SSE", good.SSE("/messages"), false, []string{"URL/sse"}, exit.OK, []string{"an endpoint of HTTP+SSE", "initialize: negotiated", "next: mcpwire info --transport sse URL/sse"}},
		{"page", constant(200, map[string]string{"Content-Type": "text/html; charset=utf-8"}, "<!doctype html>\x1b[31m"), false, []string{"URL/"}, exit.Unreachable, []string{"HTTP 200 with a web page", `│ <!doctype html>\x1b[31m`}},
		{"moved", constant(301, map[string]string{"Location": "/new"}, ""), false, []string{"URL/mcp"}, exit.Unreachable, []string{"HTTP 301: the server is at URL/new", "do not follow redirects of a POST", "next: mcpwire doctor URL/new"}},
		{"login page", constant(302, map[string]string{"Location": "/login?next=/mcp"}, ""), false, []string{"URL/mcp"}, exit.Unreachable, []string{"a login page for people: /login?next=/mcp"}},
		{"gateway", constant(502, nil, "bad gateway"), false, []string{"URL/mcp"}, exit.Unreachable, []string{"✗ the proxy in front of the server responds, and the server behind it does not: HTTP 502", "│ bad gateway"}},
		{"not acceptable", constant(406, nil, ""), false, []string{"URL/mcp"}, exit.Unreachable, []string{"does not accept the format of the response: HTTP 406"}},
		{"forbidden", constant(403, nil, "no"), false, []string{"URL/mcp"}, exit.Auth, []string{"HTTP 403: the server does not allow it", "│ no"}},
		{"wants an origin", wantsOrigin(good), false, []string{"URL"}, exit.Unreachable, []string{"HTTP 403 to requests without Origin", "the server must accept requests without one"}},
		{"another version", constant(200, map[string]string{"Content-Type": "application/json"}, `{"jsonrpc":"2.0","id":"mcpwire-init","result":{"protocolVersion":"1.0"}}`), false, []string{"URL"}, exit.Unreachable, []string{"responded with version 1.0"}},
		{"certificate", good, true, []string{"URL"}, exit.Unreachable, []string{"✗ the certificate is ", "NODE_EXTRA_CA_CERTS", "next, with the certificate in FILE: mcpwire doctor --cacert FILE URL"}},
		{"certificate, trusted by all", good, true, []string{"--quick", "--insecure", "URL"}, exit.OK, []string{"✓ TLS 1.3", "negotiated", "Result: healthy"}},
		{"token refused", constant(401, map[string]string{"WWW-Authenticate": `Bearer error="invalid_token"`}, ""), false, []string{"--header", "Authorization: Bearer secret-token-1", "URL"}, exit.Auth, []string{"rejects the given token", "error=invalid_token", "Result: authorization_required: the server rejects the token"}},
		{"a password", constant(401, map[string]string{"WWW-Authenticate": `Basic realm="x"`}, ""), false, []string{"URL"}, exit.Auth, []string{"(Basic authentication)", "Authorization: Basic"}},
		{"no challenge", constant(401, nil, ""), false, []string{"URL"}, exit.Auth, []string{"no WWW-Authenticate", "the resource metadata is missing"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewUnstartedServer(tt.handler)
			srv.Config.ErrorLog = log.New(io.Discard, "", 0)
			if tt.tls {
				srv.StartTLS()
			} else {
				srv.Start()
			}
			defer srv.Close()
			status, out := runDoctorOn(t, srv, tt.args...)
			if status != tt.status {
				t.Errorf("exit status %d, want %d", status, tt.status)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q was not printed", want)
				}
			}
			if strings.ContainsRune(out, '\x1b') || strings.Contains(out, "secret-token") {
				t.Error("unexpected text was printed")
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

func dropOrigin(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Origin")
		h.ServeHTTP(w, r)
	})
}

func wantsOrigin(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") == "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func mux(path string, h http.Handler) http.Handler {
	m := http.NewServeMux()
	m.Handle(path, h)
	return m
}

// TestDoctorAuthorization follows the chain of RFC 9728 and RFC 8414.
func TestDoctorAuthorization(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(resource, issuer map[string]any)
		want   []string
	}{
		{"complete", func(_, _ map[string]any) {}, []string{"✓ resource metadata", "✓ authorization server metadata", "✓ clients can register", "next: mcpwire info URL/mcp"}},
		{"other resource", func(r, _ map[string]any) { r["resource"] = "https://other.example" }, []string{"✗ the metadata describes another resource: https://other.example"}},
		{"no servers", func(r, _ map[string]any) { delete(r, "authorization_servers") }, []string{"✗ the metadata names no authorization server"}},
		{"other issuer", func(_, i map[string]any) { i["issuer"] = "https://other.example" }, []string{"✗ its issuer is https://other.example"}},
		{"no PKCE", func(_, i map[string]any) { delete(i, "code_challenge_methods_supported") }, []string{"does not list S256"}},
		{"no registration", func(_, i map[string]any) { delete(i, "registration_endpoint") }, []string{"! clients cannot register themselves"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mux := http.NewServeMux()
			srv := httptest.NewServer(mux)
			const resourcePath = "/.well-known/oauth-protected-resource/mcp"
			resource := map[string]any{"resource": srv.URL + "/mcp", "authorization_servers": []string{srv.URL}, "scopes_supported": []string{"read"}}
			idp := issuer.New(srv.URL)
			idp.Metadata[resourcePath] = resource
			tt.change(resource, idp.Document())
			mux.Handle("/.well-known/", idp)
			mux.Handle("/", constant(http.StatusUnauthorized, map[string]string{"WWW-Authenticate": `Bearer resource_metadata="` + srv.URL + resourcePath + `"`}, ""))
			defer srv.Close()
			status, out := runDoctorOn(t, srv, "URL/mcp")
			if status != exit.Auth {
				t.Errorf("exit status %d, want %d", status, exit.Auth)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in:\n%s", want, out)
				}
			}
		})
	}
}

// TestDoctorNetwork checks the report if nothing listens at the address, or a server of another
// protocol.
func TestDoctorNetwork(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	if status, out := runDoctorOn(t, srv, strings.Replace(srv.URL, "http://", "https://", 1)); status != exit.Unreachable || !strings.Contains(out, "does not speak TLS") {
		t.Errorf("status %d, printed:\n%s", status, out)
	}
	srv.Close()
	status, out := runDoctorOn(t, srv, "--json", "URL/mcp")
	var report struct {
		Status, Verdict, Next string
		Sections              []struct{ Title string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	if status != exit.Unreachable || report.Status != "unreachable" || !strings.Contains(report.Verdict, "no connection to port") || len(report.Sections) != 1 || report.Next == "" {
		t.Errorf("status %d, report %+v", status, report)
	}
}

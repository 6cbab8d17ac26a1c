package auth_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
)

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
		if diff := cmp.Diff(tt.paths, g.MetadataPaths()); g.MetadataURL() != tt.url || diff != "" {
			t.Errorf("%s: MetadataURL %s, want %s; paths (-want +got):\n%s", tt.resource, g.MetadataURL(), tt.url, diff)
		}
		for _, path := range tt.paths {
			if w := serve(g.Handler(http.NotFoundHandler()), "GET", path); w.Code != 200 {
				t.Errorf("%s: GET %s: status %d", tt.resource, path, w.Code)
			}
		}
	}
}

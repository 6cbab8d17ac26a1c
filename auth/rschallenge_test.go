package auth_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
)

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

// A proof that was good for the request stays the way to ask for more.
func TestDenyDPoP(t *testing.T) {
	key := newRSKey(t, "")
	const token = "the-token-of-alice"
	g := rsGuard(t, bound(t, token, key), auth.GuardOptions{DPoP: &auth.DPoPOptions{Algorithms: []string{"ES256", "EdDSA"}}})
	h := g.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.Deny(w, r, auth.Require(r.Context(), "read")) }))
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

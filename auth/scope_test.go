package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
)

// Spec: S216
func TestScopeIncludes(t *testing.T) {
	g := rsGuard(t, rsUsers, auth.GuardOptions{ScopeIncludes: map[string][]string{
		"admin": {"write", "audit"}, "write": {"read"}, "x": {"y"}, "y": {"x"},
	}})
	for _, tt := range []struct {
		granted string
		needed  []string
		missing []string // nil: none
	}{
		{"read", []string{"read"}, nil},
		{"read", nil, nil},
		{"read", []string{"read", "write"}, []string{"write"}},
		{"write", []string{"read"}, nil},
		{"admin", []string{"read", "write", "audit", "admin"}, nil},
		{"write", []string{"admin", "audit", "read"}, []string{"admin", "audit"}},
		{"x", []string{"x", "y"}, nil},
		{"y", []string{"x", "z"}, []string{"z"}},
		{"rea", []string{"read"}, []string{"read"}},
		{"read", []string{"READ"}, []string{"READ"}},
		{"other", []string{"read"}, []string{"read"}},
	} {
		h := g.Protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			err := auth.Require(r.Context(), tt.needed...)
			var lack *auth.ScopeError
			switch {
			case tt.missing == nil:
				if err != nil {
					t.Errorf("%s for %v: %v", tt.granted, tt.needed, err)
				}
			case !errors.As(err, &lack):
				t.Errorf("%s for %v: %v, want a ScopeError", tt.granted, tt.needed, err)
			default:
				if diff := cmp.Diff(&auth.ScopeError{Scopes: tt.needed, Missing: tt.missing}, lack); diff != "" {
					t.Errorf("%s for %v (-want +got):\n%s", tt.granted, tt.needed, diff)
				}
			}
			if got := auth.PrincipalOf(r.Context()).HasScopes(tt.needed...); got != (tt.missing == nil) {
				t.Errorf("%s: HasScopes(%v) = %v", tt.granted, tt.needed, got)
			}
		}))
		if w := serve(h, "POST", "/mcp", "Authorization", "Bearer user-"+tt.granted); w.Code != 200 {
			t.Errorf("%s: status %d", tt.granted, w.Code)
		}
	}
	// The scopes that a guard requires may be included, too.
	g = rsGuard(t, rsUsers, auth.GuardOptions{RequiredScopes: []string{"read"}, ScopeIncludes: map[string][]string{"write": {"read"}}})
	if w := serve(g.Protect(hello), "POST", "/mcp", "Authorization", "Bearer user-write"); w.Code != 200 {
		t.Errorf("write for read: status %d", w.Code)
	}
}

func TestRequireNobody(t *testing.T) {
	if err := auth.Require(context.Background()); err != nil {
		t.Errorf("Require without scopes: %v", err)
	}
	if err := auth.Require(context.Background(), "read"); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("Require: %v, want ErrUnauthenticated", err)
	}
	if (*auth.Principal)(nil).HasScopes("read") {
		t.Error("nobody has a scope")
	}
	if err := auth.Require(auth.WithPrincipal(context.Background(), &auth.Principal{Scopes: []string{"read"}}), "read"); err != nil {
		t.Errorf("Require without a guard: %v", err)
	}
}

func ExampleRequire() {
	verifier, err := auth.NewStatic(auth.StaticToken{Token: "f3a9c1d27e5b48069d1c", Subject: "ci", Scopes: []string{"files:read"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{Verifier: verifier})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := guard.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := auth.Require(r.Context(), "files:read", "files:write"); err != nil {
			auth.Deny(w, r, err)
			return
		}
		fmt.Fprintln(w, "written")
	}))
	r := httptest.NewRequest("PUT", "/", nil)
	r.Header.Set("Authorization", "Bearer f3a9c1d27e5b48069d1c")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("WWW-Authenticate"))
	// Output: 403 Bearer error="insufficient_scope", error_description="The operation needs more scopes.", scope="files:read files:write"
}

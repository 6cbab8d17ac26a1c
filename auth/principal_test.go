package auth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
)

func TestPrincipalID(t *testing.T) {
	texts := []string{"", " ", "a", "a b", "a%20b", "a%2520b", "%", "\x00", "é", "<b>", "\"", "\r\nX: y", "https://as.example/t"}
	seen := map[string][3]string{}
	for _, iss := range texts {
		for _, sub := range texts {
			for _, client := range texts {
				id := (&auth.Principal{Issuer: iss, Subject: sub, ClientID: client, Scopes: []string{"x"}}).ID()
				if other, ok := seen[id]; ok {
					t.Errorf("%q is the ID of %q and %q", id, other, [3]string{iss, sub, client})
				}
				seen[id] = [3]string{iss, sub, client}
				if strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune("<>\"\\&'", r) }) {
					t.Errorf("ID %q has characters that need escaping", id)
				}
			}
		}
	}
	p := &auth.Principal{Issuer: "https://as.example", Subject: "alice smith", ClientID: "app"}
	if got, want := p.ID(), "https://as.example alice%20smith app"; got != want {
		t.Errorf("ID = %q, want %q", got, want)
	}
	if got := (*auth.Principal)(nil).ID(); got != "" {
		t.Errorf("ID of nil = %q", got)
	}
}

// Spec: S215
func TestPrincipalIsNotLogged(t *testing.T) {
	p := &auth.Principal{Issuer: "i", Subject: "s", ClientID: "c", Claims: map[string]json.RawMessage{"email": json.RawMessage(`"private"`)}}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("request", "principal", p)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("request", "principal", p)
	fmt.Fprintf(&log, "%v %s %+v", p, p, p)
	token := auth.StaticToken{Token: "email-of-somebody", Subject: "s"}
	slog.New(slog.NewJSONHandler(&log, nil)).Info("configured", "token", token)
	fmt.Fprintf(&log, "%v %+v", token, token)
	if got := log.String(); strings.Contains(got, "email") || strings.Count(got, "i s c") != 5 {
		t.Errorf("logged %s", got)
	}
}

func TestPrincipalOf(t *testing.T) {
	if p := auth.PrincipalOf(context.Background()); p != nil {
		t.Errorf("PrincipalOf an empty context = %v", p)
	}
	if p := auth.PrincipalOf(auth.WithPrincipal(context.Background(), nil)); p != nil {
		t.Errorf("PrincipalOf a context with nil = %v", p)
	}
}

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

func TestRequireWithoutPrincipal(t *testing.T) {
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

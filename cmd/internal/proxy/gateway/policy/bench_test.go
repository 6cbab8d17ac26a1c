package policy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
)

// BenchmarkHooks measures each part of the policy of a call.
func BenchmarkHooks(b *testing.B) {
	idp := newTokenIssuer()
	token := idp.Token("alice", testResource, map[string]any{"team": "team19", "groups": []string{"a", "b", "c"}})
	var rules []config.View
	for i := range 20 {
		rules = append(rules, config.View{Match: config.Match{Claims: map[string]config.Texts{"team": {fmt.Sprint("team", i)}}}, Allow: []string{fmt.Sprintf("up%d__*", i), "up__echo*"}, Deny: []string{"*__delete*"}})
	}
	views, err := NewViews(rules, nil)
	must(b, err)
	limits := NewLimits(LimitOptions{Caller: Limit{Rate: 1e6, Concurrent: 100}, Upstreams: map[string]Limit{"up": {Rate: 1e6, Concurrent: 100}}})
	audit, err := OpenAudit(AuditOptions{Path: filepath.Join(b.TempDir(), "audit.jsonl")})
	must(b, err)
	defer audit.Close()
	p, err := idp.Verifier(b, testResource).Verify(b.Context(), token)
	must(b, err)
	ctx := auth.WithPrincipal(b.Context(), p)
	b.Run("guard", func(b *testing.B) {
		guard, err := auth.NewGuard(&auth.GuardOptions{Resource: testResource, Verifier: idp.Verifier(b, testResource), AuthorizationServers: []string{testIssuer}})
		must(b, err)
		h := guard.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest(http.MethodPost, testResource, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		b.ReportAllocs()
		for b.Loop() {
			h.ServeHTTP(w, r)
		}
	})
	b.Run("view", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !views.Of(ctx).Allows(gateway.KindTool, "up", "echo") {
				b.Fatal("hidden")
			}
		}
	})
	b.Run("limit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			release, err := limits.Admit(ctx, "up")
			if err != nil {
				b.Fatal(err)
			}
			release()
		}
	})
	b.Run("audit", func(b *testing.B) {
		r := testRecord("echo")
		r.Context, r.Arguments = ctx, make([]byte, 1024)
		b.ReportAllocs()
		for b.Loop() {
			audit.Record(r)
		}
	})
}

package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/proxy/bridge"
	"mcpwire/mcp"
)

// TestCatalogBytes checks that the catalogs of all users of an upstream have a limit, above which
// users get what the gateway already has, and that closed catalogs do not count.
func TestCatalogBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := toolServer("up", "a")
		defer srv.Close(context.Background())
		u := streamUpstream("up", srv)
		u.PerPrincipal, u.Bridge.IdleTimeout = true, time.Minute
		g := newGateway(t, &Options{ListWait: time.Second, Upstreams: []Upstream{u}})
		defer g.Close()
		p := g.Stateless()
		list := func(user string) string {
			return request(t, as(t.Context(), user), p, mcp.MethodToolsList, "{"+modernMeta+"}")
		}
		if got := list("ann"); !strings.Contains(got, `"up__a"`) {
			t.Errorf("ann: got %s", got)
		}
		count := &g.state.Load().upstreams[0].catalogBytes
		one := count.Load()
		if one <= 0 {
			t.Fatalf("one catalog has %d bytes", one)
		}
		count.Add(maxUpstreamBytes - 2*one + 1)
		if got := list("bob"); strings.Contains(got, `"up__a"`) || !strings.Contains(got, MetaStale) {
			t.Errorf("bob above the limit: got %s", got)
		}
		if got := list("ann"); !strings.Contains(got, `"up__a"`) {
			t.Errorf("ann above the limit: got %s", got)
		}
		count.Add(-(maxUpstreamBytes - 2*one + 1))
		<-time.After(maxRetry + time.Second)
		if got := list("bob"); !strings.Contains(got, `"up__a"`) {
			t.Errorf("bob below the limit: got %s", got)
		}
		<-time.After(10 * time.Minute)
		synctest.Wait()
		if got := count.Load(); got != 0 {
			t.Errorf("got %d bytes after all catalogs are closed, want 0", got)
		}
	})
}

// TestViewsShareTexts checks that many views do not multiply the memory of a large catalog.
func TestViewsShareTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := toolServer("up", "a", "b")
		defer srv.Close(context.Background())
		g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("up", srv)}})
		defer g.Close()
		ix := g.fresh(t.Context(), bridge.EraModern, nil, false)
		all, some := ix.list(KindTool, nil), ix.list(KindTool, prefixView("up__b"))
		if len(all.items) != 2 || len(some.items) != 1 || some.items[0].name != "up__b" || some.sum == all.sum {
			t.Fatalf("got %d and %d items", len(all.items), len(some.items))
		}
		if &some.items[0].raw[0] != &all.items[1].raw[0] {
			t.Error("the view has a copy of the text")
		}
	})
}

// TestNestedResults checks that URIs are searched for only in a result and in the result of a task
// within it, because each further level would copy the message again.
func TestNestedResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := fullServer("first"), fullServer("second")
		defer first.Close(context.Background())
		defer second.Close(context.Background())
		g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("first", first), streamUpstream("second", second)}})
		defer g.Close()
		g.fresh(t.Context(), bridge.EraModern, nil, false)
		be, err := g.state.Load().upstreams[1].acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer be.release()
		s := g.scope(t.Context(), be, bridge.EraModern)
		const link = `"content":[{"type":"resource_link","uri":"x:a"}]`
		for depth, want := range []string{"x:second+a", "x:second+a", "x:a", "x:a"} {
			frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":%s{%s}%s}`, strings.Repeat(`{"result":`, depth), link, strings.Repeat("}", depth))
			if got := string(s.exposeURIs([]byte(frame), "result")); !strings.Contains(got, `"uri":"`+want+`"`) {
				t.Errorf("%d levels: got %s, want %s in it", depth, got, want)
			}
		}
	})
}

// TestReference checks that completion/complete reaches only prompts and templates that the view
// allows, and that the server cannot read another name in the reference than the gateway.
func TestReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fullServer("up")
		defer srv.Close(context.Background())
		var audited []string
		g := newGateway(t, &Options{
			Upstreams: []Upstream{streamUpstream("up", srv)},
			View:      func(context.Context) View { return prefixView("up__p") },
			Audit:     func(r *CallRecord) { audited = append(audited, r.Name+" "+string(r.Outcome)) },
		})
		defer g.Close()
		g.fresh(t.Context(), bridge.EraModern, nil, false)
		const invalid = `"code":-32602`
		for _, tt := range []struct{ ref, want, name string }{
			{`{"type":"ref/prompt","name":"up__p"}`, `"values":["alice","bob"]`, "p ok"},
			{`{"type":"ref/resource","uri":"x:{y}"}`, "resource not found", "x:{y} denied"},
			{`{"type":"ref/resource","name":"up__p","uri":"x:{y}"}`, invalid, " denied"},
			{`{"type":"ref/prompt","name":"up__p","uri":"x:{y}"}`, invalid, " denied"},
			{`{"type":"ref/prompt","name":"up__p","NAME":"q"}`, invalid, " denied"},
			{`{"type":"ref/prompt","name":"up__p","Type":"ref/resource"}`, invalid, " denied"},
			{`{"type":"ref/prompt","name":7}`, invalid, " denied"},
			{`{"name":"up__p"}`, invalid, " denied"},
			{`"up__p"`, invalid, " denied"},
		} {
			audited = nil
			got := request(t, t.Context(), g.Stateless(), mcp.MethodComplete, `{`+modernMeta+`,"ref":`+tt.ref+`,"argument":{"name":"who","value":""}}`)
			if !strings.Contains(got, tt.want) {
				t.Errorf("%s: got %s, want %s in it", tt.ref, got, tt.want)
			}
			if diff := cmp.Diff([]string{tt.name}, audited); diff != "" {
				t.Errorf("%s: audit (-want +got):\n%s", tt.ref, diff)
			}
		}
	})
}

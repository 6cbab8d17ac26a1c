package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// watchable returns a server with a resource for each number.
func watchable(t *testing.T) *server.Server {
	srv := server.New("test", "1", nil)
	must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "n:{x}", Name: "numbers"},
		func(_ context.Context, vars server.Vars) (string, error) { return vars.Get("x"), nil }))
	return srv
}

// TestTooManyWatched: a connection can watch 1024 resources, by whichever means.
func TestTooManyWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := watchable(t)
		c := connect(t, srv, "2025-06-18")
		for i := range 1000 {
			c.must("resources/subscribe", fmt.Sprintf(`{"uri":"n:%d"}`, i))
		}
		c.revision = modern
		uris := func(n int) string {
			return `{"notifications":{"resourceSubscriptions":["n:l` + strings.Join(numbers(n), `","n:l`) + `"]}}`
		}
		refused := func(what string, err error) {
			t.Helper()
			if code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "limit 1024") {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused("25 more", <-c.listen(t.Context(), uris(25)))
		refused("1025 at once", <-connect(t, srv, modern).listen(t.Context(), uris(1025)))
		ctx, cancel := context.WithCancel(t.Context())
		c.listen(ctx, uris(24))
		c.revision = "2025-06-18"
		_, err := c.call(t.Context(), "resources/subscribe", `{"uri":"n:x"}`)
		refused("one more", err)
		c.must("resources/subscribe", `{"uri":"n:1"}`) // which it watches
		c.must("resources/unsubscribe", `{"uri":"n:1"}`)
		c.must("resources/subscribe", `{"uri":"n:x"}`)
		cancel()
		synctest.Wait()
		c.must("resources/subscribe", `{"uri":"n:y"}`)
	})
}

// TestHiddenPartsHoweverSpelled: who watches a folder does not hear of what is hidden in it, however its URI is written and whatever it belongs to.
//
// Spec: S120
func TestHiddenPartsHoweverSpelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, _ := viewed(t)
		must(t,
			server.AddResource(srv, mcp.Resource{URI: "a:x", Name: "n"}, server.Static("")),
			server.AddResource(srv, mcp.Resource{URI: "a:x/secret", Name: "n"}, server.Static("")),
			server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:x/secrets/{id}", Name: "n"}, noTemplate))
		as := server.WithPrincipal(context.Background(), &server.Principal{Scopes: []string{"resource a:x"}})
		c := connectIn(as, t, srv, "2025-11-25")
		c.must("resources/subscribe", `{"uri":"a:x"}`)
		for _, uri := range []string{"a:x/%73ecret", "a:x/secrets/1", "a:x/%73ecrets/1", "a:x/other"} {
			srv.ResourceUpdated(uri)
			synctest.Wait()
		}
		if diff := cmp.Diff([]string{`notifications/resources/updated {"uri":"a:x/other"}`}, c.takeNotes()); diff != "" {
			t.Errorf("notifications (-want +got):\n%s", diff)
		}
	})
}

// TestPanicInViewOfAnUpdate: a view that panics when it is asked about an update hides it, and nothing else happens.
func TestPanicInViewOfAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := server.NewView(func(_ server.Kind, name string) bool {
			if name == "a:x/bad" {
				panic("ouch")
			}
			return true
		})
		srv := server.New("test", "1", &server.Options{View: func(context.Context, *server.Principal) *server.View { return view }})
		for _, uri := range []string{"a:x", "a:x/bad", "a:x/good"} {
			must(t, server.AddResource(srv, mcp.Resource{URI: uri, Name: "n"}, server.Static("")))
		}
		c := connect(t, srv, "2025-11-25")
		c.must("resources/subscribe", `{"uri":"a:x"}`)
		srv.ResourceUpdated("a:x/bad")
		synctest.Wait()
		srv.ResourceUpdated("a:x/good")
		synctest.Wait()
		if diff := cmp.Diff([]string{`notifications/resources/updated {"uri":"a:x/good"}`}, c.takeNotes()); diff != "" {
			t.Errorf("notifications (-want +got):\n%s", diff)
		}
	})
}

// TestWatchEndsWithTheSession: nobody is told who is gone.
func TestWatchEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := watchable(t)
		gone, stays := connect(t, srv, "2025-06-18"), connect(t, srv, "2025-11-25")
		gone.must("resources/subscribe", `{"uri":"n:1"}`)
		stays.must("resources/subscribe", `{"uri":"n:1"}`)
		gone.conn.Close()
		synctest.Wait()
		srv.ResourceUpdated("n:1")
		synctest.Wait()
		if got := gone.takeNotes(); got != nil {
			t.Errorf("the one that is gone heard %q", got)
		}
		if diff := cmp.Diff([]string{`notifications/resources/updated {"uri":"n:1"}`}, stays.takeNotes()); diff != "" {
			t.Errorf("the other one (-want +got):\n%s", diff)
		}
	})
}

// TestWatchedResourceGoesAway: it can be watched further, and be given up.
func TestWatchedResourceGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := watchable(t)
		c := connect(t, srv, "2024-11-05")
		c.must("resources/subscribe", `{"uri":"n:1"}`)
		srv.RemoveResourceTemplates("n:{x}")
		srv.ResourceUpdated("n:1")
		synctest.Wait()
		want := []string{"1 × notifications/resources/list_changed ", `1 × notifications/resources/updated {"uri":"n:1"}`}
		if diff := cmp.Diff(want, counted(c.takeNotes())); diff != "" {
			t.Errorf("notifications (-want +got):\n%s", diff)
		}
		c.must("resources/unsubscribe", `{"uri":"n:1"}`)
		srv.ResourceUpdated("n:1")
		synctest.Wait()
		if got := c.takeNotes(); got != nil {
			t.Errorf("got %q", got)
		}
	})
}

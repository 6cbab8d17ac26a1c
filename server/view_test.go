package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
)

// furnished returns a server with a public and a secret item of each kind.
func furnished(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	srv := server.MustNew("test", "1", opts)
	for _, name := range []string{"open", "secret"} {
		err := errors.Join(
			server.AddTool(srv, name, "", func(context.Context, empty) (string, error) { return "ok", nil }),
			server.AddPrompt(srv, mcp.Prompt{Name: name}, func(context.Context, struct {
				A string `json:"a,omitempty"`
			}) (string, error) {
				return "ok", nil
			}, server.CompleteFrom("a", "ok")),
			server.AddResource(srv, mcp.Resource{URI: "x:" + name, Name: name}, server.Static("ok")),
			server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: name + ":/{a}", Name: name}, func(context.Context, server.Vars) (string, error) {
				return "ok", nil
			}, server.CompleteFrom("a", "ok")),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	return srv
}

// notSecret hides items with secret in their name.
var notSecret = server.NewView(func(_ server.Kind, name string) bool { return !strings.Contains(name, "secret") })

// insidersSee hides secrets from everyone but insiders.
func insidersSee(_ context.Context, principal string) *server.View {
	if principal == "insider" {
		return nil
	}
	return notSecret
}

// Spec: S120 S121 S132 S156
func TestViews(t *testing.T) {
	srv := furnished(t, &server.Options{View: insidersSee, Cache: server.CacheOptions{ListPublic: true}})
	for _, revision := range []string{"2025-06-18", modern} {
		outsider, insider := clientOf(t, srv, revision, "outsider"), clientOf(t, srv, revision, "insider")
		nobody := connect(t, srv, revision)
		for _, list := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
			for range 2 { // the second time from the cache
				if got := insider.must(list, "{}"); !strings.Contains(got, "secret") || !strings.Contains(got, "open") {
					t.Errorf("%s, insider: %s", list, got)
				}
				for _, c := range []*client{outsider, nobody} {
					if got := c.must(list, "{}"); strings.Contains(got, "secret") || !strings.Contains(got, "open") {
						t.Errorf("%s: %s", list, got)
					}
				}
			}
		}
		uses := []struct{ method, params string }{
			{"tools/call", `{"name":"secret"}`},
			{"prompts/get", `{"name":"secret"}`},
			{"resources/read", `{"uri":"x:secret"}`},
			{"resources/read", `{"uri":"secret:/1"}`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"secret"},"argument":{"name":"a","value":""}}`},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"secret:/{a}"},"argument":{"name":"a","value":""}}`},
		}
		if revision != modern {
			uses = append(uses, struct{ method, params string }{"resources/subscribe", `{"uri":"x:secret"}`}, struct{ method, params string }{"resources/subscribe", `{"uri":"secret:/1"}`})
		}
		for _, use := range uses {
			if _, err := insider.call(t.Context(), use.method, use.params); err != nil {
				t.Errorf("%s %s, insider: %v", use.method, use.params, err)
			}
			// A hidden item gets the same response as an unknown one.
			_, hidden := outsider.call(t.Context(), use.method, use.params)
			_, absent := outsider.call(t.Context(), use.method, strings.ReplaceAll(use.params, "secret", "absent"))
			if hidden == nil || absent == nil || strings.ReplaceAll(hidden.Error(), "secret", "absent") != absent.Error() {
				t.Errorf("%s %s: %v; and an unknown item: %v", use.method, use.params, hidden, absent)
			}
			if _, err := outsider.call(t.Context(), use.method, strings.ReplaceAll(use.params, "secret", "open")); err != nil {
				t.Errorf("%s %s, for a public item: %v", use.method, use.params, err)
			}
		}
	}
}

// Spec: S120
func TestViewOfSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := furnished(t, &server.Options{View: insidersSee})
		outsider, insider := clientOf(t, srv, modern, "outsider"), clientOf(t, srv, modern, "insider")
		for _, c := range []*client{outsider, insider} {
			c.listen(t.Context(), `{"notifications":{"resourceSubscriptions":["x:open","x:secret","secret:/1"]}}`)
			c.takeNotes()
		}
		for _, uri := range []string{"x:open", "x:secret", "secret:/1"} {
			srv.ResourceUpdated(uri)
			synctest.Wait()
		}
		note := func(uri string) string {
			return `notifications/resources/updated {"_meta":{"io.modelcontextprotocol/subscriptionId":1},"uri":"` + uri + `"}`
		}
		if diff := cmp.Diff([]string{note("x:open")}, outsider.takeNotes()); diff != "" {
			t.Errorf("outsider (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{note("x:open"), note("x:secret"), note("secret:/1")}, insider.takeNotes()); diff != "" {
			t.Errorf("insider (-want +got):\n%s", diff)
		}
	})
}

// TestViewOfParts checks that a client that watches a resource is not notified of hidden resources
// below it.
func TestViewOfParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", &server.Options{View: insidersSee})
		for _, uri := range []string{"x:/a", "x:/a/open", "x:/a/secret"} {
			if err := server.AddResource(srv, mcp.Resource{URI: uri, Name: uri}, server.Static("ok")); err != nil {
				t.Fatal(err)
			}
		}
		for _, revision := range []string{"2025-11-25", modern} {
			outsider, insider := clientOf(t, srv, revision, "outsider"), clientOf(t, srv, revision, "insider")
			for _, c := range []*client{outsider, insider} {
				if revision == modern {
					c.listen(t.Context(), `{"notifications":{"resourceSubscriptions":["x:/a"]}}`)
				} else {
					c.must("resources/subscribe", `{"uri":"x:/a"}`)
				}
				c.takeNotes()
			}
			for _, uri := range []string{"x:/a", "x:/a/open", "x:/a/secret", "x:/a/unregistered", "x:/ab"} {
				srv.ResourceUpdated(uri)
				synctest.Wait()
			}
			if got := strings.Join(outsider.takeNotes(), "\n"); strings.Contains(got, "secret") || strings.Count(got, "x:/a") != 3 {
				t.Errorf("%s, outsider: %s", revision, got)
			}
			if got := strings.Join(insider.takeNotes(), "\n"); !strings.Contains(got, "secret") || strings.Count(got, "x:/a") != 4 {
				t.Errorf("%s, insider: %s", revision, got)
			}
		}
	})
}

// TestViewIsNotPublic shows that results that not all callers see are never marked for shared
// caches.
//
// Spec: S119
func TestViewIsNotPublic(t *testing.T) {
	instead := func(middleware.Handler) middleware.Handler {
		return func(context.Context, *middleware.Message) (json.RawMessage, error) {
			return json.RawMessage(`{"tools":[],"contents":[]}`), nil
		}
	}
	for _, middleware := range []middleware.Func{passOn, instead} {
		for want, view := range map[string]func(context.Context, string) *server.View{"public": nil, "private": insidersSee} {
			srv := furnished(t, &server.Options{View: view, Cache: server.CacheOptions{ListPublic: true, ReadPublic: true}})
			srv.Use(middleware)
			c := clientOf(t, srv, modern, "insider")
			for method, params := range map[string]string{"tools/list": "{}", "resources/read": `{"uri":"x:secret"}`} {
				if got := c.must(method, params); !strings.Contains(got, `"cacheScope":"`+want) {
					t.Errorf("%s: got %s, want it %s", method, got, want)
				}
			}
		}
	}
}

// TestViewPages shows that hidden items do not count in the size of a page.
func TestViewPages(t *testing.T) {
	srv := server.MustNew("test", "1", &server.Options{Limits: server.Limits{PageSize: 2}, View: func(context.Context, string) *server.View {
		return notSecret
	}})
	for i := range 9 {
		name := fmt.Sprint(i)
		if i%2 == 0 {
			name = "secret" + name
		}
		if err := server.AddTool(srv, name, "", func(context.Context, empty) (string, error) { return "", nil }); err != nil {
			t.Fatal(err)
		}
	}
	c := connect(t, srv, modern)
	first, cursor, err := c.list("")
	if err != nil {
		t.Fatal(err)
	}
	second, end, err := c.list(cursor)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"1", "3"}, {"5", "7"}}, [][]string{first, second}); diff != "" || end != "" {
		t.Errorf("cursor %q, pages (-want +got):\n%s", end, diff)
	}
}

// TestViewSeesTheCall shows that a View may depend on the request in the context.
func TestViewSeesTheCall(t *testing.T) {
	srv := furnished(t, &server.Options{View: func(ctx context.Context, _ string) *server.View {
		if server.CallOf(ctx).Revision().Modern() {
			return nil
		}
		return notSecret
	}})
	for revision, want := range map[string]bool{"2025-06-18": false, modern: true} {
		if got := strings.Contains(connect(t, srv, revision).must("tools/list", "{}"), "secret"); got != want {
			t.Errorf("%s: secret is listed: %t", revision, got)
		}
	}
}

// TestListsChanged checks that exactly the clients whose view has changed are notified.
func TestListsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trusted atomic.Bool
		srv := server.MustNew("test", "1", &server.Options{View: func(_ context.Context, principal string) *server.View {
			if principal == "a" && !trusted.Load() {
				return notSecret
			}
			return nil
		}})
		for _, name := range []string{"open", "secret"} {
			if err := server.AddTool(srv, name, "", func(context.Context, empty) (string, error) { return "ok", nil }); err != nil {
				t.Fatal(err)
			}
		}
		clients := map[string]*client{
			"legacy a":            clientOf(t, srv, "2025-06-18", "a"),
			"modern a, listening": clientOf(t, srv, modern, "a"),
			"modern a":            clientOf(t, srv, modern, "a"),
			"legacy b":            clientOf(t, srv, "2025-06-18", "b"),
			"legacy nobody":       connect(t, srv, "2025-06-18"),
		}
		clients["modern a, listening"].listen(t.Context(), `{"notifications":{"toolsListChanged":true,"promptsListChanged":true}}`)
		for _, c := range clients {
			c.takeNotes()
		}
		legacy := []string{"notifications/tools/list_changed "}
		listening := []string{`notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`}
		for _, tt := range []struct {
			principals []string
			want       map[string][]string
		}{
			{[]string{"a", "x"}, map[string][]string{"legacy a": legacy, "modern a, listening": listening}},
			{[]string{""}, map[string][]string{"legacy nobody": legacy}},
			{nil, map[string][]string{"legacy a": legacy, "legacy b": legacy, "legacy nobody": legacy, "modern a, listening": listening}},
		} {
			srv.ListsChanged(tt.principals...)
			synctest.Wait()
			got := map[string][]string{}
			for name, c := range clients {
				if notes := c.takeNotes(); notes != nil {
					got[name] = notes
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%q (-want +got):\n%s", tt.principals, diff)
			}
		}
		a := clients["modern a"]
		if names, _, err := a.list(""); err != nil || len(names) != 1 {
			t.Errorf("before: %q, %v", names, err)
		}
		trusted.Store(true)
		srv.ListsChanged("a")
		if names, _, err := a.list(""); err != nil || len(names) != 2 {
			t.Errorf("after: %q, %v", names, err)
		}
		if _, err := a.tool("secret", "{}"); err != nil {
			t.Errorf("after: %v", err)
		}
	})
}

// TestViewsAreEncodedOnce shows that a list is encoded once for each view until the list changes.
func TestViewsAreEncodedOnce(t *testing.T) {
	asked := 0
	views := map[string]*server.View{}
	for _, id := range []string{"a", "b"} {
		views[id] = server.NewView(func(_ server.Kind, name string) bool {
			asked++
			return strings.HasPrefix(name, id)
		})
	}
	srv := server.MustNew("test", "1", &server.Options{View: func(_ context.Context, principal string) *server.View { return views[principal] }})
	for _, name := range []string{"a1", "a2", "b1"} {
		if err := server.AddTool(srv, name, "", func(context.Context, empty) (string, error) { return "ok", nil }); err != nil {
			t.Fatal(err)
		}
	}
	list := func(id string) string {
		var page struct {
			Tools []struct{ Name string }
		}
		if err := json.Unmarshal([]byte(clientOf(t, srv, modern, id).must("tools/list", "{}")), &page); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(page.Tools)
	}
	for range 3 {
		if got := list("a") + list("b"); got != "[{a1} {a2}][{b1}]" {
			t.Errorf("got %s", got)
		}
	}
	if asked != 6 {
		t.Errorf("the views were asked %d times for 3 tools each", asked)
	}
	srv.ListsChanged()
	if got := list("a"); got != "[{a1} {a2}]" || asked != 9 {
		t.Errorf("after a change: got %s, asked %d times", got, asked)
	}
}

// An item that a caller does not see is rejected, whatever the caller knows of it.
//
// Spec: S120 S132
func ExampleOptions_view() {
	everything := (*server.View)(nil)
	readOnly := server.NewView(func(kind server.Kind, name string) bool { return kind != server.KindTool || name == "search" })
	srv := server.MustNew("demo", "1.0.0", &server.Options{
		View: func(_ context.Context, principal string) *server.View {
			if principal == "admin" {
				return everything
			}
			return readOnly
		},
		Lenient: true,
	})
	for _, name := range []string{"search", "erase"} {
		if err := server.AddTool(srv, name, "", func(context.Context, struct{}) (string, error) { return "done", nil }); err != nil {
			fmt.Println(err)
		}
	}
	serve(srv,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search"}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"erase"}}`)
	admin := server.WithPrincipalID(context.Background(), "admin")
	request := requestState{strings.NewReader(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"erase"}}`)}
	if err := srv.Serve(admin, jsonrpc.NewFramer(request, nil)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}
	// {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"unknown tool: erase"}}
	// {"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"done"}]}}
}

package server_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"mcpwire/server"
)

// TestStaticLists shows that a server whose lists do not change says so, and announces nothing.
func TestStaticLists(t *testing.T) {
	kinds := []server.Kind{server.KindTool, server.KindPrompt, server.KindResource}
	for _, static := range []bool{false, true} {
		srv := server.MustNew("test", "1", &server.Options{StaticLists: static, AdvertiseKinds: kinds})
		for revision, method := range map[string]string{modern: "server/discover", "2025-06-18": "initialize"} {
			params := "{}"
			if revision != modern {
				params = `{"protocolVersion":"` + revision + `"}`
			}
			c := connect(t, srv, modern) // without a handshake
			c.revision = revision
			got := c.must(method, params)
			want := map[bool]string{true: `"listChanged":false`, false: `"listChanged":true`}[static]
			if strings.Count(got, want) != 3 || !strings.Contains(got, `"subscribe":true`) {
				t.Errorf("static %v, %s: %s", static, revision, got)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			srv := server.MustNew("test", "1", &server.Options{StaticLists: static, AdvertiseKinds: kinds})
			c := connect(t, srv, "2025-06-18")
			synctest.Wait() // until the server knows that the client is ready
			if err := server.AddTool(srv, "t", "", func(context.Context, empty) (string, error) { return "", nil }); err != nil {
				t.Fatal(err)
			}
			srv.ListsChanged()
			synctest.Wait()
			if notes := c.takeNotes(); (len(notes) == 0) != static {
				t.Errorf("static %v: announced %v", static, notes)
			}
		})
	}
}

package gateway

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A knowingView is a prefixView that can say what it may show of an unknown catalog.
type knowingView struct{ prefixView }

func (v knowingView) AllowsSome(upstream string) bool {
	return strings.HasPrefix(string(v.prefixView), upstream+Separator)
}

// TestStaleNames checks that a list names the upstreams that are missing in it, and only those that
// the caller may see.
func TestStaleNames(t *testing.T) {
	for _, tt := range []struct {
		name string
		view View
		want string
	}{
		{"no view", nil, `["one","two"]`},
		{"a view of one", knowingView{"one__"}, `["one"]`},
		{"a view of neither", knowingView{"three__"}, ""},
		{"a view that does not know", prefixView("one__"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hanging := func(name string) Upstream {
					u := streamUpstream(name, nil)
					u.Bridge.Connect = func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return u
				}
				g := newGateway(t, &Options{Upstreams: []Upstream{hanging("one"), hanging("two")}, View: func(context.Context) View { return tt.view }})
				defer g.Close()
				got := request(t, t.Context(), g.Stateless(), mcp.MethodToolsList, "{"+modernMeta+"}")
				if stale := string(jsonwire.Lookup([]byte(got), "result", "_meta", MetaStale)); stale != tt.want {
					t.Errorf("got %s, want %s", stale, tt.want)
				}
			})
		})
	}
}

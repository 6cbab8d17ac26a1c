package gateway

import (
	"context"
	"errors"
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

// TestStaleLogin checks that an upstream to which the caller must log in is not named.
func TestStaleLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := loginGateway(t, newFakeLogin(), nil)
		defer g.Close()
		got := request(t, t.Context(), g.Stateless(), mcp.MethodToolsList, "{"+modernMeta+"}")
		if !strings.Contains(got, "one__log_in") || strings.Contains(got, MetaStale) {
			t.Errorf("got %s, want the tool to log in, and no upstream that is out of date", got)
		}
	})
}

// TestExpireAtClose checks that a backend that expires while the gateway closes is closed.
func TestExpireAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("one", toolServer("one", "a"))}})
		defer g.Close()
		u := g.state.Load().upstreams[0]
		be, err := u.acquire(t.Context())
		must(err)
		be.release()
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
		be.expire()
		g.Close()
		select {
		case <-be.done:
		default:
			t.Error("the backend is not closed")
		}
	})
}

// TestRequirePin checks that a call of a tool whose definition is not known is refused only if the
// upstream wants that.
func TestRequirePin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := func(name string) Upstream {
			u := streamUpstream(name, nil)
			u.Bridge.Connect = func(context.Context, io.Writer) (jsonrpc.Framer, error) { return nil, errors.New("no such program") }
			return u
		}
		pinned := broken("pinned")
		pinned.RequirePin = true
		pin := func(string, Kind, string, []byte) PinDecision { return PinShow }
		g := newGateway(t, &Options{Pin: pin, Upstreams: []Upstream{pinned, broken("other")}})
		defer g.Close()
		for name, want := range map[string]string{"pinned__a": "cannot be checked", "other__a": "no such program"} {
			if got := request(t, t.Context(), g.Stateless(), mcp.MethodToolsCall, `{"name":"`+name+`",`+modernMeta+"}"); !strings.Contains(got, want) {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
		}
	})
}

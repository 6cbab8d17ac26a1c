package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"mcpwire/client"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
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

// TestRepeatedPages checks that a list whose server repeats a cursor ends with what was read, once.
func TestRepeatedPages(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pages map[string]string // by cursor
		want  string
		warns bool
	}{
		{"empty cursor on each page", map[string]string{"": "a b>", "=": "a b>"}, "good__x up__a up__b", true},
		{"one cursor on each page", map[string]string{"": "a>x", "=x": "a b>x"}, "good__x up__a up__b", true},
		{"a cycle", map[string]string{"": "a>x", "=x": "b>y", "=y": "c>x"}, "good__x up__a up__b up__c", true},
		{"an empty cursor once", map[string]string{"": "a>", "=": "b"}, "good__x up__a up__b", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := toolServer("up")
				up.Use(func(next middleware.Handler) middleware.Handler {
					return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
						if m.Method != mcp.MethodToolsList {
							return next(ctx, m)
						}
						at := ""
						if cursor := jsonwire.Lookup(m.Params, "cursor"); cursor != nil {
							at = "=" + jsonwire.Text(cursor)
						}
						names, cursor, more := strings.Cut(tt.pages[at], ">")
						var tools []string
						for _, name := range strings.Fields(names) {
							tools = append(tools, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
						}
						result := `{"tools":[` + strings.Join(tools, ",") + `]`
						if more {
							result += `,"nextCursor":"` + cursor + `"`
						}
						return json.RawMessage(result + "}"), nil
					}
				})
				var log bytes.Buffer
				g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("good", toolServer("good", "x")), streamUpstream("up", up)}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				c := dialStream(t, g, client.Options{})
				got := toolNames(t, c)
				c.Close()
				g.Close()
				if got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
				if warns := strings.Contains(log.String(), "repeats a cursor"); warns != tt.warns {
					t.Errorf("got the log\n%s", &log)
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
		g.cancel()
		g.running.Wait() // as Close does
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
		pin := func(string, string, Kind, string, []byte) PinDecision { return PinShow }
		g := newGateway(t, &Options{Pin: pin, Upstreams: []Upstream{pinned, broken("other")}})
		defer g.Close()
		for name, want := range map[string]string{"pinned__a": "cannot be checked", "other__a": "no such program"} {
			if got := request(t, t.Context(), g.Stateless(), mcp.MethodToolsCall, `{"name":"`+name+`",`+modernMeta+"}"); !strings.Contains(got, want) {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
		}
	})
}

// TestOneProcess checks that the connections with which the gateway itself reads lists do not take
// the place of a caller: with one process, one client is served, and the next is refused.
func TestOneProcess(t *testing.T) {
	for _, downstream := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		for _, upstream := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
			for _, isolation := range []Isolation{IsolateClients, IsolatePrincipals, IsolateNone} {
				synctest.Test(t, func(t *testing.T) {
					up := streamUpstream("up", appServer("up", true, upstream))
					up.Isolation, up.Bridge.MaxServers, up.Bridge.MaxServersPerCaller = isolation, 1, 1
					g := newGateway(t, &Options{Upstreams: []Upstream{up}})
					defer g.Close()
					opts := client.Options{Revisions: []mcp.Revision{downstream}}
					for _, declared := range []map[string]json.RawMessage{nil, appsDeclared} { // reads both catalogs
						opts.Extensions = declared
						c := dialStream(t, g, opts)
						toolNames(t, c)
						c.Close()
					}
					first, second := dialStream(t, g, opts), dialStream(t, g, opts)
					defer first.Close()
					defer second.Close()
					if got, err := client.CallTool[string](t.Context(), first, "up__extra", nil); got != "up" || err != nil {
						t.Errorf("%v to %v, %v: got %q, %v", downstream, upstream, isolation, got, err)
					}
					if isolation != IsolateClients || downstream.Modern() {
						return
					}
					if _, err := client.CallTool[string](t.Context(), second, "up__extra", nil); err == nil || !strings.Contains(err.Error(), "too many sessions with this server") {
						t.Errorf("%v to %v: got %v for the second client, want too many sessions", downstream, upstream, err)
					}
				})
			}
		}
	}
}

// TestHiddenKinds checks that a pin can hide items of each kind and the instructions of a server,
// that a hidden resource cannot be read, and which catalogs the pin is asked about.
func TestHiddenKinds(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		t.Run(revision.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := fullServer("up")
				defer srv.Close(context.Background())
				var mu sync.Mutex
				asked := map[string]bool{}
				hide := map[Kind]string{KindTool: "who", KindPrompt: "p", KindResource: "x:a", KindTemplate: "up:{id}", KindServer: "instructions"}
				pin := func(_, catalog string, kind Kind, name string, definition []byte) PinDecision {
					mu.Lock()
					defer mu.Unlock()
					asked[catalog] = true
					if kind == KindServer && string(definition) != `{"instructions":"instructions of up"}` {
						t.Errorf("definition of the server: %s", definition)
					}
					if hide[kind] == name {
						return PinHide
					}
					return PinShow
				}
				g := newGateway(t, &Options{Pin: pin, Upstreams: []Upstream{streamUpstream("up", srv)}})
				defer g.Close()
				c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{revision}})
				defer c.Close()
				if names := toolNames(t, c); strings.Contains(names, "up__who") || !strings.Contains(names, "up__add") {
					t.Errorf("tools: %s", names)
				}
				for p, err := range c.Prompts(t.Context()) {
					t.Errorf("prompt %s, %v", p.Name, err)
				}
				for r, err := range c.Resources(t.Context()) {
					t.Errorf("resource %s, %v", r.URI, err)
				}
				for r, err := range c.ResourceTemplates(t.Context()) {
					t.Errorf("template %s, %v", r.URITemplate, err)
				}
				if got := c.Profile().Instructions; got != "" {
					t.Errorf("instructions: %q", got)
				}
				if _, err := c.ReadResource(t.Context(), "x:a"); err == nil {
					t.Error("a hidden resource was read")
				}
				for catalog := range asked {
					if strings.HasPrefix(catalog, "modern") != revision.Modern() {
						t.Errorf("asked about the catalog %s", catalog)
					}
				}
				hidden := 0
				for _, c := range g.Upstreams()[0].Catalogs {
					hidden += c.Hidden
				}
				if hidden != len(hide) {
					t.Errorf("%d items are hidden, want %d", hidden, len(hide))
				}
			})
		})
	}
}

// TestShortInfo checks that only the response to server/discover has the icons and the description of
// the gateway, which other results would repeat.
func TestShortInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		info := mcp.Implementation{Name: "g", Version: "1", Title: "T", Description: "D", Icons: []mcp.Icon{{Src: "data:,"}}}
		g := newGateway(t, &Options{Info: info, Upstreams: []Upstream{streamUpstream("one", toolServer("one", "a"))}})
		defer g.Close()
		for method, want := range map[string]string{
			mcp.MethodDiscover:      `{"name":"g","version":"1","title":"T","description":"D","icons":[{"src":"data:,"}]}`,
			mcp.MethodToolsList:     `{"name":"g","version":"1","title":"T"}`,
			mcp.MethodResourcesList: `{"name":"g","version":"1","title":"T"}`,
		} {
			got := request(t, t.Context(), g.Stateless(), method, `{`+modernMeta+`}`)
			if !strings.Contains(got, `"_meta":{"io.modelcontextprotocol/serverInfo":`+want+`}`) {
				t.Errorf("%s: got %s, want %s in it", method, got, want)
			}
		}
	})
}

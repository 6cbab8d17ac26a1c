package gateway

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// TestAnnounce checks that the rename of a tool is announced, and that a client whose notification
// is blocked delays no other client, and gets one notification for all changes in that time.
func TestAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := streamUpstream("one", toolServer("one", "a"))
		g := newGateway(t, &Options{Upstreams: []Upstream{up}})
		defer g.Close()
		g.fresh(t.Context(), bridge.EraModern, nil, true)
		changes := make(chan string, 10)
		stuck := make(chan string)
		kinds := []string{mcp.NotificationToolsChanged}
		defer g.announcer.remove(g.announcer.add(t.Context(), bridge.EraModern, kinds, func(n string) { stuck <- n }))
		defer g.announcer.remove(g.announcer.add(t.Context(), bridge.EraModern, kinds, func(n string) { changes <- n }))
		for _, name := range []string{"x", "y", "z"} {
			up.Rename = map[string]string{"a": name}
			if err := g.Apply(&Options{Upstreams: []Upstream{up}}); err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * announcePause)
			synctest.Wait()
			if got := len(changes); got != 1 {
				t.Fatalf("after the name %s: got %d notifications, want 1", name, got)
			}
			<-changes
		}
		<-stuck // about x
		<-stuck // about y and z
		select {
		case <-stuck:
			t.Error("got a third notification, want one for the first change and one for the other two")
		case <-time.After(time.Minute):
		}
	})
}

// TestAnnouncedChange checks that clients of both eras are notified of a change that a server
// announces and takes back before its lists are read, once for each kind of list, and only if they
// see something of the server.
func TestAnnouncedChange(t *testing.T) {
	for _, downstream := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		for _, upstream := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
			synctest.Test(t, func(t *testing.T) {
				for _, tt := range []struct {
					view View
					want map[string]int
				}{
					{nil, map[string]int{string(client.PromptsListChanged): 1, string(client.ToolsListChanged): 1}},
					{prefixView("other__"), map[string]int{}},
				} {
					srv := fullServer("up", upstream)
					g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("up", srv)}, View: func(context.Context) View { return tt.view }})
					c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{downstream}})
					toolNames(t, c)
					got := map[string]int{}
					sub, err := c.ListenFunc(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true}, func(e client.Event) { got[string(e.Kind)]++ })
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
					must(server.AddTool(srv, "p", "", func(context.Context, none) (string, error) { return "", nil }))
					synctest.Wait() // the lists are read now, and then not for a while
					clear(got)
					must(server.AddPrompt(srv, mcp.Prompt{Name: "q"}, func(context.Context, none) (string, error) { return "", nil }))
					must(server.AddTool(srv, "q", "", func(context.Context, none) (string, error) { return "", nil }))
					srv.RemovePrompts("q")
					srv.RemoveTools("q")
					time.Sleep(time.Minute)
					synctest.Wait()
					if diff := cmp.Diff(tt.want, got); diff != "" {
						t.Errorf("%v to %v, view %v: notifications (-want +got):\n%s", downstream, upstream, tt.view, diff)
					}
					sub.Close()
					c.Close()
					g.Close()
				}
			})
		}
	}
}

// TestHandshakeWait checks that a handshake does not wait for a slow server as long as a list.
func TestHandshakeWait(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		synctest.Test(t, func(t *testing.T) {
			slow := streamUpstream("slow", toolServer("slow", "a"))
			connect := slow.Bridge.Connect
			slow.Bridge.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
				time.Sleep(25 * time.Second)
				return connect(ctx, w)
			}
			g := newGateway(t, &Options{Upstreams: []Upstream{slow, streamUpstream("good", toolServer("good", "a"))}, ListWait: time.Minute})
			defer g.Close()
			began := time.Now()
			c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{revision}})
			defer c.Close()
			if d := time.Since(began); d > maxHandshakeWait {
				t.Errorf("the handshake took %v", d)
			}
			if got, want := toolNames(t, c), "slow__a good__a"; got != want {
				t.Errorf("the list has %q, want %q", got, want)
			}
		})
	}
}

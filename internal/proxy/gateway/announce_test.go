package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/mcp"
)

// TestAnnounce checks that the rename of a tool is announced, and that a client whose notification
// is blocked delays no other client, and gets one notification for all changes in that time.
func TestAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := streamUpstream("one", toolServer("one", "a"))
		g := newGateway(t, &Options{Upstreams: []Upstream{up}})
		defer g.Close()
		g.fresh(t.Context(), true, nil, time.Minute, true)
		changes := make(chan string, 10)
		stuck := make(chan string)
		kinds := []string{mcp.NotificationToolsChanged}
		defer g.announcer.remove(g.announcer.add(t.Context(), true, kinds, func(n string) { stuck <- n }))
		defer g.announcer.remove(g.announcer.add(t.Context(), true, kinds, func(n string) { changes <- n }))
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

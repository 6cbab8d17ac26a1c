package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"mcpwire/client"
	"mcpwire/internal/rpc/relay"
	"mcpwire/mcp"
	"mcpwire/server"
)

// TestSubscriptionAdmitted checks that a subscription to a resource counts as a call until it is
// acknowledged, and that one for lists only does not.
func TestSubscriptionAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("up", "1", nil)
		must(server.AddResource(srv, mcp.Resource{URI: "x:a", Name: "a"}, server.Static("a")))
		admitted, inFlight, full := 0, 0, false
		g := newGateway(t, &Options{
			Upstreams: []Upstream{streamUpstream("up", srv)},
			Admit: func(_ context.Context, upstream string) (func(), error) {
				if full {
					return nil, &relay.RejectedError{Status: http.StatusTooManyRequests, Reason: "too many calls to " + upstream}
				}
				admitted, inFlight = admitted+1, inFlight+1
				return func() { inFlight-- }, nil
			},
		})
		defer g.Close()
		c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{mcp.LatestRevision}})
		defer c.Close()
		resource := mcp.SubscriptionFilter{ResourceSubscriptions: []string{"x:a"}}
		for _, tt := range []struct {
			filter mcp.SubscriptionFilter
			want   int
		}{{resource, 1}, {mcp.SubscriptionFilter{ToolsListChanged: true}, 1}, {resource, 2}} {
			sub, err := c.Listen(t.Context(), tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			if admitted != tt.want || inFlight != 0 {
				t.Errorf("%d admitted, %d in flight; want %d and 0", admitted, inFlight, tt.want)
			}
		}
		if n := g.Upstreams()[0].InFlight; n != 0 {
			t.Errorf("the status counts %d subscriptions as pending requests", n)
		}
		full = true
		if _, err := c.Listen(t.Context(), resource); err == nil || !strings.Contains(err.Error(), "too many calls to up") {
			t.Errorf("above the limit: %v", err)
		}
	})
}

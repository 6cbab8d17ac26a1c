package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/internal/era"
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

// An exactView shows only the resource with this URI.
type exactView string

func (v exactView) Allows(kind Kind, _, name string) bool {
	return kind == KindResource && name == string(v)
}
func (v exactView) Key() string { return string(v) }

// TestHiddenUpdates checks that a client is not notified of changes of resources that it must not
// see, although it is subscribed to one that contains them, or could see them before.
func TestHiddenUpdates(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		synctest.Test(t, func(t *testing.T) {
			srv := server.MustNew("up", "1", nil)
			must(server.AddResource(srv, mcp.Resource{URI: "x://a", Name: "a"}, server.Static("a")))
			o := &Options{Upstreams: []Upstream{streamUpstream("up", srv)}, View: func(context.Context) View { return exactView("x://a") }}
			g := newGateway(t, o)
			defer g.Close()
			var updated []string
			c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{revision}, OnNotification: func(method string, params json.RawMessage) {
				if method == mcp.NotificationResourceUpdated {
					updated = append(updated, era.LookupString(params, "uri"))
				}
			}})
			defer c.Close()
			sub, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ResourceSubscriptions: []string{"x://a"}})
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			update := func(uri string) {
				srv.ResourceUpdated(uri)
				<-time.After(time.Second)
				synctest.Wait()
			}
			update("x://a/secret")
			update("x://a")
			o.View = func(context.Context) View { return exactView("x://b") }
			if err := g.Apply(o); err != nil {
				t.Fatal(err)
			}
			update("x://a")
			if diff := cmp.Diff([]string{"x://a"}, updated); diff != "" {
				t.Errorf("%v: updates (-want +got):\n%s", revision, diff)
			}
		})
	}
}

// TestSubscriptionAudited checks that a modern subscription has a record for each resource and task.
func TestSubscriptionAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("up", "1", nil)
		must(server.AddResource(srv, mcp.Resource{URI: "x:a", Name: "a"}, server.Static("a")))
		full := false
		var audited []string
		g := newGateway(t, &Options{
			Upstreams: []Upstream{streamUpstream("up", srv)},
			View:      func(context.Context) View { return prefixView("up__x:a") },
			Audit: func(r *CallRecord) {
				audited = append(audited, strings.Join([]string{r.Method, r.Upstream, r.Name, string(r.Outcome)}, " "))
			},
			Admit: func(context.Context, string) (func(), error) {
				if full {
					return nil, &relay.RejectedError{Status: http.StatusTooManyRequests, Reason: "too many calls"}
				}
				return nil, nil
			},
		})
		defer g.Close()
		c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{mcp.LatestRevision}})
		defer c.Close()
		sub, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x:a", "x:b", "y:c"}})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		full = true
		if _, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ResourceSubscriptions: []string{"x:a"}}); err == nil {
			t.Error("above the limit: got no error")
		}
		want := []string{
			"subscriptions/listen  x:b denied", "subscriptions/listen  y:c denied", "subscriptions/listen up x:a ok",
			"subscriptions/listen up x:a rejected",
		}
		if diff := cmp.Diff(want, audited); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
	})
}

package matrix

import (
	"context"
	"fmt"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
)

// newListenServer returns a server that changes its primitives on request.
func newListenServer(func()) *server.Server {
	srv := server.MustNew("listen", "1", nil)
	n := 0
	must(
		server.AddResource(srv, mcp.Resource{URI: "lib://a", Name: "a"}, server.Static("")),
		server.AddPrompt(srv, mcp.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil }),
		server.AddTool(srv, "change", "", func(_ context.Context, in struct {
			What string `json:"what"`
		}) (string, error) {
			n++
			name := fmt.Sprint("n", n)
			switch in.What {
			case "tools":
				return name, server.AddTool(srv, name, "", func(context.Context, struct{}) (string, error) { return "", nil })
			case "prompts":
				return name, server.AddPrompt(srv, mcp.Prompt{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
			case "resources":
				return name, server.AddResource(srv, mcp.Resource{URI: "lib://" + name, Name: name}, server.Static(""))
			case "templates":
				return name, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: name + "://{x}", Name: name},
					func(context.Context, server.Vars) (string, error) { return "", nil })
			}
			srv.ResourceUpdated(in.What)
			return in.What, nil
		}),
	)
	return srv
}

// change makes the server change a list or a resource.
func (s *subtest) change(c *client.Client, what string) {
	s.Helper()
	s.call(c, "change", object{"what": what})
}

// listen opens a subscription, which is closed at the end of the test.
func (s *subtest) listen(c *client.Client, filter mcp.SubscriptionFilter) *client.Subscription {
	s.Helper()
	sub, err := c.Listen(s.timeoutContext(), filter)
	ok(s, "listen", err)
	s.Cleanup(func() { sub.Close() })
	return sub
}

// next waits for the next event of a subscription.
func (s *subtest) next(sub *client.Subscription) client.Event {
	s.Helper()
	for e, err := range sub.Events(s.timeoutContext()) {
		ok(s, "events", err)
		return e
	}
	s.Fatal("the subscription has ended")
	return client.Event{}
}

func TestListen(t *testing.T) {
	everything := mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true, ResourceSubscriptions: []string{"lib://a"}}
	testBehaviors(t, "listen", []behavior{
		{name: "notifications of all changes", test: func(s *subtest) {
			c := s.dial(nil)
			sub := s.listen(c, everything)
			same(s, "honored", sub.Accepted(), everything)
			for what, want := range map[string]client.Event{
				"tools":       {Kind: client.ToolsListChanged},
				"prompts":     {Kind: client.PromptsListChanged},
				"resources":   {Kind: client.ResourcesListChanged},
				"templates":   {Kind: client.ResourcesListChanged},
				"lib://a":     {Kind: client.ResourceUpdated, URI: "lib://a"},
				"lib://a/one": {Kind: client.ResourceUpdated, URI: "lib://a/one"},
			} {
				s.change(c, what)
				same(s, what, s.next(sub), want)
			}
		}},
		// Spec: S114
		{name: "notifications of the filter only", test: func(s *subtest) {
			c := s.dial(nil)
			sub := s.listen(c, mcp.SubscriptionFilter{ToolsListChanged: true})
			same(s, "honored", sub.Accepted(), mcp.SubscriptionFilter{ToolsListChanged: true})
			for range 3 {
				s.change(c, "prompts")
				s.change(c, "resources")
				s.change(c, "lib://a")
				s.change(c, "tools")
				same(s, "event", s.next(sub), client.Event{Kind: client.ToolsListChanged})
			}
		}},
		// Spec: C39
		{name: "two subscriptions with different filters", test: func(s *subtest) {
			c := s.dial(nil)
			tools := s.listen(c, mcp.SubscriptionFilter{ToolsListChanged: true})
			resource := s.listen(c, mcp.SubscriptionFilter{ResourceSubscriptions: []string{"lib://a"}})
			for range 2 {
				s.change(c, "lib://a")
				s.change(c, "tools")
				same(s, "tools", s.next(tools), client.Event{Kind: client.ToolsListChanged})
				same(s, "resource", s.next(resource), client.Event{Kind: client.ResourceUpdated, URI: "lib://a"})
			}
		}},
		{name: "a callback", test: func(s *subtest) {
			c, events := s.dial(nil), make(chan client.Event)
			sub, err := c.ListenFunc(s.timeoutContext(), mcp.SubscriptionFilter{PromptsListChanged: true}, func(e client.Event) { events <- e })
			ok(s, "listen", err)
			s.change(c, "prompts")
			same(s, "event", <-events, client.Event{Kind: client.PromptsListChanged})
			ok(s, "close", sub.Close())
			<-sub.Done()
		}},
		{name: "unknown resources", test: func(s *subtest) {
			sub := s.listen(s.dial(nil), mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"lib://none", "lib://a"}})
			same(s, "honored", sub.Accepted(), mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"lib://a"}})
		}},
		{name: "the end of a subscription", test: func(s *subtest) {
			var w wire
			c := s.dial(w.record)
			sub := s.listen(c, mcp.SubscriptionFilter{ResourceSubscriptions: []string{"lib://a"}})
			s.change(c, "lib://a")
			s.next(sub)
			ok(s, "close", sub.Close())
			<-sub.Done()
			ok(s, "error of the subscription", sub.Err())
			for range sub.Events(s.timeoutContext()) {
				s.Error("got an event after Close")
			}
			// Over HTTP the server may handle a change before it notices the end of the stream.
			updates := func() int { return w.count("< ", mcp.NotificationResourceUpdated) }
			for notified := -1; notified != updates(); {
				if s.Context().Err() != nil || notified > 100 {
					s.Fatalf("the server sent %d notifications, the last after the end of the subscription", notified)
				}
				notified = updates()
				s.change(c, "lib://a")
				ok(s, "ping", c.Ping(s.Context()))
			}
		}},
		{name: "a cached list is requested again after a change", test: func(s *subtest) {
			c := s.dial(nil)
			count := func() (n int) {
				for _, err := range c.Tools(s.Context()) {
					ok(s, "list", err)
					n++
				}
				return n
			}
			sub := s.listen(c, everything)
			before := count()
			s.change(c, "tools")
			same(s, "event", s.next(sub).Kind, client.ToolsListChanged)
			same(s, "tools", count(), before+1)
		}},
		// Spec: S112 S113 S115
		{name: "the acknowledgment is the first message", when: modern, test: func(s *subtest) {
			p := s.peer()
			const meta = `"_meta":{"io.modelcontextprotocol/subscriptionId":"x"}`
			p.Send(mcptest.Request(s.revision, "x", mcp.MethodSubscriptionsListen, `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["lib://a"]}}`))
			p.Expect(mcptest.Notification(mcp.NotificationAcknowledged, `{`+meta+`,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["lib://a"]}}`))
			p.Send(mcptest.Request(s.revision, 2, mcp.MethodToolsCall, `{"name":"change","arguments":{"what":"tools"}}`))
			p.ExpectUnordered(mcptest.Result(2, `"$any"`), mcptest.Notification(mcp.NotificationToolsChanged, `{`+meta+`}`))
			p.Send(mcptest.Request(s.revision, 3, mcp.MethodToolsCall, `{"name":"change","arguments":{"what":"lib://a"}}`))
			p.ExpectUnordered(mcptest.Result(3, `"$any"`), mcptest.Notification(mcp.NotificationResourceUpdated, `{`+meta+`,"uri":"lib://a"}`))
			p.Send(mcptest.Notification(mcp.NotificationCancelled, `{"requestId":"x"}`))
		}, instead: func(s *subtest) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodSubscriptionsListen, `{"notifications":{}}`))
			code := "-32602" // a modern request without metadata
			if s.web != nil {
				code = "-32601" // an unknown method of the session's revision
			}
			p.Expect(`{"jsonrpc":"2.0","id":1,"error":{"code":` + code + `,"$any":"$any"}}`)
			p.Send(mcptest.Request(s.revision, 2, mcp.MethodResourcesSubscribe, `{"uri":"lib://a"}`))
			p.Expect(mcptest.Result(2, `{}`))
			p.Send(mcptest.Request(s.revision, 3, mcp.MethodToolsCall, `{"name":"change","arguments":{"what":"lib://a"}}`))
			p.ExpectUnordered(mcptest.Result(3, `"$any"`), mcptest.Notification(mcp.NotificationResourceUpdated, `{"uri":"lib://a"}`))
			p.Send(mcptest.Request(s.revision, 4, mcp.MethodResourcesUnsubscribe, `{"uri":"lib://a"}`))
			p.Expect(mcptest.Result(4, `{}`))
		}},
	})
}

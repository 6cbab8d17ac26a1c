package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

var errTest = errors.New("a test wants it so")

// A listenServer is the response of a fakeServer to subscriptions/listen: it acknowledges, and then
// waits for the end.
type listenServer struct {
	*fakeServer
	accepted string                      // filter to acknowledge; empty for the requested one
	open     chan string                 // gets the id of each listen request
	end      chan func() (string, error) // response to the next one that ends; nil for none
}

func newListenServer(t testing.TB) *listenServer {
	s := &listenServer{fakeServer: newFake(t, modernDate, `{}`, map[string]answerer{}), open: make(chan string, 10), end: make(chan func() (string, error))}
	s.answers["subscriptions/listen"] = s.listen
	return s
}

func (s *listenServer) listen(ctx context.Context, params string) (string, error) {
	id := idOf(ctx)
	accepted := s.accepted
	if accepted == "" {
		accepted = string(jsonwire.Lookup([]byte(params), "notifications"))
	}
	s.tell(id, "subscriptions/acknowledged", `,"notifications":`+accepted)
	s.open <- id
	select {
	case answer := <-s.end:
		return answer()
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// tell sends a notification of a subscription.
func (s *listenServer) tell(id, name, more string) {
	s.notify("notifications/"+name, `{"_meta":{"io.modelcontextprotocol/subscriptionId":`+id+`}`+more+`}`)
}

// next returns the next event.
func next(t *testing.T, s *Subscription) Event {
	t.Helper()
	e, ok, err := s.queue.next(t.Context())
	if !ok || err != nil {
		t.Fatalf("no event: %v, %v", err, s.Err())
	}
	return e
}

var everything = mcp.SubscriptionFilter{
	ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true, ResourceSubscriptions: []string{"x:a", "x:b"},
}

// Spec: C39
func TestListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListenServer(t)
		s.accepted = `{"toolsListChanged":true,"resourceSubscriptions":["x:b","x:never asked for"],"resourcesListChanged":"yes","taskIds":["t"]}`
		c := s.dial(nil)
		all, err := c.Listen(t.Context(), everything)
		if err != nil {
			t.Fatal(err)
		}
		want := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x:b"}}
		if diff := cmp.Diff(want, all.Accepted()); diff != "" {
			t.Errorf("honored (-want +got):\n%s", diff)
		}
		first := <-s.open
		asked := `subscriptions/listen {"notifications":{"promptsListChanged":true,"resourceSubscriptions":["x:a","x:b"],"resourcesListChanged":true,"toolsListChanged":true}}`
		if diff := cmp.Diff([]string{asked}, s.takeSeen()); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		tools, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true})
		if err != nil {
			t.Fatal(err)
		}
		second := <-s.open

		s.tell(first, "tools/list_changed", "")
		s.tell(second, "prompts/list_changed", "") // not requested
		s.tell(first, "resources/updated", `,"uri":"x:b/part"`)
		s.tell(second, "tools/list_changed", "")
		s.tell(`"`+first+`"`, "prompts/list_changed", "") // an id of another type is another id
		s.tell("99", "prompts/list_changed", "")
		s.notify("notifications/prompts/list_changed", "")
		// a second acknowledgment
		s.tell(first, "subscriptions/acknowledged", `,"notifications":{}`)
		s.tell(first, "resources/list_changed", "")
		synctest.Wait()
		for _, want := range []Event{{Kind: ToolsListChanged}, {Kind: ResourceUpdated, URI: "x:b/part"}, {Kind: ResourcesListChanged}} {
			if got := next(t, all); got != want {
				t.Errorf("first subscription: got %v, want %v", got, want)
			}
		}
		if got := drain(tools.queue); !cmp.Equal(got, []Event{{Kind: ToolsListChanged}}) {
			t.Errorf("second subscription: got %v", got)
		}
		if got := drain(all.queue); got != nil {
			t.Errorf("first subscription: more events: %v", got)
		}
	})
}

func TestListenFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer answerer
		check  func(error) bool
	}{
		{"refused", fails(jsonrpc.CodeMethodNotFound), func(err error) bool { return errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}) }},
		{"ended at once", says(`{"resultType":"complete"}`), func(err error) bool { _, ok := errors.AsType[*ProtocolError](err); return ok }},
		{"no result", says(`{"resultType":"input_required"}`), func(err error) bool { _, ok := errors.AsType[*ProtocolError](err); return ok }},
		{"silence", func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() },
			func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t, modernDate, `{}`, map[string]answerer{"subscriptions/listen": tt.answer})
				c := s.dial(nil)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if sub, err := c.Listen(ctx, everything); sub != nil || !tt.check(err) {
					t.Errorf("got %v, %v", sub, err)
				}
			})
		})
	}
}

func TestListenCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t, modernDate, `{}`, map[string]answerer{})
		s.answers["subscriptions/listen"] = func(ctx context.Context, _ string) (string, error) {
			go s.crash()
			<-ctx.Done()
			return "", ctx.Err()
		}
		if _, err := s.dial(nil).Listen(t.Context(), everything); !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("got %v, want that the connection was closed", err)
		}
		synctest.Wait()
		if n := s.times("subscriptions/listen"); n != 1 {
			t.Errorf("sent %d times, want 1: the caller decides about a repetition", n)
		}
	})
}

func TestListenEnds(t *testing.T) {
	graceful := func() (string, error) { return `{"resultType":"complete"}`, nil }
	for _, tt := range []struct {
		name string
		end  func(s *listenServer, c *Client, sub *Subscription, id string)
		want error
	}{
		{"by a result", func(s *listenServer, _ *Client, _ *Subscription, _ string) { s.end <- graceful }, nil},
		{"by a cancellation", func(s *listenServer, _ *Client, _ *Subscription, id string) {
			s.notify("notifications/cancelled", `{"requestId":`+id+`}`)
		}, nil},
		{"by both", func(s *listenServer, _ *Client, _ *Subscription, id string) {
			s.notify("notifications/cancelled", `{"requestId":`+id+`}`)
			s.end <- graceful
		}, nil},
		{"by both, in reverse order", func(s *listenServer, _ *Client, _ *Subscription, id string) {
			s.end <- graceful
			s.notify("notifications/cancelled", `{"requestId":`+id+`}`)
		}, nil},
		{"by an error", func(s *listenServer, _ *Client, _ *Subscription, _ string) {
			s.end <- func() (string, error) { return "", jsonrpc.Errorf(jsonrpc.CodeInternalError, "no more") }
		}, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}},
		{"by Close", func(_ *listenServer, _ *Client, sub *Subscription, _ string) { sub.Close() }, nil},
		{"by the Client", func(_ *listenServer, c *Client, _ *Subscription, _ string) { c.Close() }, jsonrpc.ErrClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newListenServer(t)
				c := s.dial(nil)
				sub, err := c.Listen(t.Context(), everything)
				if err != nil {
					t.Fatal(err)
				}
				id := <-s.open
				s.tell(id, "tools/list_changed", "")
				synctest.Wait()
				tt.end(s, c, sub, id)
				<-sub.Done()
				want := []Event{{Kind: ToolsListChanged}}
				if tt.name == "by Close" {
					want = nil
				}
				got, err := collectAll(sub.Events(t.Context()))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if !errors.Is(err, tt.want) || err != sub.Err() && tt.want == nil {
					t.Errorf("error: got %v, Err is %v, want %v", err, sub.Err(), tt.want)
				}
				synctest.Wait()
				if len(c.subs.modern) != 0 {
					t.Errorf("it is still there: %v", c.subs.modern)
				}
			})
		})
	}
}

// Spec: C34 C41
func TestListenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListenServer(t)
		c := s.dial(nil)
		sub, err := c.Listen(t.Context(), everything)
		if err != nil {
			t.Fatal(err)
		}
		old := <-s.open
		s.accepted = `{"toolsListChanged":true,"resourceSubscriptions":["x:a"]}`
		s.crash()
		again := <-s.open
		if old == again {
			t.Errorf("both requests have the id %s", old)
		}
		s.tell(old, "prompts/list_changed", "") // a server with the state of the old connection
		s.tell(again, "tools/list_changed", "")
		synctest.Wait()
		for _, want := range []Event{{Kind: Resubscribed}, {Kind: ToolsListChanged}, {Kind: ResourceUpdated, URI: "x:a", Missed: true}} {
			if got := next(t, sub); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		if more := drain(sub.queue); more != nil {
			t.Errorf("more events: %v", more)
		}
		want := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x:a"}}
		if diff := cmp.Diff(want, sub.Accepted()); diff != "" {
			t.Errorf("honored (-want +got):\n%s", diff)
		}
	})
}

func TestListenLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListenServer(t)
		c := s.dial(&Options{Reconnect: ReconnectPolicy{Disabled: true}})
		sub, err := c.Listen(t.Context(), everything)
		if err != nil {
			t.Fatal(err)
		}
		<-s.open
		s.crash()
		_, err = collectAll(sub.Events(t.Context()))
		if !errors.Is(err, jsonrpc.ErrClosed) || !errors.Is(sub.Err(), jsonrpc.ErrClosed) {
			t.Errorf("got %v, Err is %v, want that the connection is lost", err, sub.Err())
		}
		if _, err := c.Listen(t.Context(), everything); err == nil {
			t.Error("a closed client accepts a subscription")
		}
	})
}

func TestEventsLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newListenServer(t)
		c := s.dial(nil)
		sub, err := c.Listen(t.Context(), everything)
		if err != nil {
			t.Fatal(err)
		}
		id := <-s.open
		s.tell(id, "tools/list_changed", "")
		s.tell(id, "prompts/list_changed", "")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		for e, err := range sub.Events(ctx) {
			if e.Kind != ToolsListChanged || err != nil {
				t.Errorf("first: got %v, %v", e, err)
			}
			break
		}
		for e, err := range sub.Events(ctx) { // leaving the loop has not ended the subscription
			if e.Kind == PromptsListChanged && err == nil {
				cancel(errTest)
				continue
			}
			if err != errTest {
				t.Errorf("got %v, %v, want the context's cause", e, err)
			}
		}
		if sub.Err() != nil {
			t.Errorf("Err: %v", sub.Err())
		}
	})
}

func TestListenFunc(t *testing.T) {
	for _, revision := range []string{modernDate, legacyDate} {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newListenServer(t)
				s.revision, s.capabilities = revision, `{"tools":{"listChanged":true}}`
				c := s.dial(nil)
				var got []Event
				var sub *Subscription
				sub, err := c.ListenFunc(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}, func(e Event) {
					got = append(got, e)
					sub.Close() // may be called from the function
				})
				if err != nil {
					t.Fatal(err)
				}
				tell := func() {
					if revision == modernDate {
						s.tell(<-s.open, "tools/list_changed", "")
					} else {
						s.notify("notifications/tools/list_changed", "")
					}
				}
				tell()
				<-sub.Done()
				synctest.Wait()
				if diff := cmp.Diff([]Event{{Kind: ToolsListChanged}}, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				c.Close()
				if _, err := c.ListenFunc(t.Context(), everything, nil); !errors.Is(err, jsonrpc.ErrClosed) {
					t.Errorf("after Close: got %v", err)
				}
			})
		})
	}
}

// legacyListens returns a legacy server that sends notifications as its capabilities allow.
func legacyListens(t testing.TB, capabilities string) *fakeServer {
	return newFake(t, legacyDate, capabilities, map[string]answerer{
		"resources/subscribe": func(_ context.Context, params string) (string, error) {
			if parseURIParam([]byte(params)) == "x:refused" {
				return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "no")
			}
			return "{}", nil
		},
		"resources/unsubscribe": says("{}"),
	})
}

func TestListenLegacy(t *testing.T) {
	for _, tt := range []struct {
		name, capabilities string
		filter, accepted   mcp.SubscriptionFilter
		asked              []string
		events             []Event // for all notifications of the server
	}{
		{"everything", `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}`,
			mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true, ResourceSubscriptions: []string{"x:a", "x:refused"}},
			mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true, ResourceSubscriptions: []string{"x:a"}},
			[]string{`resources/subscribe {"uri":"x:a"}`, `resources/subscribe {"uri":"x:refused"}`},
			[]Event{{Kind: ToolsListChanged}, {Kind: PromptsListChanged}, {Kind: ResourcesListChanged}, {Kind: ResourceUpdated, URI: "x:a"}, {Kind: ResourceUpdated, URI: "x:a/1"}}},
		{"a part", `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true}}`,
			mcp.SubscriptionFilter{PromptsListChanged: true, ResourcesListChanged: true, ResourceSubscriptions: []string{"x:b"}},
			mcp.SubscriptionFilter{PromptsListChanged: true, ResourceSubscriptions: []string{"x:b"}},
			[]string{`resources/subscribe {"uri":"x:b"}`},
			[]Event{{Kind: PromptsListChanged}, {Kind: ResourcesListChanged}, {Kind: ResourceUpdated, URI: "x:b"}}},
		{"nothing", `{"tools":{},"resources":{}}`,
			mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x:a"}}, mcp.SubscriptionFilter{}, nil,
			// the server sends it nevertheless
			[]Event{{Kind: ToolsListChanged}, {Kind: ResourceUpdated, URI: "x:a"}, {Kind: ResourceUpdated, URI: "x:a/1"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := legacyListens(t, tt.capabilities)
				c := s.dial(nil)
				sub, err := c.Listen(t.Context(), tt.filter)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.accepted, sub.Accepted()); diff != "" {
					t.Errorf("honored (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.asked, s.takeSeen()); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
				s.notify("notifications/tools/list_changed", "")
				s.notify("notifications/prompts/list_changed", "")
				s.notify("notifications/resources/list_changed", "")
				for _, uri := range []string{"x:a", "x:a/1", "x:b", "x:ab"} {
					s.notify("notifications/resources/updated", `{"uri":"`+uri+`"}`)
				}
				synctest.Wait()
				if diff := cmp.Diff(tt.events, drain(sub.queue)); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				sub.Close()
				var ended []string
				for _, uri := range tt.accepted.ResourceSubscriptions {
					ended = append(ended, fmt.Sprintf(`resources/unsubscribe {"uri":%q}`, uri))
				}
				if diff := cmp.Diff(ended, s.takeSeen()); diff != "" {
					t.Errorf("requests at the end (-want +got):\n%s", diff)
				}
				s.notify("notifications/tools/list_changed", "")
				synctest.Wait()
				if got := drain(sub.queue); got != nil {
					t.Errorf("events after the end: %v", got)
				}
			})
		})
	}
}

func TestListenLegacyTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := legacyListens(t, `{"resources":{"subscribe":true}}`)
		c := s.dial(nil)
		var subs []*Subscription
		for _, uris := range [][]string{{"x:a", "x:b"}, {"x:b"}} {
			sub, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ResourceSubscriptions: uris})
			if err != nil {
				t.Fatal(err)
			}
			subs = append(subs, sub)
		}
		s.takeSeen()
		subs[0].Close()
		if diff := cmp.Diff([]string{`resources/unsubscribe {"uri":"x:a"}`}, s.takeSeen()); diff != "" {
			t.Errorf("the other subscription needs x:b (-want +got):\n%s", diff)
		}
		subs[1].Close()
		if diff := cmp.Diff([]string{`resources/unsubscribe {"uri":"x:b"}`}, s.takeSeen()); diff != "" {
			t.Errorf("no subscription needs x:b (-want +got):\n%s", diff)
		}
		if len(c.subs.uriCounts) != 0 || len(c.subs.legacy) != 0 {
			t.Errorf("state is left: %v, %v", c.subs.uriCounts, c.subs.legacy)
		}
	})
}

func TestListenLegacyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := legacyListens(t, `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`)
		c := s.dial(&Options{Reconnect: ReconnectPolicy{MinBackoff: time.Millisecond}})
		sub, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x:a"}})
		if err != nil {
			t.Fatal(err)
		}
		s.takeSeen()
		began := time.Now()
		s.crash()
		for _, want := range []Event{{Kind: Resubscribed}, {Kind: ToolsListChanged, Missed: true}, {Kind: ResourceUpdated, URI: "x:a", Missed: true}} {
			if got := next(t, sub); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		if diff := cmp.Diff([]string{`resources/subscribe {"uri":"x:a"}`}, s.takeSeen()); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		if took := time.Since(began); took > 2*time.Millisecond {
			t.Errorf("took %v, although the connection was restored earlier", took)
		}
		if c.subs.uriCounts["x:a"] != 1 {
			t.Errorf("x:a is counted %d times", c.subs.uriCounts["x:a"])
		}
	})
}

func TestListenLegacyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := legacyListens(t, `{"resources":{"subscribe":true}}`)
		s.answers["resources/subscribe"] = func(ctx context.Context, params string) (string, error) {
			if strings.Contains(params, "x:a") {
				return "{}", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		}
		c := s.dial(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{"x:a", "x:b"}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if n := s.times("resources/unsubscribe"); n != 1 {
			t.Errorf("unsubscribed from %d resources, want 1: the subscribed one", n)
		}
	})
}

// drain returns the events in a queue.
func drain(q *eventQueue) (events []Event) {
	for {
		e, ok, _ := q.tryNext()
		if !ok {
			return events
		}
		events = append(events, e)
	}
}

func TestEventsCoalesce(t *testing.T) {
	q := newEventQueue(100, nil)
	a, b := Event{Kind: ResourceUpdated, URI: "a"}, Event{Kind: ResourceUpdated, URI: "b"}
	tools, missed := Event{Kind: ToolsListChanged}, Event{Kind: ToolsListChanged, Missed: true}
	for _, tt := range []struct {
		name      string
		put, want []Event
	}{
		{"equal events", []Event{a, tools, a, b, tools, a}, []Event{a, tools, b}},
		{"missed, then announced", []Event{missed, a, tools}, []Event{tools, a}},
		{"announced, then missed", []Event{tools, missed}, []Event{tools}},
		{"missed twice", []Event{missed, missed}, []Event{missed}},
		{"after a read", []Event{a}, []Event{a}},
	} {
		q.put(tt.put...)
		if diff := cmp.Diff(tt.want, drain(q)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	filter := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x:whole"}}
	const room = 10
	q := newEventQueue(room, func() []Event { return missedEvents(&filter) })
	for i := range room + 1 {
		q.put(Event{Kind: ResourceUpdated, URI: fmt.Sprintf("x:whole/%d", i)})
	}
	want := []Event{
		{Kind: ToolsListChanged, Missed: true},
		{Kind: ResourceUpdated, URI: "x:whole", Missed: true},
		{Kind: ResourceUpdated, URI: "x:whole/10"},
	}
	if diff := cmp.Diff(want, drain(q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEventsEnd(t *testing.T) {
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop %t", drop), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newEventQueue(10, nil)
				q.put(Event{Kind: ToolsListChanged})
				q.close(drop)
				q.put(Event{Kind: PromptsListChanged}) // after the end
				left := 1
				if drop {
					left = 0
				}
				for range left {
					if _, ok, err := q.next(t.Context()); !ok || err != nil {
						t.Errorf("what was there: got %t, %v", ok, err)
					}
				}
				for range 3 { // every reader sees the end
					go func() {
						if e, ok, err := q.next(t.Context()); ok || err != nil {
							t.Errorf("at the end: got %v, %t, %v", e, ok, err)
						}
					}()
				}
				synctest.Wait()
			})
		})
	}
}

func TestEventsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventQueue(10, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error)
		go func() {
			_, _, err := q.next(ctx)
			failed <- err
		}()
		synctest.Wait()
		cancel(errTest)
		if err := <-failed; err != errTest {
			t.Errorf("got %v, want the cause", err)
		}
	})
}

// TestStream shows that the id of a request without an end is known before any message for it
// arrives, that it has no timeout, and that it ends in the ways of the specification.
//
// Spec: C39 C40
func TestStream(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*script, message)
		want string
		err  func(error) bool
	}{
		{"result", func(s *script, m message) { s.answer(m, `{"resultType":"complete"}`) }, `{"resultType":"complete"}`, nil},
		{"canceled by the server", func(s *script, m message) {
			s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`)
			s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`)
			s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, m.ID)
			s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, m.ID)
			elapse(time.Millisecond) // fixes the order of the two
			s.answer(m, `{}`)
		}, "", nil},
		{"error", func(s *script, m message) { s.reject(m, -32602, "") }, "", IsServerError},
		{"wrong result", func(s *script, m message) { s.answer(m, `{"resultType":"odd"}`) }, "", is[*ProtocolError]},
		{"connection lost", func(s *script, m message) { s.conn.Close() }, "", isConnectionLost},
		{"cancelled", func(s *script, m message) {
			s.send(`{"jsonrpc":"2.0","method":"enough"}`)
			if got := memberOf(s.t, string(s.expect("notifications/cancelled").Params), "requestId"); got != string(m.ID) {
				s.fail("cancelled %s", got)
			}
		}, "", func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var id, acked string
				received := func(_ jsonrpc.Direction, message []byte) {
					switch memberOf(t, string(message), "method") {
					case `"ack"`:
						if acked = memberOf(t, string(message), "params", "id"); acked != id {
							t.Errorf("acknowledged %s before the id %s was known", acked, id)
						}
					case `"enough"`:
						cancel()
					}
				}
				opts := &Options{Timeouts: Timeouts{Call: time.Second, MaxCall: time.Second}, Reconnect: ReconnectPolicy{Disabled: true}, Trace: received}
				c := dial(t, opts, func(s *script) {
					s.discovers()
					m := s.expect("subscriptions/listen")
					if memberOf(s.t, string(m.Params), "_meta", "io.modelcontextprotocol/protocolVersion") != `"2026-07-28"` || memberOf(s.t, string(m.Params), "a") != "1" {
						s.fail("got %s", m.line)
					}
					s.send(`{"jsonrpc":"2.0","method":"ack","params":{"id":%s}}`, m.ID)
					elapse(time.Hour)
					tt.end(s, m)
					elapse(time.Minute)
					s.conn.Close()
				})
				got, err := c.subs.listen(ctx, "subscriptions/listen", []byte(`{"a":1}`), func(i jsonrpc.ID) { id = i.String() })
				if string(got) != tt.want || (err == nil) != (tt.err == nil) || err != nil && !tt.err(err) || acked == "" {
					t.Errorf("got %s, %v; acknowledged %s", got, err, acked)
				}
				elapse(time.Second) // waits for the rest of the script
			})
		})
	}
}

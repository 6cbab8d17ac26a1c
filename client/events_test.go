package client

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
)

// drain takes what is in a queue.
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
		{"the same", []Event{a, tools, a, b, tools, a}, []Event{a, tools, b}},
		{"missed and told", []Event{missed, a, tools}, []Event{tools, a}},
		{"told and missed", []Event{tools, missed}, []Event{tools}},
		{"missed twice", []Event{missed, missed}, []Event{missed}},
		{"after it was taken", []Event{a}, []Event{a}},
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
				q.put(Event{Kind: PromptsListChanged}) // too late
				left := 1
				if drop {
					left = 0
				}
				for range left {
					if _, ok, err := q.next(t.Context()); !ok || err != nil {
						t.Errorf("what was there: got %t, %v", ok, err)
					}
				}
				for range 3 { // all who wait see the end
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

func TestEventKindString(t *testing.T) {
	for _, tt := range []struct {
		kind EventKind
		want string
	}{
		{Resubscribed, "resubscribed"}, {ToolsListChanged, "tools list changed"}, {PromptsListChanged, "prompts list changed"},
		{ResourcesListChanged, "resources list changed"}, {ResourceUpdated, "resource updated"}, {TaskUpdated, "task updated"}, {0, "EventKind(0)"},
	} {
		if got := tt.kind.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

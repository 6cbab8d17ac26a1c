package client

import (
	"context"
	"fmt"
	"sync"
)

// An Event is something that a [Subscription] tells of.
type Event struct {
	Kind   EventKind
	URI    string // of ResourceUpdated: the resource, or the part of it, that changed
	TaskID string // of TaskUpdated
	// Missed is set if no notification says that this has happened: it may have, while nothing could be told.
	Missed bool
}

// EventKind tells what an [Event] is about.
type EventKind uint8

// The kinds of event.
const (
	// Resubscribed says that the connection was lost and the subscription made again: what happened in between was missed. An event for everything
	// that it is about follows, with Missed set.
	Resubscribed EventKind = iota + 1
	ToolsListChanged
	PromptsListChanged
	ResourcesListChanged
	ResourceUpdated
	TaskUpdated
)

func (k EventKind) String() string {
	switch k {
	case Resubscribed:
		return "resubscribed"
	case ToolsListChanged:
		return "tools list changed"
	case PromptsListChanged:
		return "prompts list changed"
	case ResourcesListChanged:
		return "resources list changed"
	case ResourceUpdated:
		return "resource updated"
	case TaskUpdated:
		return "task updated"
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Bounds of the events that wait to be taken, besides one for each thing that the subscription is about.
const (
	maxPendingEvents     = 1024
	maxPendingEventBytes = 1 << 20 // of what they name; one event may go beyond it
)

// An eventQueue holds what has happened until somebody takes it. All events say that something is not what it was, so one that waits already is
// not put in again.
type eventQueue struct {
	onOverflow func() []Event // what to put in place of more events than there is room for, with Missed set

	mu       sync.Mutex
	queued   []Event        // without Missed
	pending  map[Event]bool // the same, and whether they were missed
	bytes    int            // that they name
	capacity int
	closed   bool
	ready    chan struct{} // has a token when there may be something to take
}

func newEventQueue(capacity int, onOverflow func() []Event) *eventQueue {
	return &eventQueue{onOverflow: onOverflow, pending: make(map[Event]bool), capacity: capacity, ready: make(chan struct{}, 1)}
}

// put adds events. It does not wait.
func (q *eventQueue) put(events ...Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for _, e := range events {
		if q.fullLocked(e) {
			q.queued, q.bytes = q.queued[:0], 0
			clear(q.pending)
			for _, e := range q.onOverflow() {
				q.putLocked(e)
			}
		}
		q.putLocked(e)
	}
	q.signal()
}

// fullLocked reports whether there is no room for an event that does not wait yet.
func (q *eventQueue) fullLocked(e Event) bool {
	e.Missed = false
	if _, isPending := q.pending[e]; isPending {
		return false
	}
	return len(q.queued) >= q.capacity || q.bytes > maxPendingEventBytes
}

func (q *eventQueue) putLocked(e Event) {
	missed := e.Missed
	e.Missed = false
	wasMissed, isPending := q.pending[e]
	if !isPending {
		q.queued = append(q.queued, e)
		q.bytes += len(e.URI) + len(e.TaskID)
	}
	q.pending[e] = missed && (wasMissed || !isPending)
}

func (q *eventQueue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// close lets takers know that nothing more comes; drop forgets what is there.
func (q *eventQueue) close(discard bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if discard {
		q.queued, q.pending = nil, nil
	}
	q.signal()
}

// next waits for an event. ok is false at the end; the error is the context's.
func (q *eventQueue) next(ctx context.Context) (e Event, ok bool, err error) {
	for {
		if e, ok, ended := q.tryNext(); ok || ended {
			return e, ok, nil
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return Event{}, false, context.Cause(ctx)
		}
	}
}

func (q *eventQueue) tryNext() (e Event, ok, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queued) == 0 {
		if q.closed {
			q.signal() // for other takers
		}
		return Event{}, false, q.closed
	}
	e = q.queued[0]
	q.queued = q.queued[1:]
	q.bytes -= len(e.URI) + len(e.TaskID)
	missed := q.pending[e]
	delete(q.pending, e)
	e.Missed = missed
	if len(q.queued) > 0 {
		q.signal()
	}
	return e, true, false
}

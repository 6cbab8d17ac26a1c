package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// A Bus connects servers in several processes that serve the same clients, so that a change in one
// server reaches the subscribers of all. See [Options.Bus]. An implementation is a few lines around
// a message broker's client. It delivers an event at most once, to the servers that are subscribed
// when it is published. Events may be reordered or lost: an event only says that something has
// changed.
//
// The broker must authenticate its clients, like one that stores sessions. Anyone who can publish
// can notify the clients of all servers. Anyone who can subscribe learns URIs and the ids of tasks
// and principals.
type Bus interface {
	// Publish sends an event to the other servers. One goroutine at a time calls it, with a ctx
	// that expires after 5 seconds. If it fails, the event is lost and the server logs the error.
	Publish(ctx context.Context, e Event) error
	// Subscribe calls deliver for each event until ctx ends or the subscription fails. After a
	// failure the server calls it again with a backoff. deliver does not block. It may be called by
	// multiple goroutines at once, but not after Subscribe has returned. The server ignores events
	// that it published itself.
	Subscribe(ctx context.Context, deliver func(Event)) error
}

// An Event is a change in one server that the clients of others may need to know. It is plain text
// and can be stored as JSON.
type Event struct {
	// From identifies the publishing [Server] by a random text.
	From string `json:"from"`
	// Kind is the kind of change.
	Kind EventKind `json:"kind"`
	// Name is the subject of the change; its meaning depends on the kind. At most 8 KiB.
	Name string `json:"name,omitempty"`
	// Owner is the [Task.Owner] for TaskUpdated. It is empty for tasks of the extension, which
	// notify only subscribers of their ids.
	Owner string `json:"owner,omitempty"`
}

// An EventKind is the kind of an [Event]. A server ignores unknown kinds, which a newer one may
// send.
type EventKind string

// The kinds of events.
const (
	// ToolsListChanged reports a change to the list of tools.
	ToolsListChanged EventKind = "tools"
	// ResourcesListChanged reports a change to the list of resources or of resource templates.
	ResourcesListChanged EventKind = "resources"
	// PromptsListChanged reports a change to the list of prompts.
	PromptsListChanged EventKind = "prompts"
	// ViewChanged reports another View for the principal whose ID is Name, or for all principals if
	// Name is empty. See [Server.ListsChanged].
	ViewChanged EventKind = "view"
	// ResourceUpdated reports an update of the resource with the URI Name.
	ResourceUpdated EventKind = "resource"
	// TaskUpdated reports an update of the task with the id Name. The servers read the task from a
	// shared [TaskStore].
	TaskUpdated EventKind = "task"
	// ElicitationDone reports the end of the elicitation with the id Name. See
	// [Server.ElicitationComplete].
	ElicitationDone EventKind = "elicitation"
)

// NewMemoryBus returns a [Bus] within one process, for tests and for servers that share it. Publish
// returns nil after all subscribers have received the event.
func NewMemoryBus() Bus { return &memoryBus{subs: make(map[*func(Event)]struct{})} }

type memoryBus struct {
	mu   sync.RWMutex
	subs map[*func(Event)]struct{}
}

// Publish implements Bus.
func (b *memoryBus) Publish(_ context.Context, e Event) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for deliver := range b.subs {
		(*deliver)(e)
	}
	return nil
}

// Subscribe implements Bus. It returns the error of ctx.
func (b *memoryBus) Subscribe(ctx context.Context, deliver func(Event)) error {
	b.mu.Lock()
	b.subs[&deliver] = struct{}{}
	b.mu.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	delete(b.subs, &deliver)
	b.mu.Unlock()
	return ctx.Err()
}

// receive notifies this server's sessions of an event from another server. It does not block.
func (s *Server) receive(e Event) {
	for _, c := range listChanges {
		if e.Kind == c.event && s.advertises(c.bit) {
			s.sessions.listsChanged(c.bit, nil)
		}
	}
	switch e.Kind {
	case ViewChanged:
		var principals []string
		if e.Name != "" {
			principals = []string{e.Name}
		}
		s.listsChangedLocal(principals)
	case ResourceUpdated:
		s.sessions.resourceUpdated(e.Name)
	case TaskUpdated:
		if s.tasks != nil {
			s.sessions.taskChanged(e.Name, e.Owner)
		}
	case ElicitationDone:
		s.sessions.elicitationDone(e.Name)
	}
}

const (
	maxPendingEvents = 4096            // waiting to be published
	maxEventName     = 8 << 10         // bytes of Event.Name
	busTimeout       = 5 * time.Second // for Publish, and for the bus to stop
	minBusBackoff    = 100 * time.Millisecond
	maxBusBackoff    = 30 * time.Second // between attempts to subscribe
	// A subscription that lasted this long resets the backoff.
	busResetAfter = time.Minute
)

// A busClient connects a server to its bus. One goroutine subscribes from the server's first use
// until it is closed. Another one publishes and runs only while events are pending. Nothing else
// waits for the bus. The methods of a nil busClient do nothing.
type busClient struct {
	bus     Bus
	id      string
	receive func(Event)
	log     *slog.Logger
	// subscribeCtx ends before publishCtx.
	subscribeCtx    context.Context
	cancelSubscribe context.CancelFunc
	publishCtx      context.Context
	cancelPublish   context.CancelFunc
	wg              sync.WaitGroup

	mu sync.Mutex
	// started is set while the server serves and is not closed.
	started bool
	closed  bool
	// pending holds each event once, no matter how often it happened.
	pending map[Event]struct{}
	// dropped counts the events that exceeded the limits.
	dropped int
	// publishing is set while a goroutine publishes.
	publishing bool
	// publishDone is closed when that goroutine ends.
	publishDone chan struct{}
}

func newBusClient(bus Bus, receive func(Event), log *slog.Logger) *busClient {
	bc := &busClient{bus: bus, id: rand.Text(), receive: receive, log: log}
	bc.subscribeCtx, bc.cancelSubscribe = context.WithCancel(context.Background())
	bc.publishCtx, bc.cancelPublish = context.WithCancel(context.Background())
	return bc
}

// start subscribes when the server first serves. Earlier events are not published.
func (bc *busClient) start() {
	if bc == nil {
		return
	}
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if bc.started || bc.closed {
		return
	}
	bc.started = true
	bc.wg.Go(bc.subscribe)
}

// subscribe receives events until the server is closed.
func (bc *busClient) subscribe() {
	deliver := func(e Event) {
		if e.From != bc.id && bc.subscribeCtx.Err() == nil {
			bc.receive(e)
		}
	}
	for wait := minBusBackoff; ; wait = min(2*wait, maxBusBackoff) {
		began := time.Now()
		_, err := catchPanic(func() (struct{}, error) { return struct{}{}, bc.bus.Subscribe(bc.subscribeCtx, deliver) })
		if bc.subscribeCtx.Err() != nil {
			return
		}
		if time.Since(began) >= busResetAfter {
			wait = minBusBackoff
		}
		bc.log.Warn("the bus stopped delivering, subscribing again", "after", wait, "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-bc.subscribeCtx.Done():
			timer.Stop()
			return
		}
	}
}

// publish queues an event.
func (bc *busClient) publish(e Event) {
	if bc == nil {
		return
	}
	e.From = bc.id
	bc.mu.Lock()
	defer bc.mu.Unlock()
	_, queued := bc.pending[e]
	switch {
	case !bc.started || queued:
		return
	case len(bc.pending) >= maxPendingEvents || len(e.Name) > maxEventName:
		bc.dropped++
		return
	}
	if bc.pending == nil {
		bc.pending = make(map[Event]struct{})
	}
	bc.pending[e] = struct{}{}
	if !bc.publishing {
		bc.publishing, bc.publishDone = true, make(chan struct{})
		bc.wg.Go(bc.publishPending)
	}
}

// publishPending publishes until no events are pending.
func (bc *busClient) publishPending() {
	for {
		events, dropped := bc.next()
		if dropped > 0 {
			bc.log.Warn("events not published: too many, or too large", "number", dropped)
		}
		if events == nil {
			return
		}
		failed := 0
		for e := range events {
			if err := bc.publishOne(e); err != nil {
				if failed++; failed == 1 {
					bc.log.Error("event not published", "kind", string(e.Kind), "error", err)
				}
			}
		}
		if failed > 1 {
			bc.log.Error("events not published", "number", failed)
		}
	}
}

// next returns the pending events. Nil ends the publishing goroutine.
func (bc *busClient) next() (events map[Event]struct{}, dropped int) {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	events, dropped = bc.pending, bc.dropped
	bc.pending, bc.dropped = nil, 0
	if events == nil || bc.publishCtx.Err() != nil {
		bc.publishing = false
		close(bc.publishDone)
		return nil, dropped
	}
	return events, dropped
}

func (bc *busClient) publishOne(e Event) error {
	if err := bc.publishCtx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(bc.publishCtx, busTimeout)
	defer cancel()
	_, err := catchPanic(func() (struct{}, error) { return struct{}{}, bc.bus.Publish(ctx, e) })
	return err
}

var errBusTimeout = errors.New("the bus does not return after its context ended")

// close ends the subscription, publishes the pending events within busTimeout, and waits for the
// goroutines until ctx ends.
func (bc *busClient) close(ctx context.Context) error {
	if bc == nil {
		return nil
	}
	bc.cancelSubscribe()
	bc.mu.Lock()
	bc.started, bc.closed = false, true
	publishDone, publishing := bc.publishDone, bc.publishing
	bc.mu.Unlock()
	if publishing {
		timer := time.NewTimer(busTimeout)
		defer timer.Stop()
		select {
		case <-publishDone:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	bc.cancelPublish()
	done := make(chan struct{})
	go func() { // ends with the other two
		bc.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(busTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return errBusTimeout
	}
}

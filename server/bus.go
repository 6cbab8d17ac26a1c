package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// A Bus connects servers that serve the same clients from several processes, so that what happens in one of them reaches the subscriptions at all: see
// [Options.Bus]. An implementation is a few lines around a message broker's client. It delivers to those who are subscribed when an event is published, at
// most once; events may overtake each other and may be lost, since all that one says is that something is not what it was.
//
// Whoever can publish can have the clients of all servers told things, and whoever can subscribe learns URIs and the ids of tasks and principals: the
// broker has to know who is who, as one that holds the sessions has.
type Bus interface {
	// Publish hands an event to the other servers. It is called by one goroutine at a time, with a ctx that ends after 5 s, and may take as long. The event
	// is lost if it fails; the server logs the error.
	Publish(ctx context.Context, e Event) error
	// Subscribe calls deliver for each event until ctx ends, or it can receive no more; the error says why. It is called again then, after a while. deliver does
	// not wait for anybody, and may be called by many goroutines at once, but not when Subscribe has returned. Events of this server may come back:
	// it knows them.
	Subscribe(ctx context.Context, deliver func(Event)) error
}

// An Event is something that has happened in one server and that the clients of others may want to hear of. It is made of plain text, and can be kept as JSON.
type Event struct {
	From string    `json:"from"`           // the server: a random text, another one for each [Server]
	Kind EventKind `json:"kind"`           // what has happened
	Name string    `json:"name,omitempty"` // to what, as the kind says; at most 8 KiB
	// Owner is whose the task is that TaskUpdated is about, as [Task.Owner]; it is empty for tasks of the extension, of which only those hear who name them.
	Owner string `json:"owner,omitempty"`
}

// An EventKind is what an [Event] says. Those that a server does not know, because a newer one has sent them, it passes over.
type EventKind string

// The kinds of event.
const (
	ToolsListChanged     EventKind = "tools"
	ResourcesListChanged EventKind = "resources" // or that of the templates
	PromptsListChanged   EventKind = "prompts"
	ViewChanged          EventKind = "view"        // of the principal with the ID Name, or of all; see [Server.ListsChanged]
	ResourceUpdated      EventKind = "resource"    // with the URI Name
	TaskUpdated          EventKind = "task"        // with the id Name. The servers share a [TaskStore], from which they take what it is by now
	ElicitationDone      EventKind = "elicitation" // with the id Name, see [Server.ElicitationComplete]
)

// A MemoryBus is a [Bus] within one process, for servers that share it, and for tests. The zero value is ready to use.
type MemoryBus struct {
	mu   sync.RWMutex
	subs map[*func(Event)]struct{}
}

// Publish implements [Bus]. When it returns, all who are subscribed have the event. The error is nil.
func (b *MemoryBus) Publish(_ context.Context, e Event) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for deliver := range b.subs {
		(*deliver)(e)
	}
	return nil
}

// Subscribe implements [Bus]. The error is ctx's.
func (b *MemoryBus) Subscribe(ctx context.Context, deliver func(Event)) error {
	b.mu.Lock()
	if b.subs == nil {
		b.subs = make(map[*func(Event)]struct{})
	}
	b.subs[&deliver] = struct{}{}
	b.mu.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	delete(b.subs, &deliver)
	b.mu.Unlock()
	return ctx.Err()
}

// receive has the sessions of this server told of what has happened in another one. It does not wait for anybody.
func (s *Server) receive(e Event) {
	for _, c := range listChanges {
		if e.Kind == c.event && s.advertises(c.bit) {
			s.announceLocal(c.bit)
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
		s.resourceUpdatedLocal(e.Name)
	case TaskUpdated:
		if s.tasks != nil {
			s.taskChangedLocal(e.Name, e.Owner)
		}
	case ElicitationDone:
		s.elicitationCompleteLocal(e.Name)
	}
}

const (
	maxPendingEvents = 4096            // that wait to be published
	maxEventName     = 8 << 10         // bytes of what one is about
	busTimeout       = 5 * time.Second // for the bus to take an event, and to return when it is told to
	minBusBackoff    = 100 * time.Millisecond
	maxBusBackoff    = 30 * time.Second // between two attempts to subscribe
	busResetAfter    = time.Minute      // after which the end of a subscription is no failure
)

// A relay connects a server to its bus. One goroutine of it listens to the bus from when the server first serves until the server is closed; another one
// publishes, and is there only while there is something to publish. Nobody else ever waits for the bus.
type busClient struct {
	bus             Bus
	id              string
	receive         func(Event)
	log             *slog.Logger
	subscribeCtx    context.Context // ends first
	cancelSubscribe context.CancelFunc
	publishCtx      context.Context
	cancelPublish   context.CancelFunc
	wg              sync.WaitGroup

	mu          sync.Mutex
	started     bool // the server serves and is not closed
	closed      bool
	pending     map[Event]struct{} // once each, however often they have happened
	dropped     int                // of which there were too many
	publishing  bool               // there is a goroutine that publishes
	publishDone chan struct{}      // closed when there is none any more
}

func newBusClient(bus Bus, receive func(Event), log *slog.Logger) *busClient {
	bc := &busClient{bus: bus, id: rand.Text(), receive: receive, log: log}
	bc.subscribeCtx, bc.cancelSubscribe = context.WithCancel(context.Background())
	bc.publishCtx, bc.cancelPublish = context.WithCancel(context.Background())
	return bc
}

// start is called when the server first serves. What happens before that is nobody else's business. r may be nil, as in the methods below.
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

// subscribe takes what the bus delivers until the server is closed.
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
		bc.log.Warn("the bus delivers no more, subscribing again", "after", wait, "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-bc.subscribeCtx.Done():
			timer.Stop()
			return
		}
	}
}

// publish has an event published soon.
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

// publishPending publishes until there is nothing left to publish.
func (bc *busClient) publishPending() {
	for {
		events, dropped := bc.next()
		if dropped > 0 {
			bc.log.Warn("events not published: there are too many, or they name too much", "number", dropped)
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

// next returns what is to be published; nil ends the goroutine that does it.
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

var errBusTimeout = errors.New("the bus does not return though its context has ended")

// close ends the subscription, publishes what waits if that does not take long, and waits for the goroutines, as long as ctx lets it.
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
	go func() { // it ends with the two
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

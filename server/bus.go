package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
)

// A Bus connects servers in several processes that serve the same clients, so that a change in one
// server reaches the subscribers of all. See [Options.Bus]. An implementation is a few lines around
// a message broker's client. It delivers a message at most once, to the servers that are subscribed
// when it is published. A message is JSON text. It only says that something has changed, so
// messages may be reordered or lost.
//
// Servers notice lost messages within 10 seconds after the bus works again. Every 4 seconds each
// server publishes how many changes of each kind it has announced. A server that has received fewer
// notifies its clients of whatever the lost ones may have been about, such as all resources that a
// client is subscribed to. It cannot replace lost messages about elicitations, about tasks of the
// core protocol, and those of a process that ends before it has published its numbers.
//
// The broker must authenticate its clients, like one that stores sessions. Anyone who can publish
// can notify the clients of all servers. Anyone who can subscribe learns URIs and the ids of tasks
// and principals.
type Bus interface {
	// Publish sends a message to the other servers, and does not keep it. One goroutine at a time
	// calls it, with a ctx that expires after 5 seconds. If it fails, the message is lost and the
	// server logs the error.
	Publish(ctx context.Context, message []byte) error
	// Subscribe calls deliver for each message until ctx ends or the subscription fails. After a
	// failure the server calls it again with a backoff. deliver neither blocks nor keeps the
	// message. It may be called by multiple goroutines at once, but not after Subscribe has
	// returned. The server ignores its own messages.
	Subscribe(ctx context.Context, deliver func(message []byte)) error
}

// TaskUpdated returns the message that tells servers on a [Bus] of an update of t. A shared
// [TaskStore] publishes it for an update that the store makes, such as the end of a task whose
// process has ended.
func TaskUpdated(t *Task) []byte {
	e := event{Kind: eventTask, Name: t.ID}
	if t.Core {
		e.Owner = t.Owner
	}
	return e.encode()
}

// An event is a change in one server that the clients of others may need to know. Its JSON text is
// a message of a Bus.
type event struct {
	// From identifies the publishing Server by a random text.
	From string `json:"from"`
	// Kind is the kind of change, or one that servers use to notice lost events.
	Kind eventKind `json:"kind"`
	// Seq numbers the events of From that have this kind, from 1. It is zero for an event that does
	// not count.
	Seq uint64 `json:"seq,omitempty"`
	// Name is the subject of the change; its meaning depends on the kind. At most 8 KiB.
	Name string `json:"name,omitempty"`
	// Owner is the Task.Owner for eventTask. It is empty for tasks of the extension, which notify
	// only subscribers of their ids.
	Owner string `json:"owner,omitempty"`
}

// encode returns the message for an event.
func (e *event) encode() []byte {
	message, err := json.Marshal(e)
	if err != nil {
		panic(err) // not reached
	}
	return message
}

// An eventKind is the kind of an event. A server ignores unknown kinds, which a newer one may send.
type eventKind string

const (
	// eventTools reports a change to the list of tools.
	eventTools eventKind = "tools"
	// eventResources reports a change to the list of resources or of resource templates.
	eventResources eventKind = "resources"
	// eventPrompts reports a change to the list of prompts.
	eventPrompts eventKind = "prompts"
	// eventView reports another View for the principal whose ID is Name, or for all principals if
	// Name is empty. See Server.ListsChanged.
	eventView eventKind = "view"
	// eventResource reports an update of the resource with the URI Name.
	eventResource eventKind = "resource"
	// eventTask reports an update of the task with the id Name. The servers read the task from a
	// shared TaskStore.
	eventTask eventKind = "task"
	// eventElicitation reports the end of the elicitation with the id Name. See
	// Server.ElicitationComplete.
	eventElicitation eventKind = "elicitation"

	// eventsSent reports how many events the server has sent of each kind: Name is a JSON object of
	// numbers.
	eventsSent eventKind = "sent"
	// eventsRequested asks the other servers for an eventsSent.
	eventsRequested eventKind = "ask"
)

// NewMemoryBus returns a [Bus] within one process, for tests and for servers that share it. Publish
// returns nil after all subscribers have received the message.
func NewMemoryBus() Bus { return &memoryBus{subs: make(map[*func([]byte)]struct{})} }

type memoryBus struct {
	mu   sync.RWMutex
	subs map[*func([]byte)]struct{}
}

// Publish implements Bus.
func (b *memoryBus) Publish(_ context.Context, message []byte) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for deliver := range b.subs {
		(*deliver)(message)
	}
	return nil
}

// Subscribe implements Bus. It returns the error of ctx.
func (b *memoryBus) Subscribe(ctx context.Context, deliver func([]byte)) error {
	b.mu.Lock()
	b.subs[&deliver] = struct{}{}
	b.mu.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	delete(b.subs, &deliver)
	b.mu.Unlock()
	return ctx.Err()
}

// receiveLost notifies this server's sessions of what lost events of a kind may have been about. It
// does not block.
func (s *Server) receiveLost(kind eventKind) {
	switch kind {
	case eventResource:
		s.sessions.resourcesUpdated()
	case eventTask:
		if s.tasks != nil {
			s.sessions.tasksChanged()
		}
	case eventElicitation: // nobody knows which one
	default:
		s.receive(event{Kind: kind})
	}
}

// receive notifies this server's sessions of an event from another server. It does not block.
func (s *Server) receive(e event) {
	for _, c := range listChanges {
		if e.Kind == c.event && s.advertises(c.bit) {
			s.sessions.listsChanged(c.bit, nil)
		}
	}
	switch e.Kind {
	case eventView:
		var principals []string
		if e.Name != "" {
			principals = []string{e.Name}
		}
		s.listsChangedLocal(principals)
	case eventResource:
		s.sessions.resourceUpdated(e.Name)
	case eventTask:
		if s.tasks != nil {
			s.sessions.taskChanged(e.Name, e.Owner)
		}
	case eventElicitation:
		s.sessions.elicitationDone(e.Name)
	}
}

const (
	maxPendingEvents = 4096            // waiting to be published
	maxEventName     = 8 << 10         // bytes of event.Name
	busTimeout       = 5 * time.Second // for Publish, and for the bus to stop
	minBusBackoff    = 100 * time.Millisecond
	maxBusBackoff    = 30 * time.Second // between attempts to subscribe
	// A subscription that lasted this long resets the backoff.
	busResetAfter = time.Minute
	// countInterval is the time between the eventsSent of a server. Two of them, and their way,
	// take less than 10 s, so that one may be lost.
	countInterval = 4 * time.Second
	// A server that sends no eventsSent for this time is forgotten.
	forgetServer = time.Minute
	// Limits on what is known of other servers.
	maxKnownServers = 10_000
	maxOvertaking   = 1024 // events of one kind that overtook others
)

// firstRequests are the times after a subscription began at which the other servers are asked for
// their eventsSent, until the subscription is known to work. What they have sent before counts as
// lost.
var firstRequests = [...]time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond}

// A busClient connects a server to its bus. One goroutine subscribes from the server's first use
// until it is closed, and another one counts. A third one publishes and runs only while events are
// pending. Nothing else waits for the bus. The methods of a nil busClient do nothing.
type busClient struct {
	bus         Bus
	id          string
	receive     func(event)
	receiveLost func(eventKind)
	log         *slog.Logger
	received    receivedEvents
	// working is set when the subscription has delivered an event of this server, or what it has
	// asked for: a bus need not deliver a server's own events.
	working atomic.Bool
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
	pending map[event]struct{}
	// sent counts the events that were published, and those that should have been.
	sent map[eventKind]uint64
	// dropped counts the events that exceeded the limits.
	dropped int
	// publishing is set while a goroutine publishes.
	publishing bool
	// publishDone is closed when that goroutine ends.
	publishDone chan struct{}
}

func newBusClient(bus Bus, s *Server) *busClient {
	bc := &busClient{bus: bus, id: rand.Text(), receive: s.receive, receiveLost: s.receiveLost, log: s.log, sent: make(map[eventKind]uint64)}
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
	bc.wg.Go(bc.count)
}

// subscribe receives events until the server is closed.
func (bc *busClient) subscribe() {
	for backoff := minBusBackoff; ; backoff = min(2*backoff, maxBusBackoff) {
		began := time.Now()
		_, err := catchPanic(func() (struct{}, error) { return struct{}{}, bc.bus.Subscribe(bc.subscribeCtx, bc.deliver) })
		if bc.subscribeCtx.Err() != nil {
			return
		}
		if time.Since(began) >= busResetAfter {
			backoff = minBusBackoff
		}
		bc.working.Store(false)
		bc.log.Warn("the bus stopped delivering, subscribing again", "after", backoff, "error", err)
		if !wait.Sleep(bc.subscribeCtx, backoff) {
			return
		}
	}
}

// deliver handles a message of the bus.
func (bc *busClient) deliver(message []byte) {
	var e event
	if err := json.Unmarshal(message, &e); err != nil {
		bc.log.Warn("invalid message of another server", "error", err)
		return
	}
	switch {
	case bc.subscribeCtx.Err() != nil:
	case e.From == bc.id:
		bc.working.Store(true)
	case e.Kind == eventsRequested:
		bc.publishSent()
	case e.Kind == eventsSent:
		bc.working.Store(true)
		var sent map[eventKind]uint64
		if err := json.Unmarshal([]byte(e.Name), &sent); err != nil {
			bc.log.Warn("invalid event of another server", "kind", string(e.Kind), "error", err)
			return
		}
		known, lost := bc.received.lost(e.From, sent)
		for _, kind := range lost {
			level := slog.LevelWarn
			if !known { // this server has just begun
				level = slog.LevelDebug
			}
			bc.log.Log(bc.subscribeCtx, level, "events of another server were lost: clients are notified of all that these may have been about", "kind", string(kind))
			bc.receiveLost(kind)
		}
	default:
		bc.received.add(e)
		bc.receive(e)
	}
}

// count asks the other servers how many events they have sent when the subscription has begun, and
// publishes the numbers of this one from time to time.
func (bc *busClient) count() {
	for _, d := range firstRequests {
		if !wait.Sleep(bc.subscribeCtx, d) {
			return
		}
		if bc.working.Load() {
			break
		}
		bc.publish(event{Kind: eventsRequested})
	}
	for wait.Sleep(bc.subscribeCtx, countInterval) {
		if !bc.working.Load() { // it has failed, and begun again
			bc.publish(event{Kind: eventsRequested})
		}
		bc.publishSent()
		bc.received.forget()
	}
}

// publishSent queues an eventsSent, unless the server has sent nothing yet.
func (bc *busClient) publishSent() {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if len(bc.sent) > 0 {
		bc.publishLocked(event{Kind: eventsSent})
	}
}

// publish queues an event.
func (bc *busClient) publish(e event) {
	if bc == nil {
		return
	}
	bc.mu.Lock()
	defer bc.mu.Unlock()
	bc.publishLocked(e)
}

func (bc *busClient) publishLocked(e event) {
	e.From = bc.id
	_, queued := bc.pending[e]
	switch {
	case !bc.started || queued:
		return
	case len(bc.pending) >= maxPendingEvents || len(e.Name) > maxEventName:
		if e.counts() {
			bc.dropped++
			bc.sent[e.Kind]++
		}
		return
	}
	sparse.Set(&bc.pending, e, struct{}{})
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
		publish := func(e event) {
			switch err := bc.publishOne(e); {
			case err == nil:
			case !e.counts(): // the next one replaces it
				bc.log.Debug("numbers of events not published", "error", err)
			default:
				if failed++; failed == 1 {
					bc.log.Error("event not published", "kind", string(e.Kind), "error", err)
				}
			}
		}
		numbers := event{From: bc.id, Kind: eventsSent}
		for e := range events {
			if e != numbers {
				publish(bc.number(e))
			}
		}
		if _, ok := events[numbers]; ok { // after what it counts
			publish(bc.number(numbers))
		}
		if failed > 1 {
			bc.log.Error("events not published", "number", failed)
		}
	}
}

// next returns the pending events. Nil ends the publishing goroutine.
func (bc *busClient) next() (events map[event]struct{}, dropped int) {
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

// counts reports whether events of the kind are counted.
func (e *event) counts() bool { return e.Kind != eventsSent && e.Kind != eventsRequested }

// number completes an event that is published now.
func (bc *busClient) number(e event) event {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	switch {
	case e.Kind == eventsSent:
		text, err := json.Marshal(bc.sent)
		if err != nil {
			panic(err) // not reached
		}
		e.Name = string(text)
	case e.counts():
		bc.sent[e.Kind]++
		e.Seq = bc.sent[e.Kind]
	}
	return e
}

func (bc *busClient) publishOne(e event) error {
	if err := bc.publishCtx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(bc.publishCtx, busTimeout)
	defer cancel()
	message := e.encode()
	_, err := catchPanic(func() (struct{}, error) { return struct{}{}, bc.bus.Publish(ctx, message) })
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
		select {
		case <-publishDone:
		case <-time.After(busTimeout):
		case <-ctx.Done():
		}
	}
	bc.cancelPublish()
	ctx, cancel := context.WithTimeoutCause(ctx, busTimeout, errBusTimeout)
	defer cancel()
	return waitGroup(ctx, &bc.wg)
}

// receivedEvents knows which events of other servers have arrived.
type receivedEvents struct {
	mu      sync.Mutex
	servers map[string]*serverEvents
}

// serverEvents are the events of one server.
type serverEvents struct {
	kinds map[eventKind]*kindEvents
	// lastEvent is the time of the latest event.
	lastEvent time.Time
}

// kindEvents are the events of one server and kind.
type kindEvents struct {
	// last is the number up to which all events have arrived, or were reported as lost.
	last uint64
	// overtaking has the later ones that have arrived.
	overtaking map[uint64]struct{}
}

func (re *receivedEvents) add(e event) {
	if e.Seq == 0 {
		return
	}
	re.mu.Lock()
	defer re.mu.Unlock()
	if k := re.kindLocked(e.From, e.Kind); k != nil {
		k.add(e.Seq)
	}
}

// lost returns the kinds of which fewer events than sent have arrived, and whether any events or
// numbers of the server had arrived before. It reports a loss once.
func (re *receivedEvents) lost(from string, sent map[eventKind]uint64) (known bool, kinds []eventKind) {
	re.mu.Lock()
	defer re.mu.Unlock()
	known = re.servers[from] != nil
	for kind, n := range sent {
		k := re.kindLocked(from, kind)
		if k == nil || k.last >= n {
			continue
		}
		kinds = append(kinds, kind)
		k.last = n
		maps.DeleteFunc(k.overtaking, func(seq uint64, _ struct{}) bool { return seq <= n })
		k.advance()
	}
	slices.Sort(kinds)
	return known, kinds
}

// forget removes the servers that have gone.
func (re *receivedEvents) forget() {
	re.mu.Lock()
	defer re.mu.Unlock()
	maps.DeleteFunc(re.servers, func(_ string, s *serverEvents) bool { return time.Since(s.lastEvent) > forgetServer })
}

// kindLocked returns the events of a server and kind, or nil if there are too many servers.
func (re *receivedEvents) kindLocked(from string, kind eventKind) *kindEvents {
	s := re.servers[from]
	if s == nil {
		if len(re.servers) >= maxKnownServers {
			return nil
		}
		s = &serverEvents{kinds: make(map[eventKind]*kindEvents)}
		sparse.Set(&re.servers, from, s)
	}
	s.lastEvent = time.Now()
	k := s.kinds[kind]
	if k == nil {
		k = new(kindEvents)
		s.kinds[kind] = k
	}
	return k
}

func (k *kindEvents) add(seq uint64) {
	switch {
	case seq <= k.last || len(k.overtaking) >= maxOvertaking:
		return
	case seq == k.last+1:
		k.last = seq
		k.advance()
		return
	case k.overtaking == nil:
		k.overtaking = make(map[uint64]struct{})
	}
	k.overtaking[seq] = struct{}{}
}

// advance increases last while the next event has arrived.
func (k *kindEvents) advance() {
	for {
		if _, ok := k.overtaking[k.last+1]; !ok {
			return
		}
		k.last++
		delete(k.overtaking, k.last)
	}
}

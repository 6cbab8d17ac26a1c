package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
)

// A Subscription receives change notifications until the caller closes it or the server ends it.
// Create one with [Client.Listen]. Multiple goroutines may call its methods at once.
//
// After a reconnect the Client renews the subscription. It then sends the event [Resubscribed], and
// an event with [Event.Missed] set for everything in the filter, because notifications in between
// were lost.
type Subscription struct {
	c         *Client
	requested mcp.SubscriptionFilter
	queue     *eventQueue
	stop      context.CancelFunc
	// done is closed when run has returned.
	done chan struct{}

	// acknowledged is closed at the first acknowledgment by the server.
	acknowledged chan struct{}

	mu       sync.Mutex
	accepted mcp.SubscriptionFilter
	// ackPending is set until this connection's acknowledgment.
	ackPending bool
	// closing is set by Close.
	closing bool
	err     error
}

// Listen subscribes to changes and waits for the acknowledgment: [Subscription.Accepted] returns
// what the server accepted. ctx covers the wait only; the caller must close the Subscription. A
// modern server gets a subscriptions/listen request
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions). For a
// legacy server, the Client subscribes to the resources and filters the notifications that all
// clients get.
//
// The error is the server's if it supports no subscriptions, or if the filter names tasks without
// [Options.Tasks]. It is a *[TimeoutError] if the server does not answer within [Timeouts.Call].
func (c *Client) Listen(ctx context.Context, filter mcp.SubscriptionFilter) (*Subscription, error) {
	s := c.subs.open(ctx, cloneFilter(filter))
	if s == nil {
		return nil, fmt.Errorf("listen: %w", jsonrpc.ErrClosed)
	}
	select {
	case <-s.acknowledged:
		return s, nil
	case <-s.done:
		if s.established() { // it ended right after the acknowledgment
			return s, nil
		}
		if err := s.Err(); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		return nil, fmt.Errorf("listen: %w", &ProtocolError{Method: mcp.MethodSubscriptionsListen, Reason: "ended before it was acknowledged"})
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("listen: not acknowledged: %w", context.Cause(ctx))
	}
}

// ListenFunc is [Client.Listen] with a callback. fn receives one event at a time, on a goroutine
// that ends with the Subscription. fn may close the Subscription, but not the Client, which waits
// for fn.
func (c *Client) ListenFunc(ctx context.Context, filter mcp.SubscriptionFilter, fn func(Event)) (*Subscription, error) {
	s, err := c.Listen(ctx, filter)
	if err != nil {
		return nil, err
	}
	started := c.goroutines.Start(func() {
		for e, err := range s.Events(context.Background()) {
			if err != nil {
				return // Err returns it
			}
			fn(e)
		}
	})
	if !started {
		s.Close()
		return nil, fmt.Errorf("listen: %w", jsonrpc.ErrClosed)
	}
	return s, nil
}

// open starts a subscription without waiting for the acknowledgment. It returns nil if
// the client has ended.
func (ss *subscriptions) open(ctx context.Context, requested mcp.SubscriptionFilter) *Subscription {
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Subscription{c: ss.c, requested: requested, stop: stop, acknowledged: make(chan struct{}), done: make(chan struct{})}
	s.queue = newEventQueue(maxPendingEvents+filterSize(&s.requested), s.missed)
	if !ss.c.goroutines.Start(func() { s.finish(s.run(runCtx)) }) {
		stop()
		return nil
	}
	return s
}

// Accepted returns the part of the filter that the server accepted. It may change after a
// reconnect.
func (s *Subscription) Accepted() mcp.SubscriptionFilter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cloneFilter(s.accepted)
}

// Events yields events as they happen. When ctx ends, the loop yields its error and ends. When the
// Subscription is lost for good, the loop yields [Subscription.Err] and ends. After Close, or when
// the server ends the Subscription, the loop ends without an error. Each event goes to one loop.
// Leaving the loop does not close the Subscription.
//
// Events that are not read do not accumulate: a repeated change is reported once.
func (s *Subscription) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			e, ok, err := s.queue.next(ctx)
			if err == nil && !ok {
				err = s.Err()
			}
			if err != nil {
				yield(Event{}, err)
				return
			}
			if !ok || !yield(e, nil) {
				return
			}
		}
	}
}

// Done returns a channel that is closed when the Subscription has ended.
func (s *Subscription) Done() <-chan struct{} { return s.done }

// Err returns the reason for the end of the Subscription. It is nil before the end, after Close,
// and if the server ended the Subscription on purpose.
func (s *Subscription) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the Subscription and notifies the server. It waits up to 5 s for a legacy server to
// confirm. It drops unread events. Close may be called more than once and always returns nil.
func (s *Subscription) Close() error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.queue.close(true)
	s.stop()
	<-s.done
	return nil
}

// finish records the end of the subscription.
func (s *Subscription) finish(err error) {
	s.stop()
	s.mu.Lock()
	if !s.closing {
		s.err = err
	}
	s.mu.Unlock()
	s.queue.close(false)
	close(s.done)
}

// Waits before a lost subscription is renewed.
const (
	minResubscribe = 100 * time.Millisecond
	maxResubscribe = 30 * time.Second
)

// run keeps the subscription alive. It returns nil if the server or ctx has ended it.
func (s *Subscription) run(ctx context.Context) error {
	tries := 0 // since the last acknowledgment
	for wait := minResubscribe; ; wait = min(2*wait, maxResubscribe) {
		began := time.Now()
		reconnected := s.c.subs.nextConnection()
		err := s.serve(ctx, reconnected)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		_, malformed := errors.AsType[*ProtocolError](err)
		callErr, unsent := errors.AsType[*jsonrpc.CallError](err)
		// An unprocessed request may be sent again, whatever error the server gives.
		unsent = unsent && callErr.Outcome == jsonrpc.OutcomeUnprocessed && !isConnectionLost(err)
		if tries++; s.established() {
			tries = 0
		}
		switch {
		case unsent && callErr.RetryAfter <= maxRetryAfter && tries < s.c.opts.Retry.MaxAttempts:
		case malformed || IsServerError(err) || isRefused(err) || !s.established():
			return err
		}
		if errors.Is(err, errReconnected) || time.Since(began) > maxResubscribe {
			wait = minResubscribe
		}
		s.c.log.Info("subscription lost", "error", err)
		delay := rand.N(wait) + wait/2
		if unsent {
			delay += callErr.RetryAfter
		}
		select {
		case <-reconnected:
		case <-time.After(delay):
		case <-s.c.Done():
			return s.c.conns.endError()
		case <-ctx.Done():
		}
	}
}

// serve subscribes on the current connection and returns when that subscription ends.
func (s *Subscription) serve(ctx context.Context, reconnected <-chan struct{}) error {
	s.mu.Lock()
	s.ackPending = true
	s.mu.Unlock()
	if !s.c.Revision().Modern() {
		return s.serveLegacy(ctx, reconnected)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d := s.c.opts.Timeouts.Call; d > 0 {
		defer time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.ackPending {
				cancel(&TimeoutError{Method: mcp.MethodSubscriptionsListen, After: d, option: "Options.Timeouts.Call"})
			}
		}).Stop()
	}
	var id string
	defer func() { s.c.subs.remove(id, s) }()
	_, err := s.c.subs.listen(ctx, mcp.MethodSubscriptionsListen, append(mcp.Append([]byte(`{"notifications":`), &s.requested, mcp.RevisionNone), '}'), func(next jsonrpc.ID) {
		s.c.subs.remove(id, s)
		id = next.String()
		s.c.subs.add(id, s)
	})
	return err
}

// established reports whether the server has ever acknowledged the subscription.
func (s *Subscription) established() bool { return wait.Closed(s.acknowledged, 0) }

// acknowledge records the filter that the server accepted. After the first time, it reports
// everything in the filter as possibly changed.
func (s *Subscription) acknowledge(accepted mcp.SubscriptionFilter) {
	s.mu.Lock()
	wasPending := s.ackPending
	s.ackPending = false
	if wasPending {
		s.accepted = intersectFilters(&s.requested, &accepted)
	}
	s.mu.Unlock()
	switch {
	case !wasPending: // a repeated acknowledgment
		return
	case !s.established():
		close(s.acknowledged)
		return
	}
	s.queue.put(Event{Kind: Resubscribed})
	for _, e := range s.missed() {
		s.c.caches.invalidate(e)
		s.queue.put(e)
	}
}

// enqueue adds an event to the queue if it matches the filter.
func (s *Subscription) enqueue(e Event) {
	if matchesFilter(&s.requested, e) {
		s.queue.put(e)
	}
}

// missed returns an event with Missed set for everything in the accepted filter.
func (s *Subscription) missed() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return missedEvents(&s.accepted)
}

var errReconnected = errors.New("the client reconnected")

// unsubscribeTimeout limits the wait for a legacy server to confirm the end of subscriptions.
const unsubscribeTimeout = 5 * time.Second

// serveLegacy is serve for a legacy server. It subscribes to each resource and leaves filtering of
// the notifications to enqueueLegacy. It returns when the connection is lost or ctx ends.
func (s *Subscription) serveLegacy(ctx context.Context, reconnected <-chan struct{}) error {
	subs := &s.c.subs
	subs.mu.Lock()
	sparse.Set(&subs.legacy, s, struct{}{})
	subs.mu.Unlock()
	defer func() {
		subs.mu.Lock()
		delete(subs.legacy, s)
		subs.mu.Unlock()
	}()
	caps := s.c.Profile().Capabilities
	accepted := intersectFilters(&s.requested, &mcp.SubscriptionFilter{
		ToolsListChanged:     caps.Tools != nil && caps.Tools.ListChanged,
		PromptsListChanged:   caps.Prompts != nil && caps.Prompts.ListChanged,
		ResourcesListChanged: caps.Resources != nil && caps.Resources.ListChanged,
		TaskIDs:              s.requested.TaskIDs, // the server may or may not report them
	})
	var uris []string
	if caps.Resources != nil && caps.Resources.Subscribe {
		uris = s.requested.ResourceSubscriptions
	}
	for _, uri := range uris {
		err := s.c.subs.subscribe(ctx, uri)
		switch {
		case err == nil:
			accepted.ResourceSubscriptions = append(accepted.ResourceSubscriptions, uri)
		case !IsServerError(err):
			s.c.subs.unsubscribe(accepted.ResourceSubscriptions)
			return err
		default:
			s.c.log.Info("server does not allow a subscription to a resource", "uri", uri, "error", err)
		}
	}
	s.acknowledge(accepted)
	select {
	case <-reconnected:
		for _, uri := range accepted.ResourceSubscriptions {
			subs.adjustCount(uri, -1) // it ended with its connection
		}
		return errReconnected
	case <-ctx.Done():
		s.c.subs.unsubscribe(accepted.ResourceSubscriptions)
		return nil
	case <-s.c.Done():
		return s.c.conns.endError()
	}
}

// enqueueLegacy is enqueue for a notification that all clients get.
func (s *Subscription) enqueueLegacy(e Event) {
	if e.Kind == ResourceUpdated && !slices.ContainsFunc(s.requested.ResourceSubscriptions, func(uri string) bool { return era.IsSubresource(e.URI, uri) }) {
		return
	}
	s.enqueue(e)
}

// lockLegacy serializes changes to a legacy server's resource subscriptions. Otherwise an
// unsubscribe could overtake a later subscribe to the same resource.
func (ss *subscriptions) lockLegacy(ctx context.Context) (release func(), err error) {
	select {
	case ss.legacySlot <- struct{}{}:
		return func() { <-ss.legacySlot }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// adjustCount adds n to the number of subscriptions to a resource and returns the sum.
func (ss *subscriptions) adjustCount(uri string, n int) int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sum := ss.uriCounts[uri] + n
	if sum == 0 {
		delete(ss.uriCounts, uri)
	} else {
		sparse.Set(&ss.uriCounts, uri, sum)
	}
	return sum
}

func (ss *subscriptions) subscribe(ctx context.Context, uri string) error {
	release, err := ss.lockLegacy(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, err := ss.c.roundTrip(ctx, &request{method: mcp.MethodResourcesSubscribe, params: uriParams(uri), repeatable: true, internal: true}); err != nil {
		return fmt.Errorf("subscribe to %q: %w", uri, err)
	}
	ss.adjustCount(uri, 1)
	return nil
}

// unsubscribe releases subscriptions and unsubscribes from resources that no other one needs.
func (ss *subscriptions) unsubscribe(uris []string) {
	ctx, cancel := context.WithTimeout(context.Background(), unsubscribeTimeout)
	defer cancel()
	for _, uri := range uris {
		release, err := ss.lockLegacy(ctx)
		last := ss.adjustCount(uri, -1) == 0
		if err == nil {
			if last {
				_, err = ss.c.roundTrip(ctx, &request{method: mcp.MethodResourcesUnsubscribe, params: uriParams(uri), internal: true})
			}
			release()
		}
		if err != nil {
			ss.c.log.Debug("not unsubscribed", "uri", uri, "error", err)
		}
	}
}

// changeKinds maps change notifications to kinds of event.
var changeKinds = map[string]EventKind{
	mcp.NotificationToolsChanged:     ToolsListChanged,
	mcp.NotificationPromptsChanged:   PromptsListChanged,
	mcp.NotificationResourcesChanged: ResourcesListChanged,
	mcp.NotificationResourceUpdated:  ResourceUpdated,
	mcp.NotificationTasks:            TaskUpdated, // of the extension
	mcp.NotificationTaskStatus:       TaskUpdated, // of legacy servers
}

// subscriptions holds the subscriptions of a client.
type subscriptions struct {
	c *Client

	mu sync.Mutex
	// modern maps the id of a listen request to its subscription.
	modern map[string]*Subscription
	legacy map[*Subscription]struct{}
	// uriCounts counts the legacy subscriptions to each resource.
	uriCounts map[string]int
	// nextConn is closed after a reconnect. nextConnection creates it.
	nextConn chan struct{}
	// legacySlot has a token while the lock of lockLegacy is held.
	legacySlot chan struct{}
}

func (ss *subscriptions) add(id string, s *Subscription) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sparse.Set(&ss.modern, id, s)
}

func (ss *subscriptions) remove(id string, s *Subscription) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.modern[id] == s { // on another connection the id may belong to another one
		delete(ss.modern, id)
	}
}

func (ss *subscriptions) find(params []byte) *Subscription {
	id := subscriptionID(params)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.modern[id]
}

// subscriptionID returns the JSON text of the subscription id in a notification, or "".
func subscriptionID(params []byte) string {
	return string(jsonwire.Lookup(jsonwire.Lookup(params, "_meta"), mcp.MetaSubscriptionID))
}

// nextConnection returns a channel that is closed after the next reconnect.
func (ss *subscriptions) nextConnection() <-chan struct{} {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.nextConn == nil {
		ss.nextConn = make(chan struct{})
	}
	return ss.nextConn
}

func (ss *subscriptions) reconnected() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.nextConn != nil {
		close(ss.nextConn)
		ss.nextConn = nil
	}
}

// acknowledged handles notifications/subscriptions/acknowledged.
func (ss *subscriptions) acknowledged(params []byte) {
	if s := ss.find(params); s != nil {
		s.acknowledge(parseFilter(jsonwire.Lookup(params, "notifications")))
	}
}

// handleChange handles a change notification.
func (ss *subscriptions) handleChange(kind EventKind, params []byte) {
	e := Event{Kind: kind}
	switch kind {
	case ResourceUpdated:
		e.URI = parseURIParam(params)
	case TaskUpdated:
		e.TaskID = jsonwire.Text(jsonwire.Lookup(params, "taskId"))
	}
	ss.c.caches.invalidate(e)
	if ss.c.Revision().Modern() {
		if s := ss.find(params); s != nil {
			s.enqueue(e)
		}
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.legacy {
		s.enqueueLegacy(e)
	}
}

func cloneFilter(f mcp.SubscriptionFilter) mcp.SubscriptionFilter {
	f.ResourceSubscriptions = slices.Clone(f.ResourceSubscriptions)
	f.TaskIDs = slices.Clone(f.TaskIDs)
	return f
}

// filterSize returns an upper limit of the distinct changes that match a filter.
func filterSize(f *mcp.SubscriptionFilter) int {
	return 3 + len(f.ResourceSubscriptions) + len(f.TaskIDs)
}

// missedEvents returns an event with Missed set for everything in a filter.
func missedEvents(f *mcp.SubscriptionFilter) []Event {
	var all []Event
	add := func(yes bool, e Event) {
		if yes {
			e.Missed = true
			all = append(all, e)
		}
	}
	add(f.ToolsListChanged, Event{Kind: ToolsListChanged})
	add(f.PromptsListChanged, Event{Kind: PromptsListChanged})
	add(f.ResourcesListChanged, Event{Kind: ResourcesListChanged})
	for _, uri := range f.ResourceSubscriptions {
		add(true, Event{Kind: ResourceUpdated, URI: uri})
	}
	for _, id := range f.TaskIDs {
		add(true, Event{Kind: TaskUpdated, TaskID: id})
	}
	return all
}

// matchesFilter reports whether an event matches a filter. It accepts every resource if any is in
// the filter, because a modern server decides which ones are parts of those.
func matchesFilter(f *mcp.SubscriptionFilter, e Event) bool {
	switch e.Kind {
	case ToolsListChanged:
		return f.ToolsListChanged
	case PromptsListChanged:
		return f.PromptsListChanged
	case ResourcesListChanged:
		return f.ResourcesListChanged
	case ResourceUpdated:
		return len(f.ResourceSubscriptions) > 0
	case TaskUpdated:
		return slices.Contains(f.TaskIDs, e.TaskID)
	}
	return true
}

// intersectFilters returns the common part of two filters.
func intersectFilters(f, g *mcp.SubscriptionFilter) mcp.SubscriptionFilter {
	return mcp.SubscriptionFilter{
		ToolsListChanged:      f.ToolsListChanged && g.ToolsListChanged,
		PromptsListChanged:    f.PromptsListChanged && g.PromptsListChanged,
		ResourcesListChanged:  f.ResourcesListChanged && g.ResourcesListChanged,
		ResourceSubscriptions: intersect(f.ResourceSubscriptions, g.ResourceSubscriptions),
		TaskIDs:               intersect(f.TaskIDs, g.TaskIDs),
	}
}

// intersect returns the elements of a that are also in b.
func intersect(a, b []string) []string {
	in := make(map[string]struct{}, len(b))
	for _, s := range b {
		in[s] = struct{}{}
	}
	var shared []string
	for _, s := range a {
		if _, ok := in[s]; ok {
			shared = append(shared, s)
		}
	}
	return shared
}

// parseFilter decodes a filter. It treats members of the wrong type as absent.
func parseFilter(text []byte) (f mcp.SubscriptionFilter) {
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		yes := string(members.Value()) == "true"
		switch members.KeyString() {
		case "toolsListChanged":
			f.ToolsListChanged = yes
		case "promptsListChanged":
			f.PromptsListChanged = yes
		case "resourcesListChanged":
			f.ResourcesListChanged = yes
		case "resourceSubscriptions":
			f.ResourceSubscriptions = stringValues(members.Value())
		case "taskIds":
			f.TaskIDs = stringValues(members.Value())
		}
	}
	return f
}

// stringValues returns the strings in a JSON array.
func stringValues(text []byte) []string {
	var all []string
	elements := jsonwire.ArrayElements(text)
	for elements.Next() {
		if s, ok := jsonwire.String(elements.Value()); ok {
			all = append(all, s)
		}
	}
	return all
}

// An Event is a change that a [Subscription] reports.
type Event struct {
	// Kind says what has changed.
	Kind EventKind
	// URI is the resource, or the part of it, that changed. It is set for ResourceUpdated.
	URI string
	// TaskID is the task that changed. It is set for TaskUpdated.
	TaskID string
	// Missed is set if the change is only possible, because notifications may have been lost.
	Missed bool
}

// EventKind is the kind of an [Event].
type EventKind string

// The kinds of event.
const (
	// Resubscribed means that the subscription was renewed after a reconnect and that notifications
	// in between were lost. Events with Missed set follow for everything in the filter.
	Resubscribed         EventKind = "resubscribed"
	ToolsListChanged     EventKind = "tools list changed"
	PromptsListChanged   EventKind = "prompts list changed"
	ResourcesListChanged EventKind = "resources list changed"
	ResourceUpdated      EventKind = "resource updated"
	TaskUpdated          EventKind = "task updated"
)

// Limits of the unread events. The capacity also has room for one of each distinct change.
const (
	maxPendingEvents     = 1024
	maxPendingEventBytes = 1 << 20 // of URIs and task ids; one event may exceed it
)

// An eventQueue holds events until they are read. Each event says that something has changed, so
// the queue drops duplicates.
type eventQueue struct {
	// onOverflow returns the events, with Missed set, that replace a full queue.
	onOverflow func() []Event

	mu sync.Mutex
	// queued has the events in order, without Missed.
	queued []Event
	// pending maps the queued events to their Missed.
	pending map[Event]bool
	// bytes is the size of the URIs and task ids in queued.
	bytes    int
	capacity int
	closed   bool
	// ready has a token when queued may not be empty.
	ready chan struct{}
}

func newEventQueue(capacity int, onOverflow func() []Event) *eventQueue {
	return &eventQueue{onOverflow: onOverflow, pending: make(map[Event]bool), capacity: capacity, ready: make(chan struct{}, 1)}
}

// put adds events without blocking.
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
	wait.Signal(q.ready)
}

// fullLocked reports whether the queue has no room for e. A duplicate always fits.
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

// close ends the queue. discard drops the queued events.
func (q *eventQueue) close(discard bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if discard {
		q.queued, q.pending = nil, nil
	}
	wait.Signal(q.ready)
}

// next waits for an event. ok is false at the end of the queue. The error is the cause of ctx.
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
			wait.Signal(q.ready) // wakes other readers
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
		wait.Signal(q.ready)
	}
	return e, true, false
}

// listen sends a request that lasts until the server ends it, without a timeout and without
// retries. It calls onID before it sends the request. The result is nil if the server ended the
// request with a cancellation instead of a response.
func (ss *subscriptions) listen(ctx context.Context, method string, params []byte, onID func(id jsonrpc.ID)) (result []byte, err error) {
	r := &request{method: method, params: params, opts: callOptions{timeout: -1, maxTimeout: -1}}
	m := middleware.Message{Direction: jsonrpc.Outgoing, Method: method, Params: params}
	return ss.c.runChain(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		q := *r
		var meta []byte
		q.params, meta = splitMeta(m.Params)
		q.opts.meta = bytes.Clone(objectBody(meta))
		return ss.listenDirect(ctx, &q, onID)
	})
}

// listenDirect is listen without the middleware.
func (ss *subscriptions) listenDirect(ctx context.Context, r *request, onID func(id jsonrpc.ID)) (result []byte, err error) {
	ac := ss.c.newActiveCall(r)
	defer ac.release()
	conn, err := ac.connection(ctx)
	if err != nil {
		return nil, err
	}
	neg := conn.negotiated.Load()
	p, err := conn.rpc.NewCall(r.method)
	if err != nil {
		ss.c.conns.drop(conn)
		return nil, err
	}
	id, _ := jsonwire.ParseInt(p.ID())
	ended := conn.addStream(id)
	defer conn.removeStream(id)
	onID(p.ID())
	ac.buildParams(neg)
	if err := p.Send(ctx, ac.params); err != nil {
		return nil, err
	}
	select {
	case <-p.Done():
	case <-ended:
		if p.Abandon() {
			return nil, nil
		}
		<-p.Done()
	case <-ctx.Done():
		if p.Cancel(ctx.Err().Error()) {
			return nil, fmt.Errorf("call %s: %w", r.method, context.Cause(ctx))
		}
		<-p.Done()
	}
	if result, err = p.Result(); err != nil {
		if isConnectionLost(err) {
			ss.c.conns.drop(conn)
		}
		return nil, err
	}
	neg.confirm()
	if _, err := ac.checkResult(neg, result); err != nil {
		return nil, err
	}
	return result, nil
}

// addStream returns a channel that is closed when the server cancels the request.
func (cn *connection) addStream(id int64) <-chan struct{} {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	ended := make(chan struct{})
	sparse.Set(&cn.streams, id, ended)
	return ended
}

func (cn *connection) removeStream(id int64) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.streams, id)
}

// endStream handles the server's cancellation of a request of this side.
func (cn *connection) endStream(id []byte) {
	n, ok := jsonwire.ParseInt(id)
	if !ok {
		return
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if ended := cn.streams[n]; ended != nil {
		close(ended)
		delete(cn.streams, n)
	}
}

// recoverGap treats everything that a legacy server notifies about as changed, because the
// transport has lost notifications.
func (ss *subscriptions) recoverGap() {
	for _, kind := range []EventKind{ToolsListChanged, PromptsListChanged, ResourcesListChanged} {
		ss.c.caches.invalidate(Event{Kind: kind})
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.legacy {
		for _, e := range s.missed() {
			ss.c.caches.invalidate(e)
			s.queue.put(e)
		}
	}
}

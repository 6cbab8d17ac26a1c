package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Subscription tells of changes on the server, until it is closed or the server ends it. Make one with [Client.Listen]. Its methods may be called by many
// goroutines at once.
//
// When the connection is lost and made again, so is the subscription: what happened in between was missed, so there is an event that says so
// ([Resubscribed]) and, with [Event.Missed] set, one for everything that the subscription is about.
type Subscription struct {
	c         *Client
	requested mcp.SubscriptionFilter
	queue     *eventQueue
	stop      context.CancelFunc
	done      chan struct{} // closed when run has returned

	acknowledged chan struct{} // closed when the server has acknowledged it once

	mu         sync.Mutex
	accepted   mcp.SubscriptionFilter
	ackPending bool // for the acknowledgement of this connection
	closing    bool // by Close
	err        error
}

// Listen subscribes to changes and waits until the server has said to which ones it can: see [Subscription.Accepted]. ctx covers that only; close the
// Subscription in the end. It works the same in both eras: a modern server is sent a subscriptions/listen
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions); of what a legacy server tells everybody, it picks out what was asked
// for, and subscribes to the resources.
//
// It fails with the server's error if that can tell of nothing at all, and if the filter names tasks without [Options.Tasks]; with a *[TimeoutError] if the
// server says nothing for [Options.CallTimeout].
func (c *Client) Listen(ctx context.Context, filter mcp.SubscriptionFilter) (*Subscription, error) {
	s := c.openSubscription(ctx, cloneFilter(filter))
	if s == nil {
		return nil, fmt.Errorf("listen: %w", jsonrpc.ErrClosed)
	}
	select {
	case <-s.acknowledged:
		return s, nil
	case <-s.done:
		if s.established() { // and ended right afterwards
			return s, nil
		}
		if err := s.Err(); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		return nil, fmt.Errorf("listen: %w", &ProtocolError{Method: mcp.MethodSubscriptionsListen, Reason: "it was ended before it was acknowledged"})
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("listen: not acknowledged: %w", context.Cause(ctx))
	}
}

// ListenFunc is [Client.Listen] for those who would rather be called: fn gets each event, one at a time, on a goroutine that ends with the Subscription. fn
// may close the Subscription, but not the Client, which waits for it.
func (c *Client) ListenFunc(ctx context.Context, filter mcp.SubscriptionFilter, fn func(Event)) (*Subscription, error) {
	s, err := c.Listen(ctx, filter)
	if err != nil {
		return nil, err
	}
	started := c.goroutines.start(func() {
		for e, err := range s.Events(context.Background()) {
			if err != nil {
				return // it is there for Err
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

// openSubscription begins to subscribe and does not wait for the acknowledgement. It returns nil if the client has ended.
func (c *Client) openSubscription(ctx context.Context, requested mcp.SubscriptionFilter) *Subscription {
	c.trackChanges()
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Subscription{c: c, requested: requested, stop: stop, acknowledged: make(chan struct{}), done: make(chan struct{})}
	s.queue = newEventQueue(maxPendingEvents+filterSize(&s.requested), s.missed)
	if !c.goroutines.start(func() { s.finish(s.run(runCtx)) }) {
		stop()
		return nil
	}
	return s
}

// Accepted returns the part of the filter that the server tells of. It may differ after a reconnect.
func (s *Subscription) Accepted() mcp.SubscriptionFilter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cloneFilter(s.accepted)
}

// Events yields what happens. The loop ends when ctx ends, and then yields its error; when the Subscription ends because it was lost for good, and then
// yields [Subscription.Err]; and without an error when the Subscription was closed or the server has ended it. Each event goes to one loop. Leaving the loop
// does not close the Subscription.
//
// Events that nobody takes do not pile up: the same change is told once, however often it happened.
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

// Done is closed when the Subscription has ended.
func (s *Subscription) Done() <-chan struct{} { return s.done }

// Err returns why the Subscription has ended; nil as long as it has not, after Close, and if the server ended it on purpose.
func (s *Subscription) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the Subscription and lets the server know, which a legacy one has 5 s to confirm. Events that were not taken are dropped. It may be called more
// than once, and always returns nil.
func (s *Subscription) Close() error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.queue.close(true)
	s.stop()
	<-s.done
	return nil
}

// finish records how the subscription has ended.
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

// Waits before a subscription that was lost is made again.
const (
	minResubscribe = 100 * time.Millisecond
	maxResubscribe = 30 * time.Second
)

// run keeps the subscription up. It returns nil if the server has ended it, or ctx.
func (s *Subscription) run(ctx context.Context) error {
	tries := 0 // before it was established
	for wait := minResubscribe; ; wait = min(2*wait, maxResubscribe) {
		began := time.Now()
		reconnected := s.c.subs.nextConnection()
		err := s.serve(ctx, reconnected)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		_, malformed := errors.AsType[*ProtocolError](err)
		callErr, unsent := errors.AsType[*jsonrpc.CallError](err)
		unsent = unsent && callErr.Outcome == jsonrpc.OutcomeUnprocessed && !isConnectionLost(err) // whatever the server says of it
		if tries++; s.established() {
			tries = 0
		}
		switch {
		case unsent && callErr.RetryAfter <= maxRetryAfter && tries < s.c.opts.Retry.MaxAttempts:
		case malformed || IsPeer(err) || isRefused(err) || !s.established():
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
		timer := time.NewTimer(delay)
		select {
		case <-reconnected:
		case <-timer.C:
		case <-s.c.Done():
			timer.Stop()
			return s.c.endError()
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// endError returns the error that all calls of a Client fail with that has ended.
func (c *Client) endError() error {
	_, _, err := c.current()
	return err
}

// serve makes the subscription on the connection that there is, and returns when it ends.
func (s *Subscription) serve(ctx context.Context, reconnected <-chan struct{}) error {
	s.mu.Lock()
	s.ackPending = true
	s.mu.Unlock()
	if !s.c.Modern() {
		return s.serveLegacy(ctx, reconnected)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d := s.c.opts.CallTimeout; d > 0 {
		defer time.AfterFunc(d, func() {
			if s.isAckPending() {
				cancel(&TimeoutError{Method: mcp.MethodSubscriptionsListen, After: d, option: "Options.CallTimeout"})
			}
		}).Stop()
	}
	var id string
	defer func() { s.c.subs.remove(id, s) }()
	_, err := s.c.stream(ctx, mcp.MethodSubscriptionsListen, append(s.requested.AppendJSON([]byte(`{"notifications":`)), '}'), func(next jsonrpc.ID) {
		s.c.subs.remove(id, s)
		id = next.String()
		s.c.subs.add(id, s)
	})
	return err
}

// isAckPending reports whether there is no acknowledgement yet on this connection.
func (s *Subscription) isAckPending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ackPending
}

// established reports whether the server has acknowledged the subscription.
func (s *Subscription) established() bool {
	select {
	case <-s.acknowledged:
		return true
	default:
		return false
	}
}

// acknowledge takes what the server is ready to tell. When it is not the first time, whatever there is may have changed.
func (s *Subscription) acknowledge(accepted mcp.SubscriptionFilter) {
	s.mu.Lock()
	wasPending := s.ackPending
	s.ackPending = false
	if wasPending {
		s.accepted = intersectFilters(&s.requested, &accepted)
	}
	s.mu.Unlock()
	switch {
	case !wasPending: // there was one before
		return
	case !s.established():
		close(s.acknowledged)
		return
	}
	s.queue.put(Event{Kind: Resubscribed})
	for _, e := range s.missed() {
		s.c.invalidate(e)
		s.queue.put(e)
	}
}

// enqueue puts an event into the queue if it was asked for.
func (s *Subscription) enqueue(e Event) {
	if matchesFilter(&s.requested, e) {
		s.queue.put(e)
	}
}

// missed returns an event for everything that the subscription is about.
func (s *Subscription) missed() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return missedEvents(&s.accepted)
}

package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"
)

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

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
	maxEvents    = 4096            // that wait to be published
	maxEventName = 8 << 10         // bytes of what one is about
	busPatience  = 5 * time.Second // for the bus to take an event, and to return when it is told to
	busBackoff   = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second // between two attempts to subscribe
	busStable    = time.Minute      // after which the end of a subscription is no failure
)

// A relay connects a server to its bus. One goroutine of it listens to the bus from when the server first serves until the server is closed; another one
// publishes, and is there only while there is something to publish. Nobody else ever waits for the bus.
type relay struct {
	bus    Bus
	id     string
	take   func(Event)
	log    *slog.Logger
	listen context.Context // ends first
	mute   context.CancelFunc
	speak  context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	open      bool // the server serves and is not closed
	closed    bool
	waiting   map[Event]struct{} // once each, however often they have happened
	lost      int                // of which there were too many
	speaking  bool               // there is a goroutine that publishes
	published chan struct{}      // closed when there is none any more
}

func newRelay(bus Bus, take func(Event), log *slog.Logger) *relay {
	r := &relay{bus: bus, id: rand.Text(), take: take, log: log}
	r.listen, r.mute = context.WithCancel(context.Background())
	r.speak, r.stop = context.WithCancel(context.Background())
	return r
}

// start is called when the server first serves. What happens before that is nobody else's business. r may be nil, as in the methods below.
func (r *relay) start() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open || r.closed {
		return
	}
	r.open = true
	r.wg.Go(r.subscribe)
}

// subscribe takes what the bus delivers until the server is closed.
func (r *relay) subscribe() {
	deliver := func(e Event) {
		if e.From != r.id && r.listen.Err() == nil {
			r.take(e)
		}
	}
	for wait := busBackoff; ; wait = min(2*wait, maxBackoff) {
		began := time.Now()
		_, err := guard(func() (struct{}, error) { return struct{}{}, r.bus.Subscribe(r.listen, deliver) })
		if r.listen.Err() != nil {
			return
		}
		if time.Since(began) >= busStable {
			wait = busBackoff
		}
		r.log.Warn("the bus delivers no more, subscribing again", "after", wait, "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.listen.Done():
			timer.Stop()
			return
		}
	}
}

// publish has an event published soon.
func (r *relay) publish(e Event) {
	if r == nil {
		return
	}
	e.From = r.id
	r.mu.Lock()
	defer r.mu.Unlock()
	_, waits := r.waiting[e]
	switch {
	case !r.open || waits:
		return
	case len(r.waiting) >= maxEvents || len(e.Name) > maxEventName:
		r.lost++
		return
	}
	if r.waiting == nil {
		r.waiting = make(map[Event]struct{})
	}
	r.waiting[e] = struct{}{}
	if !r.speaking {
		r.speaking, r.published = true, make(chan struct{})
		r.wg.Go(r.speakUp)
	}
}

// speakUp publishes until there is nothing left to publish.
func (r *relay) speakUp() {
	for {
		events, lost := r.next()
		if lost > 0 {
			r.log.Warn("events not published: there are too many, or they name too much", "number", lost)
		}
		if events == nil {
			return
		}
		failed := 0
		for e := range events {
			if err := r.say(e); err != nil {
				if failed++; failed == 1 {
					r.log.Error("event not published", "kind", string(e.Kind), "error", err)
				}
			}
		}
		if failed > 1 {
			r.log.Error("events not published", "number", failed)
		}
	}
}

// next returns what is to be published; nil ends the goroutine that does it.
func (r *relay) next() (events map[Event]struct{}, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, lost = r.waiting, r.lost
	r.waiting, r.lost = nil, 0
	if events == nil || r.speak.Err() != nil {
		r.speaking = false
		close(r.published)
		return nil, lost
	}
	return events, lost
}

func (r *relay) say(e Event) error {
	if err := r.speak.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.speak, busPatience)
	defer cancel()
	_, err := guard(func() (struct{}, error) { return struct{}{}, r.bus.Publish(ctx, e) })
	return err
}

var errBusHangs = errors.New("the bus does not return though its context has ended")

// close ends the subscription, publishes what waits if that does not take long, and waits for the goroutines, as long as ctx lets it.
func (r *relay) close(ctx context.Context) error {
	if r == nil {
		return nil
	}
	r.mute()
	r.mu.Lock()
	r.open, r.closed = false, true
	published, speaking := r.published, r.speaking
	r.mu.Unlock()
	if speaking {
		patience := time.NewTimer(busPatience)
		defer patience.Stop()
		select {
		case <-published:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	r.stop()
	gone := make(chan struct{})
	go func() { // it ends with the two
		r.wg.Wait()
		close(gone)
	}()
	patience := time.NewTimer(busPatience)
	defer patience.Stop()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-patience.C:
		return errBusHangs
	}
}

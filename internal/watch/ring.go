package watch

import (
	"sync"

	"mcpwire/capture"
)

const (
	maxRing   = 64 << 20 // bytes of events of taps without a file
	eventCost = 1 << 10  // of an event besides its payload
)

// A ring keeps the last events of taps without a file.
type ring struct {
	max int

	mu     sync.Mutex
	events map[eventKey]*capture.Event
	order  []eventKey
	bytes  int
}

func newRing(limit int) *ring { return &ring{max: limit, events: map[eventKey]*capture.Event{}} }

// put keeps an event, which must not be changed any more.
func (r *ring) put(e *capture.Event) {
	cost := eventCost + len(e.Data)
	k := eventKey{e.Capture, e.N}
	if e.N == 0 || cost > r.max {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events[k] != nil {
		return
	}
	r.events[k] = e
	r.order = append(r.order, k)
	r.bytes += cost
	for r.bytes > r.max {
		old := r.order[0]
		r.order = r.order[1:]
		r.bytes -= eventCost + len(r.events[old].Data)
		delete(r.events, old)
	}
}

// get returns an event, or nil.
func (r *ring) get(captureID string, n uint64) *capture.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[eventKey{captureID, n}]
}

// all returns the events of a capture up to a number, the oldest first.
func (r *ring) all(captureID string, last uint64) (list []*capture.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.order {
		if k.capture == captureID && k.n <= last {
			list = append(list, r.events[k])
		}
	}
	return list
}

package capture

import "time"

// A batch holds events between the one who records them and the goroutine that writes them. Small payloads share one piece of memory, which is used again.
type eventBuffer struct {
	events []queuedEvent
	data   []byte
	cost   int
}

type queuedEvent struct {
	ev       Event
	from, to int    // of the payload in batch.data, unless it is in ev.Data
	shared   bool   // it is in batch.data
	free     func() // gives the payload back; nil if it is the collector's
}

const (
	largePayload  = 64 << 10 // from here on a payload has memory of its own
	maxIdleData   = 1 << 20  // more is given back when the use is far less
	maxIdleEvents = 2048
	maxBufferCost = 4 << 20 // bytes: a batch does not grow above it, since growing copies
)

// emptyCopy returns a batch for as much as b holds.
func (b *eventBuffer) emptyCopy() *eventBuffer {
	return &eventBuffer{events: make([]queuedEvent, 0, len(b.events)), data: make([]byte, 0, len(b.data))}
}

// add appends an event. Its payload is copied, unless own says that the queue may keep it.
func (b *eventBuffer) add(e *Event, n uint64, t time.Duration, own []byte, cost int) {
	if len(b.events) < cap(b.events) {
		b.events = b.events[:len(b.events)+1]
	} else {
		b.events = append(b.events, queuedEvent{})
	}
	q := &b.events[len(b.events)-1]
	q.ev = *e
	q.ev.N, q.ev.T = n, t
	q.shared, q.free = false, nil
	b.cost += cost
	switch {
	case own != nil:
		q.ev.Data = own
	case e.Data != nil:
		q.shared = true
		q.from = len(b.data)
		b.data = append(b.data, e.Data...)
		q.to = len(b.data)
		q.ev.Data = nil
	}
}

// freeLast has the payload of the event that was added last given back when it is not needed any more.
func (b *eventBuffer) freeLast(free func()) { b.events[len(b.events)-1].free = free }

// event returns an event with its payload. It is good until reset.
func (b *eventBuffer) event(i int) *Event {
	q := &b.events[i]
	if q.shared {
		q.ev.Data = nonNil(b.data[q.from:q.to:q.to]) // empty is not absent, even if the batch has no memory yet
	}
	return &q.ev
}

// reset empties the batch, and lets go of what a burst has made it grow to.
func (b *eventBuffer) reset() {
	for i := range b.events {
		if free := b.events[i].free; free != nil {
			free()
		}
	}
	events, data := len(b.events), len(b.data)
	clear(b.events)
	b.events, b.data, b.cost = b.events[:0], b.data[:0], 0
	if cap(b.data) > maxIdleData && data < cap(b.data)/4 {
		b.data = nil
	}
	if cap(b.events) > maxIdleEvents && events < cap(b.events)/4 {
		b.events = nil
	}
}

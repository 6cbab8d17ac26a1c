package streamable

import (
	"hash/maphash"
	"net/http"
	"sync"
	"time"
)

// A caller is a principal, or a network address where there is none, with what it has in flight.
type caller struct {
	id   string
	part *callerPart

	// Guarded by part.mu.
	active int // requests being handled, without streams
	users  int // requests and streams that have a pointer to the caller; it is forgotten with the last
	next   *caller
}

// A callerTable has the callers that have something in flight. It is in parts so that requests do
// not all wait for one lock.
type callerTable struct {
	seed  maphash.Seed
	parts [16]callerPart
}

type callerPart struct {
	mu      sync.Mutex
	of      map[string]*caller
	pending *pending // the requests being handled, in no order
	spare   *caller  // callers to use again, linked by next
	spares  int
}

// maxSpares is how many callers a part keeps to use again.
const maxSpares = 64

// A pending is the place of a request among those being handled.
type pending struct {
	prev, next *pending
	of         cutter // nil if the request is not listed
	cut        bool   // somebody answers it in place of its handler, and uses it after it was served
	requests   int    // that it was admitted as
}

// A cutter answers its request at once, though the handler has not returned.
type cutter interface{ cutOff() }

func (t *callerTable) init() { t.seed = maphash.MakeSeed() }

// enter counts a request of the caller, and lists it if p is not nil. n is how many requests the
// caller has in flight, with this one.
func (t *callerTable) enter(id string, p *pending, of cutter) (c *caller, n int64) {
	part := &t.parts[maphash.String(t.seed, id)%uint64(len(t.parts))]
	part.mu.Lock()
	defer part.mu.Unlock()
	if c = part.of[id]; c == nil {
		c = part.addLocked(id)
	}
	c.users++
	c.active++
	if p != nil {
		p.prev, p.next, p.of, p.cut, p.requests = nil, part.pending, of, false, 0
		if p.next != nil {
			p.next.prev = p
		}
		part.pending = p
	}
	return c, int64(c.active)
}

func (t *callerPart) addLocked(id string) *caller {
	c := t.spare
	if c != nil {
		t.spare, c.next = c.next, nil
		t.spares--
	} else {
		c = &caller{part: t}
	}
	c.id = id
	if t.of == nil {
		t.of = make(map[string]*caller)
	}
	t.of[id] = c
	return c
}

// leave takes back what enter did. p is the one that enter was called with, unless it was unlisted
// since. It reports whether somebody else answers the request: its memory must not be used again.
func (c *caller) leave(p *pending) (cut bool) {
	t := c.part
	t.mu.Lock()
	defer t.mu.Unlock()
	if p != nil {
		cut = t.unlistLocked(p)
	}
	c.active--
	if c.users--; c.users > 0 {
		return cut
	}
	delete(t.of, c.id)
	if c.id = ""; t.spares < maxSpares {
		t.spare, c.next = c, t.spare
		t.spares++
	}
	return cut
}

// unlist takes a request out of the list of those being handled, and reports what leave does.
func (c *caller) unlist(p *pending) (cut bool) {
	c.part.mu.Lock()
	defer c.part.mu.Unlock()
	return c.part.unlistLocked(p)
}

func (t *callerPart) unlistLocked(p *pending) (cut bool) {
	if p.of == nil {
		return p.cut
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		t.pending = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.prev, p.next, p.of = nil, nil, nil
	return p.cut
}

// add counts n more requests of the caller, which may be less than 0, and returns how many there
// are then.
func (c *caller) add(n int) int64 {
	c.part.mu.Lock()
	defer c.part.mu.Unlock()
	c.active += n
	return int64(c.active)
}

// fairShare is how many requests a caller may have in flight for each one that could still be
// admitted. A single caller gets fairShare/(fairShare+1) of MaxInFlight, k of them that want all of
// it get fairShare/(k*fairShare+1) each; the rest stays free for those that have few in flight.
const fairShare = 2

// A verdict says whether a request is handled.
type verdict uint8

const (
	admitted verdict = iota
	limited          // its caller has its share in flight already
	overloaded
)

// judge decides on a request whose caller has n requests in flight, of inFlight in all, both with
// this one.
func judge(n, perCaller, inFlight, max int64) verdict {
	switch {
	case n > perCaller:
		return limited
	case inFlight > max:
		return overloaded
	case n-1 >= fairShare*(max-inFlight+1):
		return limited
	}
	return admitted
}

// reject answers a request that is not handled, and reports whether it did.
func (h *Handler) reject(w http.ResponseWriter, v verdict) bool {
	switch v {
	case limited:
		h.limited.Add(1)
		tooMany(w, "requests of one caller are in flight")
	case overloaded:
		h.overloaded.Add(1)
		unavailable(w, "too many requests are in flight")
	default:
		return false
	}
	return true
}

// enter counts a request, or refuses it. It is listed as one being handled if p is not nil. Streams
// are none of those that are being handled.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request, from asker, p *pending, of cutter) (c *caller, n int64, ok bool) {
	active := h.active.Add(1)
	if h.closing.Load() && !(r.Method == http.MethodPost && r.Header[headerSession] != nil) { // which may be the answer that a request waits for
		h.finished()
		w.Header()["Connection"] = closeConnection
		unavailable(w, "the server is shutting down")
		return nil, 0, false
	}
	c, n = h.callers.enter(h.callerOf(r, from.principal), p, of)
	if v := judge(n, 2*int64(h.opts.MaxInFlightPerCaller), active-h.streams.Load(), 2*int64(h.opts.MaxInFlight)); h.reject(w, v) {
		h.leave(c, p)
		return nil, 0, false
	}
	return c, n, true
}

// takesRequests refuses a request, which has been counted as the n-th of its caller, if no more are
// taken. Answers and cancellations are taken longer, so that what is in flight can end.
func (h *Handler) takesRequests(w http.ResponseWriter, c *caller, p *pending, n int64) bool {
	if h.closing.Load() {
		unavailable(w, "the server is shutting down")
		return false
	}
	if h.unread.isOver(c.id) {
		h.limited.Add(1)
		tooMany(w, "answers of one caller are not read")
		return false
	}
	return h.admit(w, p, n, 1)
}

// admit counts so many requests as being handled, or rejects them.
func (h *Handler) admit(w http.ResponseWriter, p *pending, n int64, requests int) bool {
	inFlight := h.requests.Add(int64(requests))
	v := judge(n, int64(h.opts.MaxInFlightPerCaller), inFlight, int64(h.opts.MaxInFlight))
	if v != admitted { // first, because to reject it takes its time
		h.requests.Add(int64(-requests))
		h.reject(w, v)
		return false
	}
	p.requests += requests
	return true
}

// release takes back what admit did.
func (h *Handler) release(p *pending) {
	if p.requests > 0 {
		h.requests.Add(int64(-p.requests))
		p.requests = 0
	}
}

// enterMore counts n more requests that came with one which has been counted, or rejects them.
func (h *Handler) enterMore(w http.ResponseWriter, c *caller, p *pending, n int) bool {
	if n <= 0 {
		return true
	}
	if !h.admit(w, p, c.add(n), n) {
		c.add(-n)
		return false
	}
	return true
}

// leave takes back what enter did, see [caller.leave], and admit.
func (h *Handler) leave(c *caller, p *pending) (cut bool) {
	if p != nil {
		h.release(p)
	}
	cut = c.leave(p)
	h.finished()
	return cut
}

// finished counts a request as done.
func (h *Handler) finished() {
	if h.active.Add(-1) == 0 && h.closing.Load() {
		h.idling.Do(func() { close(h.idle) })
	}
}

const (
	cutTimeout = time.Second // for the clients of requests that are cut off to take the answer
	cutAtOnce  = 64          // requests that are cut off at the same time
)

// cutOff answers the requests being handled with an error, as it is not waited for their handlers
// any longer. It gives up on clients that do not read.
func (h *Handler) cutOff() {
	h.cutting.Store(true) // first, for those that are listed but cannot be answered yet
	all := h.callers.cut()
	if len(all) == 0 {
		return
	}
	h.opts.Logger.Warn("requests cut off by the shutdown", "count", len(all))
	next := make(chan cutter, len(all))
	for _, c := range all {
		next <- c
	}
	close(next)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range min(cutAtOnce, len(all)) {
		wg.Go(func() { // one whose client does not read ends when its connection is closed
			for c := range next {
				c.cutOff()
			}
		})
	}
	go func() {
		defer close(done)
		wg.Wait()
	}()
	select {
	case <-done:
	case <-time.After(cutTimeout):
	}
}

// cut returns the requests being handled. They are not used again when they have been served.
func (t *callerTable) cut() []cutter {
	var all []cutter
	for i := range t.parts {
		part := &t.parts[i]
		part.mu.Lock()
		for p := part.pending; p != nil; p = p.next {
			p.cut = true
			all = append(all, p.of)
		}
		part.mu.Unlock()
	}
	return all
}

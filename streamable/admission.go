package streamable

import (
	"context"
	"hash/maphash"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
)

// A caller is a principal, or a network address where there is none, with what it has in flight.
type caller struct {
	id    string
	shard *callerShard

	// Guarded by part.mu.
	active int // requests being handled, without streams
	refs   int // requests and streams that have a pointer to the caller; it is forgotten with the last
	next   *caller
}

// A callerTable has the callers that have something in flight. It is in parts so that requests do
// not all wait for one lock.
type callerTable struct {
	seed   maphash.Seed
	shards [16]callerShard
}

type callerShard struct {
	mu         sync.Mutex
	byID       map[string]*caller
	admissions *admission // the requests being handled, in no order
	spare      *caller    // callers to use again, linked by next
	spares     int
}

// maxSpares is how many callers a part keeps to use again.
const maxSpares = 64

// A pending is the place of a request among those being handled.
type admission struct {
	prev, next *admission
	target     aborter // nil if the request is not listed
	aborted    bool    // somebody answers it in place of its handler, and uses it after it was served
	requests   int     // that it was admitted as
}

// A cutter answers its request at once, though the handler has not returned.
type aborter interface{ abort() }

func (t *callerTable) init() { t.seed = maphash.MakeSeed() }

// acquire counts a request of the caller, and lists it if p is not nil. n is how many requests the
// caller has in flight, with this one.
func (t *callerTable) acquire(id string, a *admission, target aborter) (c *caller, n int64) {
	shard := &t.shards[maphash.String(t.seed, id)%uint64(len(t.shards))]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if c = shard.byID[id]; c == nil {
		c = shard.addLocked(id)
	}
	c.refs++
	c.active++
	if a != nil {
		a.prev, a.next, a.target, a.aborted, a.requests = nil, shard.admissions, target, false, 0
		if a.next != nil {
			a.next.prev = a
		}
		shard.admissions = a
	}
	return c, int64(c.active)
}

func (s *callerShard) addLocked(id string) *caller {
	c := s.spare
	if c != nil {
		s.spare, c.next = c.next, nil
		s.spares--
	} else {
		c = &caller{shard: s}
	}
	c.id = id
	if s.byID == nil {
		s.byID = make(map[string]*caller)
	}
	s.byID[id] = c
	return c
}

// release takes back what enter did. p is the one that enter was called with, unless it was unlisted
// since. It reports whether somebody else answers the request: its memory must not be used again.
func (c *caller) release(a *admission) (aborted bool) {
	shard := c.shard
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if a != nil {
		aborted = shard.unlistLocked(a)
	}
	c.active--
	if c.refs--; c.refs > 0 {
		return aborted
	}
	delete(shard.byID, c.id)
	if c.id = ""; shard.spares < maxSpares {
		shard.spare, c.next = c, shard.spare
		shard.spares++
	}
	return aborted
}

// unlist takes a request out of the list of those being handled, and reports what leave does.
func (c *caller) unlist(a *admission) (aborted bool) {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	return c.shard.unlistLocked(a)
}

func (s *callerShard) unlistLocked(a *admission) (aborted bool) {
	if a.target == nil {
		return a.aborted
	}
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		s.admissions = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	a.prev, a.next, a.target = nil, nil, nil
	return a.aborted
}

// add counts n more requests of the caller, which may be less than 0, and returns how many there
// are then.
func (c *caller) add(n int) int64 {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	c.active += n
	return int64(c.active)
}

// fairShare is how many requests a caller may have in flight for each one that could still be
// admitted. A single caller gets fairShare/(fairShare+1) of MaxInFlight, k of them that want all of
// it get fairShare/(k*fairShare+1) each; the rest stays free for those that have few in flight.
const fairShare = 2

// A verdict says whether a request is handled.
type decision uint8

const (
	admitted    decision = iota
	rateLimited          // its caller has its share in flight already
	overloaded
)

// decide decides on a request whose caller has n requests in flight, of inFlight in all, both with
// this one.
func decide(n, perCaller, inFlight, max int64) decision {
	switch {
	case n > perCaller:
		return rateLimited
	case inFlight > max:
		return overloaded
	case n-1 >= fairShare*(max-inFlight+1):
		return rateLimited
	}
	return admitted
}

// reject answers a request that is not handled, and reports whether it did.
func (h *Handler) reject(w http.ResponseWriter, v decision) bool {
	switch v {
	case rateLimited:
		h.rateLimited.Add(1)
		writeRateLimited(w, "requests of one caller are in flight")
	case overloaded:
		h.overloaded.Add(1)
		writeUnavailable(w, "too many requests are in flight")
	default:
		return false
	}
	return true
}

// admitHTTP counts a request, or refuses it. It is listed as one being handled if p is not nil. Streams
// are none of those that are being handled.
func (h *Handler) admitHTTP(w http.ResponseWriter, r *http.Request, from requester, a *admission, target aborter) (c *caller, n int64, ok bool) {
	active := h.active.Add(1)
	if h.closing.Load() && !(r.Method == http.MethodPost && r.Header[headerSession] != nil) { // which may be the answer that a request waits for
		h.requestDone()
		w.Header()["Connection"] = closeConnection
		writeUnavailable(w, "the server is shutting down")
		return nil, 0, false
	}
	c, n = h.callers.acquire(h.callerID(r, from.principal), a, target)
	if v := decide(n, 2*int64(h.opts.MaxInFlightPerCaller), active-h.streams.Load(), 2*int64(h.opts.MaxInFlight)); h.reject(w, v) {
		h.releaseHTTP(c, a)
		return nil, 0, false
	}
	return c, n, true
}

// admitRequest refuses a request, which has been counted as the n-th of its caller, if no more are
// taken. Answers and cancellations are taken longer, so that what is in flight can end.
func (h *Handler) admitRequest(w http.ResponseWriter, c *caller, a *admission, n int64) bool {
	if h.closing.Load() {
		writeUnavailable(w, "the server is shutting down")
		return false
	}
	if h.unread.isExhausted(c.id) {
		h.rateLimited.Add(1)
		writeRateLimited(w, "answers of one caller are not read")
		return false
	}
	return h.tryAdmit(w, a, n, 1)
}

// tryAdmit counts so many requests as being handled, or rejects them.
func (h *Handler) tryAdmit(w http.ResponseWriter, a *admission, n int64, requests int) bool {
	inFlight := h.requests.Add(int64(requests))
	v := decide(n, int64(h.opts.MaxInFlightPerCaller), inFlight, int64(h.opts.MaxInFlight))
	if v != admitted { // first, because to reject it takes its time
		h.requests.Add(int64(-requests))
		h.reject(w, v)
		return false
	}
	a.requests += requests
	return true
}

// releaseAdmission takes back what admit did.
func (h *Handler) releaseAdmission(a *admission) {
	if a.requests > 0 {
		h.requests.Add(int64(-a.requests))
		a.requests = 0
	}
}

// admitBatch counts n more requests that came with one which has been counted, or rejects them.
func (h *Handler) admitBatch(w http.ResponseWriter, c *caller, a *admission, n int) bool {
	if n <= 0 {
		return true
	}
	if !h.tryAdmit(w, a, c.add(n), n) {
		c.add(-n)
		return false
	}
	return true
}

// releaseHTTP takes back what enter did, see [caller.leave], and admit.
func (h *Handler) releaseHTTP(c *caller, a *admission) (aborted bool) {
	if a != nil {
		h.releaseAdmission(a)
	}
	aborted = c.release(a)
	h.requestDone()
	return aborted
}

// requestDone counts a request as done.
func (h *Handler) requestDone() {
	if h.active.Add(-1) == 0 && h.closing.Load() {
		h.idleOnce.Do(func() { close(h.idle) })
	}
}

const (
	abortTimeout        = time.Second // for the clients of requests that are cut off to take the answer
	maxConcurrentAborts = 64          // requests that are cut off at the same time
)

// abortRequests answers the requests being handled with an error, as it is not waited for their handlers
// any longer. It gives up on clients that do not read.
func (h *Handler) abortRequests() {
	h.aborting.Store(true) // first, for those that are listed but cannot be answered yet
	all := h.callers.markAborted()
	if len(all) == 0 {
		return
	}
	h.opts.Logger.Warn("requests cut off by the shutdown", "count", len(all))
	next := make(chan aborter, len(all))
	for _, c := range all {
		next <- c
	}
	close(next)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range min(maxConcurrentAborts, len(all)) {
		wg.Go(func() { // one whose client does not read ends when its connection is closed
			for c := range next {
				c.abort()
			}
		})
	}
	go func() {
		defer close(done)
		wg.Wait()
	}()
	select {
	case <-done:
	case <-time.After(abortTimeout):
	}
}

// markAborted returns the requests being handled. They are not used again when they have been served.
func (t *callerTable) markAborted() []aborter {
	var all []aborter
	for i := range t.shards {
		shard := &t.shards[i]
		shard.mu.Lock()
		for a := shard.admissions; a != nil; a = a.next {
			a.aborted = true
			all = append(all, a.target)
		}
		shard.mu.Unlock()
	}
	return all
}

// An unreadBudget bounds the bytes of answers that clients have not taken yet, by caller and in all.
// Answers of up to maxWrite bytes are not counted; there are no more of them than requests in flight.
//
// An answer that finds no room waits for it, as long as there is not too much waiting as well. Beyond
// that, it is dropped, and its request fails.
type unreadBudget struct {
	max   int
	bytes atomic.Int64 // bytes that are counted, also those that wait
	mu    sync.Mutex
	total unreadUse
	byID  map[string]unreadUse // callers that have something
	freed chan struct{}        // closed when there is room again; nil if nobody waits
}

// An unreadUse is what one caller has, or all have, in bytes.
type unreadUse struct{ writing, waiting int }

// callerShareDivisor is which part of the budget one caller may have.
const callerShareDivisor = 4

// unreadTimeout is how long an answer waits for room.
const unreadTimeout = 3 * time.Second

// errUnread fails a request whose answer has no room. It has been carried out.
var errUnread = jsonrpc.Errorf(jsonrpc.CodeInternalError, "the answer was dropped: the client has not read too many others yet; the request was carried out")

// acquire waits until the caller may have n bytes more, and reports false if that takes too long.
func (b *unreadBudget) acquire(ctx context.Context, caller string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fitsLocked(caller, n) {
		b.addLocked(caller, n, 0)
		return true
	}
	own := b.byID[caller].waiting
	if own > 0 && own+n > b.max/callerShareDivisor || b.total.waiting > 0 && b.total.waiting+n > b.max {
		return false
	}
	b.addLocked(caller, 0, n)
	late := time.NewTimer(unreadTimeout)
	defer late.Stop()
	for {
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed, waiting := b.freed, true
		b.mu.Unlock()
		select {
		case <-freed:
		case <-late.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
		b.mu.Lock()
		if fits := b.fitsLocked(caller, n); fits || !waiting {
			b.addLocked(caller, 0, -n)
			if fits {
				b.addLocked(caller, n, 0)
			}
			return fits
		}
	}
}

// fitsLocked reports whether the caller may have n bytes more. One that has none gets what is free;
// one that has some leaves as much as it has to others, so that k callers that do not read cannot
// have more than k/(k+1) of all. An answer is never too large if it is the only one.
func (b *unreadBudget) fitsLocked(caller string, n int) bool {
	own := b.byID[caller].writing
	free := b.max - b.total.writing - n
	switch {
	case b.total.writing == 0:
		return true
	case own == 0:
		return free >= 0
	}
	return own+n <= min(b.max/callerShareDivisor, free)
}

func (b *unreadBudget) addLocked(caller string, writing, waiting int) {
	u := b.byID[caller]
	u.writing += writing
	u.waiting += waiting
	if u == (unreadUse{}) {
		delete(b.byID, caller)
	} else {
		if b.byID == nil {
			b.byID = make(map[string]unreadUse)
		}
		b.byID[caller] = u
	}
	b.total.writing += writing
	b.total.waiting += waiting
	b.bytes.Add(int64(writing + waiting))
}

// release gives back what acquire gave.
func (b *unreadBudget) release(caller string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addLocked(caller, -n, 0)
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// isExhausted reports whether the caller has its share, so that it is to read before it asks for more.
func (b *unreadBudget) isExhausted(caller string) bool {
	if b.bytes.Load() < int64(b.max/callerShareDivisor) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.byID[caller]
	return u.writing+u.waiting >= b.max/callerShareDivisor
}

// reserveUnread has room for the answer before it is written, or makes it a failure. done gives the room
// back.
func (pr *postRequest) reserveUnread(ctx context.Context, err error) (release func(), _ error) {
	n := len(pr.answer)
	if n <= maxWrite {
		return func() {}, err
	}
	b, caller := &pr.h.unread, pr.caller.id
	if !b.acquire(ctx, caller, n) {
		pr.h.opts.Logger.Warn("an answer dropped, because too many are not read", "bytes", n)
		pr.answer = pr.errorResponse(errUnread)
		return func() {}, errUnread
	}
	return func() { b.release(caller, n) }, err
}

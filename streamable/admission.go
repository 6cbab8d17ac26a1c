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

// A caller is a principal, or a network address for anonymous requests, with its requests in
// flight.
type caller struct {
	id    string
	shard *callerShard

	// active counts the requests being handled, without streams. Guarded by shard.mu.
	active int
	// refs counts requests and streams that refer to the caller. The last one removes it. Guarded
	// by shard.mu.
	refs int
	next *caller
}

// A callerTable has the callers with requests or streams in flight. Its shards have separate locks.
type callerTable struct {
	seed   maphash.Seed
	shards [16]callerShard
}

type callerShard struct {
	mu   sync.Mutex
	byID map[string]*caller
	// admissions lists the requests being handled, in no order.
	admissions *admission
	// spare is a free list of callers, linked by next.
	spare  *caller
	spares int
}

// maxSpares limits the free list of a shard.
const maxSpares = 64

// An admission is a request's entry among those being handled.
type admission struct {
	prev, next *admission
	// target is nil if the request is not listed.
	target aborter
	// aborted means that abort answers the request in place of its handler, and may use it after it
	// was served.
	aborted bool
	// requests is the number of requests admitted: more than one for a batch.
	requests int
}

// An aborter answers its request at once, though the handler has not returned.
type aborter interface{ abort() }

func (t *callerTable) init() { t.seed = maphash.MakeSeed() }

// acquire counts a request of the caller, and lists it if a is not nil. n is the number of the
// caller's requests in flight, including this one.
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

// release undoes acquire. a is the argument of acquire, or nil if that was nil or unlisted since.
// aborted means that abort answers the request: its memory must not be reused.
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

// unlist removes a request from the list. aborted is that of release.
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

// add adds n, which may be negative, to the caller's requests and returns their number.
func (c *caller) add(n int) int64 {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	c.active += n
	return int64(c.active)
}

// fairShare is the number of requests that a caller may have in flight for each free place. A
// single caller gets at most fairShare/(fairShare+1) of MaxInFlight; k greedy callers get
// fairShare/(k*fairShare+1) each. The rest remains free for callers with few requests.
const fairShare = 2

// A decision is the result of admission control.
type decision uint8

const (
	admitted    decision = iota
	rateLimited          // the caller has its share in flight
	overloaded
)

// decide decides on a request. n is the number of its caller's requests in flight, inFlight that of
// all, both including this one.
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

// reject answers a request that is not admitted, and reports whether it did.
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

// admitHTTP counts an HTTP request, or rejects it. It lists the request if a is not nil. Streams do
// not count as requests being handled.
func (h *Handler) admitHTTP(w http.ResponseWriter, r *http.Request, from requester, a *admission, target aborter) (c *caller, n int64, ok bool) {
	active := h.active.Add(1)
	if h.closing.Load() && !mayRespond(r) {
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

// mayRespond reports whether an HTTP request may be the response that a pending request waits for:
// a POST in a session of either transport.
func mayRespond(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.Header[headerSession] != nil || r.URL.Query().Has(sessionParam))
}

// admitRequest rejects a JSON-RPC request, the n-th of its caller, beyond the limits. Responses and
// cancellations have higher limits, so that pending requests can end.
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

// tryAdmit counts requests as being handled, or rejects them.
func (h *Handler) tryAdmit(w http.ResponseWriter, a *admission, n int64, requests int) bool {
	inFlight := h.requests.Add(int64(requests))
	v := decide(n, int64(h.opts.MaxInFlightPerCaller), inFlight, int64(h.opts.MaxInFlight))
	if v != admitted { // first, because rejecting is slow
		h.requests.Add(int64(-requests))
		h.reject(w, v)
		return false
	}
	a.requests += requests
	return true
}

// releaseAdmission undoes tryAdmit.
func (h *Handler) releaseAdmission(a *admission) {
	if a.requests > 0 {
		h.requests.Add(int64(-a.requests))
		a.requests = 0
	}
}

// admitBatch counts the n further requests of a batch, or rejects them.
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

// releaseHTTP undoes admitHTTP, see [caller.release], and tryAdmit.
func (h *Handler) releaseHTTP(c *caller, a *admission) (aborted bool) {
	if a != nil {
		h.releaseAdmission(a)
	}
	aborted = c.release(a)
	h.requestDone()
	return aborted
}

// requestDone counts an HTTP request as done.
func (h *Handler) requestDone() {
	if h.active.Add(-1) == 0 && h.closing.Load() {
		h.idleOnce.Do(func() { close(h.idle) })
	}
}

const (
	// abortTimeout limits the time for clients to read the errors of aborted requests.
	abortTimeout = time.Second
	// maxConcurrentAborts limits the requests that are aborted at the same time.
	maxConcurrentAborts = 64
)

// abortRequests answers all pending requests with an error, without waiting for their handlers. It
// gives up on clients that do not read.
func (h *Handler) abortRequests() {
	// First, for requests that are listed but cannot be answered yet.
	h.aborting.Store(true)
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
		// A client that does not read ends it when its connection is closed.
		wg.Go(func() {
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

// markAborted returns the requests being handled, and keeps them from being reused.
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

// An unreadBudget bounds the bytes of responses that clients have not read yet, by caller and in
// all. Responses of up to maxWrite bytes do not count; there are no more of them than requests in
// flight.
//
// A response that does not fit waits, unless too much waits already. After unreadTimeout it is
// dropped, and its request fails.
type unreadBudget struct {
	max int
	// bytes counts the bytes being written and waiting.
	bytes atomic.Int64
	mu    sync.Mutex
	total unreadUse
	// byID has the callers with any bytes.
	byID map[string]unreadUse
	// freed is closed when bytes are released. It is nil if nobody waits.
	freed chan struct{}
}

// An unreadUse has the bytes of one caller, or of all.
type unreadUse struct{ writing, waiting int }

// callerShareDivisor is the divisor of the budget that gives one caller's share.
const callerShareDivisor = 4

// unreadTimeout limits how long a response waits.
const unreadTimeout = 3 * time.Second

// errUnread fails a request whose response was dropped. It has been carried out.
var errUnread = jsonrpc.Errorf(jsonrpc.CodeInternalError, "the answer was dropped: the client has not read too many others yet; the request was carried out")

// acquire waits until the caller may use n more bytes. It reports false after a timeout, or if too
// much waits.
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

// fitsLocked reports whether the caller may use n more bytes. A caller without bytes may use what
// is free. Others must leave as much free as they use, so that k callers that do not read get at
// most k/(k+1) of the budget. A single response always fits.
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

// release undoes acquire.
func (b *unreadBudget) release(caller string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addLocked(caller, -n, 0)
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// isExhausted reports whether the caller uses its share, and must read before it sends more
// requests.
func (b *unreadBudget) isExhausted(caller string) bool {
	if b.bytes.Load() < int64(b.max/callerShareDivisor) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.byID[caller]
	return u.writing+u.waiting >= b.max/callerShareDivisor
}

// reserveUnread reserves budget for the response, or replaces the response by an error. The caller
// calls release after the write.
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

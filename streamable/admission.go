package streamable

import (
	"context"
	"hash/maphash"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
	"mcpwire/jsonrpc"
)

// An admission decides which requests a [Handler] handles, and counts them: HTTP requests, the
// JSON-RPC requests in them and standing streams, in all and by caller. Each HTTP request has a
// [slot], which is the only way to change a counter. It is safe for concurrent use.
type admission struct {
	limits Limits

	// active counts slots: HTTP requests and streams.
	active atomic.Int64
	// streams counts standing slots.
	streams          atomic.Int64
	streamsPerCaller callerCounts
	// requests counts JSON-RPC requests.
	requests atomic.Int64
	// unread bounds the responses that clients have not read.
	unread unreadBudget

	// rateLimited counts requests rejected because of their caller's requests in flight.
	rateLimited atomic.Uint64
	// overloaded counts requests rejected because of all requests in flight.
	overloaded atomic.Uint64

	// closing means that hardly any request is admitted.
	closing atomic.Bool
	// aborting means that nobody waits for the requests that are still in flight.
	aborting atomic.Bool
	// idle is closed when no slot is left after closing.
	idle     chan struct{}
	idleOnce sync.Once

	seed maphash.Seed
	// shards have the callers with slots. They have separate locks.
	shards [16]callerShard
}

func (a *admission) init(o *Options) {
	a.limits = o.Limits
	// The rest may wait.
	a.unread.max = o.Limits.MaxUnread / (callerShareDivisor + 1) * callerShareDivisor
	a.unread.returnMemory = debug.FreeOSMemory
	a.idle = make(chan struct{})
	a.seed = maphash.MakeSeed()
}

// A slot is the place of one HTTP request among those that a [Handler] has at once. It belongs to
// one goroutine at a time. Its states are:
//
//   - free: the zero value. release does nothing.
//   - admitted, by admit: it counts as active, and for its caller. admitRequest and admitBatch
//     count the JSON-RPC requests that it has. If it has a target, a shutdown can abort it.
//   - standing, by stand: it counts as a stream, no longer as requests, and cannot be aborted.
//
// release makes a slot free. detach also does, and returns another one in the state that it had,
// for a goroutine that continues after the HTTP request was served. So a function that gets a slot
// admitted defers release and is done with it, whatever happens then.
type slot struct {
	// admission is nil if the slot is free.
	admission *admission
	caller    *caller
	// callerID is the caller's id. It stays when the slot becomes free.
	callerID string
	// inFlight is the number of the caller's requests in flight when the slot was admitted,
	// including this one.
	inFlight int64
	// share is the part of caller.inFlight that is the slot's: 1, more for a batch, and 0 for a
	// stream.
	share int
	// requests is the part of admission.requests that is the slot's.
	requests int
	standing bool

	// The following fields are guarded by caller.shard.mu until the slot is free.
	prev, next *slot
	// target is nil if the slot is not listed.
	target aborter
	// aborted means that a shutdown aborts the target, and may use it after the slot was released.
	aborted bool
}

// An aborter answers its request at once, though the handler has not returned.
type aborter interface{ abort() }

// admit makes s, which must be free, the slot of an HTTP request, or rejects the request. target
// may be nil. mayRespond means that the request may be a response that a pending request waits for,
// which is admitted during a shutdown.
func (a *admission) admit(s *slot, callerID string, target aborter, mayRespond bool) *rejection {
	active := a.active.Add(1)
	if a.closing.Load() && !mayRespond {
		a.slotFreed()
		return rejectedByShutdown
	}
	s.admission, s.callerID, s.share, s.aborted = a, callerID, 1, false
	a.addToCaller(s, target)
	// Streams do not count. Responses and cancellations have higher limits than requests, so that
	// pending requests can end.
	if e := decide(s.inFlight, 2*int64(a.limits.MaxInFlightPerCaller), active-a.streams.Load(), 2*int64(a.limits.MaxInFlight)); e != nil {
		s.release()
		return a.count(e)
	}
	return nil
}

// admitRequest counts a JSON-RPC request as the slot's, or rejects it.
func (s *slot) admitRequest() *rejection {
	a := s.admission
	if a.closing.Load() {
		return rejectedByShutdown
	}
	if a.unread.isExhausted(s.callerID) {
		return a.count(rateLimitedUnread)
	}
	return s.addRequests(s.inFlight, 1)
}

// admitBatch counts n JSON-RPC requests beyond the first as the slot's, or rejects them.
func (s *slot) admitBatch(n int) *rejection {
	if n <= 0 {
		return nil
	}
	e := s.addRequests(s.addShare(n), n)
	if e != nil {
		s.addShare(-n)
	}
	return e
}

// addRequests counts n JSON-RPC requests, given the number of the caller's requests in flight.
func (s *slot) addRequests(inFlight int64, n int) *rejection {
	a := s.admission
	if e := decide(inFlight, int64(a.limits.MaxInFlightPerCaller), a.requests.Add(int64(n)), int64(a.limits.MaxInFlight)); e != nil {
		a.requests.Add(int64(-n))
		return a.count(e)
	}
	s.requests += n
	return nil
}

// addShare adds n, which may be negative, to the slot's part of the caller's requests in flight,
// and returns their number.
func (s *slot) addShare(n int) int64 {
	s.caller.shard.mu.Lock()
	defer s.caller.shard.mu.Unlock()
	s.share += n
	s.caller.inFlight += n
	return int64(s.caller.inFlight)
}

// stand makes an admitted slot a stream, or rejects it.
func (s *slot) stand() *rejection {
	a := s.admission
	if a.streams.Add(1) > int64(a.limits.MaxStreams) {
		a.streams.Add(-1)
		return overloadedStreams
	}
	if !a.streamsPerCaller.acquire(s.callerID, a.limits.MaxPerCaller) {
		a.streams.Add(-1)
		return rateLimitedStreams
	}
	s.standing = true
	s.releaseRequests()
	shard := s.caller.shard
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.unlistLocked(s)
	s.caller.inFlight -= s.share
	s.share = 0
	return nil
}

func (s *slot) releaseRequests() {
	if s.requests > 0 {
		s.admission.requests.Add(int64(-s.requests))
		s.requests = 0
	}
}

// detach returns a slot with the state of s, and makes s free. The caller of detach must see to
// that the target, if any, is not reused.
func (s *slot) detach() *slot {
	shard := s.caller.shard
	shard.mu.Lock()
	defer shard.mu.Unlock()
	target := s.target
	shard.unlistLocked(s)
	d := new(*s)
	if target != nil {
		shard.listLocked(d, target)
	}
	*s = slot{callerID: s.callerID, aborted: s.aborted}
	return d
}

// release makes the slot free. It reports whether the target may be used again: a shutdown that
// aborts it may use it later.
func (s *slot) release() (reusable bool) {
	a := s.admission
	if a == nil {
		return !s.aborted
	}
	s.releaseRequests()
	if s.standing {
		a.streamsPerCaller.release(s.callerID)
		a.streams.Add(-1)
	}
	s.caller.remove(s)
	s.admission, s.caller, s.standing = nil, nil, false
	a.slotFreed()
	return !s.aborted
}

// slotFreed counts a slot as free.
func (a *admission) slotFreed() {
	if a.active.Add(-1) == 0 && a.closing.Load() {
		a.idleOnce.Do(func() { close(a.idle) })
	}
}

// close makes admit reject requests. idle is closed when those in progress have ended. It may be
// called more than once.
func (a *admission) close() {
	if !a.closing.Swap(true) {
		a.active.Add(1)
		a.slotFreed() // closes idle if nothing was active
	}
}

// A rejection says why a request was not admitted.
type rejection struct {
	// rateLimited selects status 429, which blames the caller, instead of 503.
	rateLimited bool
	reason      string
}

var (
	rejectedByShutdown  = &rejection{false, "the server is shutting down"}
	overloadedRequests  = &rejection{false, "too many requests are in flight"}
	rateLimitedRequests = &rejection{true, "requests of one caller are in flight"}
	rateLimitedUnread   = &rejection{true, "unread responses of one caller"}
	overloadedSessions  = &rejection{false, "too many sessions"}
	overloadedStreams   = &rejection{false, "too many open streams"}
	rateLimitedStreams  = &rejection{true, "streams of one caller"}
	rateLimitedSessions = &rejection{true, "sessions of one caller"}
)

// count counts a rejection because of requests in flight, and returns it.
func (a *admission) count(e *rejection) *rejection {
	if e.rateLimited {
		a.rateLimited.Add(1)
	} else {
		a.overloaded.Add(1)
	}
	return e
}

// write responds to a request that was rejected, and reports whether it was.
func (e *rejection) write(w http.ResponseWriter) bool {
	if e == nil {
		return false
	}
	status, class := http.StatusServiceUnavailable, "unavailable: "
	if e.rateLimited {
		status, class = http.StatusTooManyRequests, "too many: "
	}
	w.Header().Set("Retry-After", "1") // second
	writeError(w, status, jsonrpc.CodeInternalError, class+e.reason)
	return true
}

// fairShare is the number of requests that a caller may have in flight for each free place. A
// single caller gets at most fairShare/(fairShare+1) of MaxInFlight; k greedy callers get
// fairShare/(k*fairShare+1) each. The rest remains free for callers with few requests.
const fairShare = 2

// decide returns nil to admit a request. n is the number of its caller's requests in flight,
// inFlight that of all, both including this one.
func decide(n, perCaller, inFlight, max int64) *rejection {
	switch {
	case n > perCaller:
		return rateLimitedRequests
	case inFlight > max:
		return overloadedRequests
	case n-1 >= fairShare*(max-inFlight+1):
		return rateLimitedRequests
	}
	return nil
}

// admit admits an HTTP request to s, which must be free, or rejects it. target may be nil.
func (h *Handler) admit(s *slot, w http.ResponseWriter, r *http.Request, from requester, target aborter) bool {
	// The response that a pending request waits for is a POST in a session of either transport.
	mayRespond := r.Method == http.MethodPost && (r.Header[headerSession] != nil || r.URL.RawQuery != "" && r.URL.Query().Has(sessionParam))
	e := h.admission.admit(s, h.callerID(r, from.principal), target, mayRespond)
	if e == rejectedByShutdown {
		w.Header()["Connection"] = closeConnection
	}
	return !e.write(w)
}

// A caller is a principal, or a network address for anonymous requests, with its slots.
type caller struct {
	id    string
	shard *callerShard

	// inFlight counts the requests being handled, without streams. Guarded by shard.mu.
	inFlight int
	// slots counts the slots. The last one removes the caller. Guarded by shard.mu.
	slots int
}

// A callerShard has some of the callers.
type callerShard struct {
	mu   sync.Mutex
	byID map[string]*caller
	// listed is the list of slots that can be aborted, in no order.
	listed *slot
	// spare has callers to reuse.
	spare []*caller
}

// maxSpares limits the free list of a shard.
const maxSpares = 64

// addToCaller counts s for its caller, and lists it if target is not nil.
func (a *admission) addToCaller(s *slot, target aborter) {
	id := s.callerID
	shard := &a.shards[maphash.String(a.seed, id)%uint64(len(a.shards))]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	c := shard.byID[id]
	if c == nil {
		c = shard.addLocked(id)
	}
	c.slots++
	c.inFlight += s.share
	s.caller, s.inFlight = c, int64(c.inFlight)
	if target != nil {
		shard.listLocked(s, target)
	}
}

func (cs *callerShard) addLocked(id string) *caller {
	var c *caller
	if last := len(cs.spare) - 1; last >= 0 {
		c, cs.spare = cs.spare[last], cs.spare[:last]
	} else {
		c = &caller{shard: cs}
	}
	c.id = id
	sparse.Set(&cs.byID, id, c)
	return c
}

// remove undoes addToCaller.
func (c *caller) remove(s *slot) {
	shard := c.shard
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.unlistLocked(s)
	c.inFlight -= s.share
	if c.slots--; c.slots > 0 {
		return
	}
	delete(shard.byID, c.id)
	if c.id = ""; len(shard.spare) < maxSpares {
		shard.spare = append(shard.spare, c)
	}
}

func (cs *callerShard) listLocked(s *slot, target aborter) {
	s.prev, s.next, s.target = nil, cs.listed, target
	if s.next != nil {
		s.next.prev = s
	}
	cs.listed = s
}

func (cs *callerShard) unlistLocked(s *slot) {
	if s.target == nil {
		return
	}
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		cs.listed = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next, s.target = nil, nil, nil
}

const (
	// abortTimeout limits the time for clients to read the errors of aborted requests.
	abortTimeout = time.Second
	// maxConcurrentAborts limits the requests that are aborted at the same time.
	maxConcurrentAborts = 64
)

// abort answers all pending requests with an error, without waiting for their handlers. It gives up
// on clients that do not read.
func (a *admission) abort(log *slog.Logger) {
	// First, for requests that are listed but cannot be answered yet.
	a.aborting.Store(true)
	all := a.markAborted()
	if len(all) == 0 {
		return
	}
	log.Warn("requests aborted by the shutdown", "count", len(all))
	next := make(chan aborter, len(all))
	for _, c := range all {
		next <- c
	}
	close(next)
	var wg sync.WaitGroup
	for range min(maxConcurrentAborts, len(all)) {
		// A client that does not read ends it when its connection is closed.
		wg.Go(func() {
			for c := range next {
				c.abort()
			}
		})
	}
	wait.Timeout(abortTimeout, wg.Wait)
}

// markAborted returns the targets of the listed slots, and keeps them from being reused.
func (a *admission) markAborted() []aborter {
	var all []aborter
	for i := range a.shards {
		shard := &a.shards[i]
		shard.mu.Lock()
		for s := shard.listed; s != nil; s = s.next {
			s.aborted = true
			all = append(all, s.target)
		}
		shard.mu.Unlock()
	}
	return all
}

// callerCounts counts sessions or streams of each caller.
type callerCounts struct {
	mu   sync.Mutex
	byID map[string]int
}

// acquire counts one more for the caller, and reports false if that exceeds max.
func (c *callerCounts) acquire(caller string, max int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[caller] >= max {
		return false
	}
	sparse.Set(&c.byID, caller, c.byID[caller]+1)
	return true
}

func (c *callerCounts) release(caller string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[caller]--; c.byID[caller] <= 0 {
		delete(c.byID, caller)
	}
}

// An unreadBudget bounds the bytes of responses that clients have not read yet, by caller and in
// all. Responses of up to maxWrite bytes do not count; there are no more of them than requests in
// flight.
//
// A response that does not fit waits, unless too much waits already. After unreadTimeout it is
// dropped, and its request fails.
type unreadBudget struct {
	// max limits the bytes being written. A share of it may wait.
	max int
	// bytes counts the bytes being written and waiting.
	bytes atomic.Int64
	mu    sync.Mutex
	total unreadUse
	// peak is the largest number of bytes since memory was last returned to the system.
	peak int
	// byID has the callers with any bytes.
	byID map[string]unreadUse
	// returnMemory returns unused memory to the system.
	returnMemory func()
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
var errUnread = jsonrpc.Errorf(jsonrpc.CodeInternalError, "the response was dropped: the client has too many unread responses; the request was executed")

// acquire waits until the caller may use n more bytes. It reports false after a timeout, or if too
// much waits.
func (b *unreadBudget) acquire(ctx context.Context, caller string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fitsLocked(caller, n) {
		b.addLocked(caller, n, 0)
		return true
	}
	if b.total.waiting > 0 && b.total.waiting+n > b.max/callerShareDivisor {
		return false
	}
	b.addLocked(caller, 0, n)
	late := time.After(unreadTimeout)
	for {
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed, waiting := b.freed, true
		b.mu.Unlock()
		select {
		case <-freed:
		case <-late:
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
		sparse.Set(&b.byID, caller, u)
	}
	b.total.writing += writing
	b.total.waiting += waiting
	b.bytes.Add(int64(writing + waiting))
	now := b.total.writing + b.total.waiting
	if b.peak = max(b.peak, now); b.peak >= minReturned && now < b.peak/4 {
		b.peak = now
		time.AfterFunc(returnPause, b.returnMemory)
	}
}

// The memory of unread responses is returned to the system after returnPause if there were
// minReturned bytes or more. The runtime alone keeps it for minutes if nothing else happens.
const (
	minReturned = 64 << 20
	returnPause = time.Second
)

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

package server

import (
	"container/list"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A RateLimit says how many requests one caller may make. A caller is a [Principal], over all its connections; of principals without an ID each
// connection is one, or each network address if there are no connections, as in HTTP. What exceeds the limit is answered with [CodeTooManyRequests]. A request that comes again with the client's answers counts again. The zero
// value sets no limit.
type RateLimit struct {
	PerSecond float64 // on average; 0 or less sets no limit
	Burst     int     // at once, after a pause; 0 is PerSecond, but at least 1
}

// CodeTooManyRequests is the code of the error that refuses a request because its caller has made
// too many, or has too many under way. Its data is an object: "limit" is "rate" or "concurrency",
// or "states" with [Options.SingleUseState], and "retryAfterMs", if it is there, says after how
// many milliseconds another try makes sense; if it is not, one does when another request of the
// caller has been answered.
//
// The specification leaves codes outside of -32768 … -32000 to applications, and has none for this. The number is that of the same refusal in HTTP,
// where it is the status of the response, with Retry-After, unless that has begun or is of a batch.
const CodeTooManyRequests jsonrpc.Code = 429

// maxCallers is how many principals the limits remember, besides those that have requests under way. Who is forgotten begins anew.
const maxCallers = 10_000

// limits are those of the callers of a server.
type limits struct {
	rate       rate.Limit
	burst      int
	concurrent int
	methods    map[string]bool
	refillTime time.Duration // after which a caller that was idle is as good as new

	mu   sync.Mutex
	byID map[string]*list.Element // of recent, by the ID of the principal, or by address
	lru  list.List                // of *caller: who was there last is in front
}

// A caller is one whose requests are counted. It is guarded by limits.mu.
type caller struct {
	id       string
	bucket   *rate.Limiter // nil without a limit on the rate
	inFlight int
	lastSeen time.Time
}

// newLimits returns the limits that the options set; nil if they set none.
func newLimits(o *Options) *limits {
	if o.RateLimit.PerSecond <= 0 && o.MaxConcurrent <= 0 {
		return nil
	}
	l := &limits{concurrent: o.MaxConcurrent, methods: make(map[string]bool), byID: make(map[string]*list.Element)}
	if r := o.RateLimit; r.PerSecond > 0 {
		l.rate, l.burst = rate.Limit(r.PerSecond), r.Burst
		if l.burst <= 0 {
			l.burst = int(max(min(math.Ceil(r.PerSecond), math.MaxInt32), 1))
		}
		l.refillTime = seconds(float64(l.burst) / r.PerSecond)
	}
	counted := o.LimitedMethods
	if counted == nil {
		counted = []string{mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead, mcp.MethodComplete}
	}
	for _, m := range counted {
		l.methods[m] = true
	}
	return l
}

// seconds returns the duration, or the longest there is.
func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), float64(math.MaxInt64/2)))
}

// dispatchLimited answers a request if its caller's limits let it.
func (s *session) dispatchLimited(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	l := s.srv.limits
	if !l.methods[c.method] {
		return s.dispatch(c, r, dst)
	}
	cl, err := l.admit(c)
	if err != nil {
		return dst, err
	}
	defer l.release(cl)
	return s.dispatch(c, r, dst)
}

// admit counts a request, or says why it must not be.
func (l *limits) admit(c *Call) (*caller, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now() // under the lock, as a bucket whose clock is set back fills twice
	cl := l.callerLocked(c, now)
	if l.concurrent > 0 && cl.inFlight >= l.concurrent {
		return nil, l.concurrencyError()
	}
	if cl.bucket != nil {
		reservation := cl.bucket.ReserveN(now, 1)
		if wait := reservation.DelayFrom(now); wait > 0 {
			reservation.CancelAt(now)
			return nil, l.rateError(wait)
		}
	}
	cl.inFlight++
	return cl, nil
}

func (l *limits) release(cl *caller) {
	l.mu.Lock()
	cl.inFlight--
	l.mu.Unlock()
}

// callerLocked returns who makes the call.
func (l *limits) callerLocked(c *Call, now time.Time) *caller {
	ident, s := c.identity(), c.session
	id := ident.principal.ID
	if id == "" && ident.address != "" {
		id = "\x00" + ident.address
	}
	if id == "" {
		if s.caller == nil {
			s.caller = l.newCaller("")
		}
		return s.caller
	}
	e := l.byID[id]
	if e == nil {
		e = l.lru.PushFront(l.newCaller(id))
		l.byID[id] = e
	}
	l.lru.MoveToFront(e)
	cl := e.Value.(*caller)
	cl.lastSeen = now
	l.evictLocked(cl)
	return cl
}

func (l *limits) newCaller(id string) *caller {
	cl := &caller{id: id}
	if l.rate > 0 {
		cl.bucket = rate.NewLimiter(l.rate, l.burst)
	}
	return cl
}

// evictLocked drops a few of those that were not there for longest: who would begin anew anyway, and the first if there are too many, but not latest, who
// asks just now. Each request adds one at most, so that they become fewer.
func (l *limits) evictLocked(latest *caller) {
	for range 2 {
		e := l.lru.Back()
		cl := e.Value.(*caller)
		switch {
		case cl == latest:
			return
		case cl.inFlight > 0:
			l.lru.MoveToFront(e) // it is there after all
		case l.lru.Len() > maxCallers, latest.lastSeen.Sub(cl.lastSeen) >= l.refillTime:
			l.lru.Remove(e)
			delete(l.byID, cl.id)
		default:
			return
		}
	}
}

func (l *limits) rateError(wait time.Duration) error {
	millis := int64(math.Ceil(float64(wait) / float64(time.Millisecond)))
	data := strconv.AppendInt([]byte(`{"limit":"rate","retryAfterMs":`), millis, 10)
	return &jsonrpc.Error{
		Code:    CodeTooManyRequests,
		Message: fmt.Sprintf("too many requests: %v a second are allowed, try again in %d ms", float64(l.rate), millis),
		Data:    append(data, '}'),
	}
}

func (l *limits) concurrencyError() error {
	return &jsonrpc.Error{
		Code:    CodeTooManyRequests,
		Message: fmt.Sprintf("too many requests at once: %d are allowed, try again when one has been answered", l.concurrent),
		Data:    []byte(`{"limit":"concurrency"}`),
	}
}

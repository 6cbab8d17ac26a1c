package server

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// CallerLimits limits the requests of one caller. A caller is a principal, over all its
// connections. Without an ID, a caller is a connection, or a network address if the transport has
// no connections (HTTP). A request over a limit fails with [CodeTooManyRequests]. Each input round
// counts as a request.
type CallerLimits struct {
	// PerSecond is the average number of requests in a second. Zero or less means no limit.
	PerSecond float64
	// Burst is the number of requests allowed at once after a pause. Zero means PerSecond, but at
	// least 1.
	Burst int

	// MaxConcurrent limits the requests that are in flight. Zero means no limit other than
	// Limits.MaxInFlight.
	MaxConcurrent int

	// Processes returns how many servers share the callers, for example behind a load balancer:
	// each applies its share of the limits. It is called for each request, and must be quick. Nil
	// means 1.
	Processes func() int

	// Methods lists the methods that the limits apply to. Nil means tools/call, prompts/get,
	// resources/read and completion/complete.
	Methods []string
}

// CodeTooManyRequests is the error code for a caller with too many requests. The error's data is an
// object. Its "limit" is "rate" or "concurrency", or "states" with [InputOptions.SingleUseState].
// Its "retryAfterMs", if present, is the number of milliseconds after which the caller may retry;
// otherwise it may retry when one of its requests has been answered.
//
// The specification leaves codes outside of -32768 … -32000 to applications and has none for this.
// The number is the HTTP status with the same meaning. Over HTTP it is also the response's status,
// with Retry-After, unless the response has begun or belongs to a batch.
const CodeTooManyRequests jsonrpc.Code = 429

// maxCallers limits the idle callers that the limits remember. A forgotten caller starts over.
const maxCallers = 10_000

// limits tracks the callers of a server.
type limits struct {
	// all are the limits of a caller at all servers.
	all callerLimits
	// processes returns the number of these servers. It may be nil.
	processes func() int
	methods   map[string]bool
	// refillTime is how long an idle caller takes to fill its bucket.
	refillTime time.Duration

	mu sync.Mutex
	// divisor is the number of servers of which share is one server's part.
	divisor int
	share   callerLimits
	// byID holds the recent callers by the principal's ID or the address.
	byID map[string]*list.Element
	// lru holds each *caller, the most recent first.
	lru list.List
}

// callerLimits are the limits of one caller. Without a rate limit, rate is 0.
type callerLimits struct {
	rate       rate.Limit
	burst      int
	concurrent int
}

// divide returns the part of one of n servers. Each admits something.
func (cl callerLimits) divide(n int) callerLimits {
	return callerLimits{cl.rate / rate.Limit(n), (cl.burst + n - 1) / n, (cl.concurrent + n - 1) / n}
}

// A caller counts the requests of one caller. It is guarded by limits.mu.
type caller struct {
	id string
	// bucket is nil without a rate limit.
	bucket *rate.Limiter
	// divisor is that of the limits which bucket has.
	divisor  int
	inFlight int
	lastSeen time.Time
}

// newLimits returns the limits of the options, or nil if they set none.
func newLimits(o *Options) *limits {
	if o.Callers.PerSecond <= 0 && o.Callers.MaxConcurrent <= 0 {
		return nil
	}
	l := &limits{processes: o.Callers.Processes, methods: make(map[string]bool), byID: make(map[string]*list.Element)}
	if r := &o.Callers; r.PerSecond > 0 {
		l.all.rate, l.all.burst = rate.Limit(r.PerSecond), r.Burst
		if l.all.burst <= 0 {
			l.all.burst = int(max(min(math.Ceil(r.PerSecond), math.MaxInt32), 1))
		}
		seconds := float64(l.all.burst) / r.PerSecond
		l.refillTime = time.Duration(min(seconds*float64(time.Second), float64(math.MaxInt64/2)))
	}
	l.all.concurrent = max(o.Callers.MaxConcurrent, 0)
	l.divisor, l.share = 1, l.all
	counted := o.Callers.Methods
	if counted == nil {
		counted = []string{mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead, mcp.MethodComplete}
	}
	for _, m := range counted {
		l.methods[m] = true
	}
	return l
}

// admit counts a request or rejects it.
func (l *limits) admit(c *Call) (*caller, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now() // under the lock: a bucket whose clock goes backwards refills twice
	if l.processes != nil {
		if n := max(l.processes(), 1); n != l.divisor {
			l.divisor, l.share = n, l.all.divide(n)
		}
	}
	cl := l.callerLocked(c, now)
	if l.share.concurrent > 0 && cl.inFlight >= l.share.concurrent {
		return nil, l.concurrencyError()
	}
	if cl.bucket != nil {
		if cl.divisor != l.divisor {
			cl.divisor = l.divisor
			cl.bucket.SetLimitAt(now, l.share.rate)
			cl.bucket.SetBurstAt(now, l.share.burst)
		}
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

// callerLocked returns the caller of the call.
func (l *limits) callerLocked(c *Call, now time.Time) *caller {
	ident, s := c.identity(), c.session
	id := ident.principal
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
	cl := &caller{id: id, divisor: l.divisor}
	if l.share.rate > 0 {
		cl.bucket = rate.NewLimiter(l.share.rate, l.share.burst)
	}
	return cl
}

// evictLocked evicts up to two of the least recent callers: those whose bucket is full again, and
// any if there are too many, but not latest. A request adds at most one caller, so their number
// shrinks.
func (l *limits) evictLocked(latest *caller) {
	for range 2 {
		e := l.lru.Back()
		cl := e.Value.(*caller)
		switch {
		case cl == latest:
			return
		case cl.inFlight > 0:
			l.lru.MoveToFront(e) // still active
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
		Message: fmt.Sprintf("too many requests: %v a second are allowed, try again in %d ms", float64(l.share.rate), millis),
		Data:    append(data, '}'),
	}
}

func (l *limits) concurrencyError() error {
	return &jsonrpc.Error{
		Code:    CodeTooManyRequests,
		Message: fmt.Sprintf("too many requests at once: %d are allowed, try again when one has been answered", l.share.concurrent),
		Data:    []byte(`{"limit":"concurrency"}`),
	}
}

type identityKey struct{}

// An identity is the principal and the address of a request.
type identity struct {
	// principal is the id of the principal, or "" if it is anonymous.
	principal string
	// address is the peer's network address, which identifies anonymous callers. If it is empty,
	// each connection is one caller.
	address string
}

// WithPrincipalID returns a context for [Server.Serve] whose requests come from the principal with
// that id, which the transport has verified, such as the user at the other side of a socket. Ids
// are unique among all principals; "" means anonymous, as on standard input and output. Over HTTP,
// the principal is that of package auth.
func WithPrincipalID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, identityKey{}, &identity{principal: id})
}

// PrincipalID returns the id of the principal that the handler or the middleware with this context
// acts for: that of auth.PrincipalOf(ctx) over HTTP, or that of [WithPrincipalID]. It is empty if
// the caller is anonymous. It never depends on what a client says about itself.
func PrincipalID(ctx context.Context) string {
	if c := CallOf(ctx); c != nil {
		return c.identity().principal
	}
	return identityOf(ctx).principal
}

var anonymous = &identity{}

// identityOf returns the identity in ctx, or the anonymous one.
func identityOf(ctx context.Context) *identity {
	if id, _ := ctx.Value(identityKey{}).(*identity); id != nil {
		return id
	}
	return anonymous
}

// callerID returns a text that identifies the caller of a request on the session; see
// [CallerLimits].
func (id *identity) callerID(s *session) string {
	switch {
	case id.principal != "":
		return id.principal
	case id.address != "":
		return "\x00" + id.address
	}
	return fmt.Sprintf("\x00%p", s)
}

// A View is the part of a server that some callers see. Hidden items are in no list, and requests
// for them fail as if they did not exist. Lists are encoded once for each View, so create a View
// for each group of callers, not for each request. Bound a cache of Views whose keys clients
// choose, for example by a header. A View is immutable.
type View struct {
	sees func(kind Kind, name string) bool
}

// NewView returns the View of the items for which sees returns true. name is the name of a tool or
// a prompt, the URI of a resource, or the URI template of a resource template. A resource of a
// template is visible if its template is. sees must be quick, must always return the same result
// for the same item, and may be called by multiple goroutines at once.
func NewView(sees func(kind Kind, name string) bool) *View { return &View{sees: sees} }

// shows reports whether the caller sees an item. A nil View shows everything.
func (v *View) shows(kind Kind, name string) bool { return v == nil || v.sees(kind, name) }

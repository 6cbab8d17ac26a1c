package policy

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/rpc/relay"
)

// A Limit bounds the calls of one caller, or to one upstream. The zero Limit sets no bound.
type Limit = config.CallerLimits

// LimitOptions are the limits of [NewLimits].
type LimitOptions struct {
	// Caller applies to each caller, over all upstreams.
	Caller Limit
	// Upstreams are limits by the name of the upstream, over all callers.
	Upstreams map[string]Limit
}

// maxCallers limits the callers that are tracked. Callers beyond it share one limit until others
// are idle.
const maxCallers = 50_000

// maxBurst is the largest burst that has an effect. It keeps the arithmetic of time.Duration exact
// enough.
const maxBurst = 1_000_000_000

// concurrencyRetry is the delay that a client is asked to wait if too many calls are in flight.
// Nobody knows when one of them ends.
const concurrencyRetry = time.Second

// Limits admits calls.
type Limits struct {
	opts LimitOptions

	mu sync.Mutex
	// callers holds the elements of recent by the caller. A caller whose limits are as those of a
	// new one may be removed.
	callers map[string]*list.Element
	// recent holds each *limited, the most recent first.
	recent list.List
	// crowd stands for all callers that are not tracked.
	crowd     *limited
	upstreams map[string]*limited
}

// limited is the state of a caller or an upstream. It is guarded by Limits.mu.
type limited struct {
	id    string
	limit Limit
	// bucket is nil without a rate.
	bucket   *rate.Limiter
	inFlight int
}

// NewLimits returns the limits. Package config checks their numbers.
func NewLimits(o LimitOptions) *Limits {
	return &Limits{opts: o, callers: map[string]*list.Element{}, crowd: newLimited("", o.Caller), upstreams: map[string]*limited{}}
}

func newLimited(id string, l Limit) *limited {
	s := &limited{id: id, limit: l}
	if l.Rate > 0 {
		burst := cmp.Or(min(l.Burst, maxBurst), int(min(max(math.Ceil(l.Rate), 1), maxBurst)))
		s.bucket = rate.NewLimiter(rate.Limit(l.Rate), burst)
	}
	return s
}

// Admit counts a call of the caller of ctx to an upstream, or rejects it with a
// [*relay.RejectedError]: with status 429 if the caller is over its limit, and 503 if the upstream
// is. The caller must call release once, after the call.
func (l *Limits) Admit(ctx context.Context, upstream string) (release func(), err error) {
	id := callerOf(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now() // under the lock: a bucket whose clock goes backwards refills twice
	caller, target := l.callerLocked(id, now), l.upstreamLocked(upstream)
	if wait, reason := caller.blocked(now); reason != "" {
		return nil, &relay.RejectedError{Status: http.StatusTooManyRequests, RetryAfter: wait, Reason: "too many calls: " + reason}
	}
	if wait, reason := target.blocked(now); reason != "" {
		return nil, &relay.RejectedError{Status: relay.StatusUnavailable, RetryAfter: wait, Reason: fmt.Sprintf("too many calls to %s by all clients: %s", upstream, reason)}
	}
	caller.take(now)
	target.take(now)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		caller.inFlight--
		target.inFlight--
	}, nil
}

// callerOf returns the id of a caller. Over HTTP, that is in the context already.
func callerOf(ctx context.Context) string {
	if id := relay.CallerOf(ctx); id != "" {
		return id
	}
	return auth.PrincipalOf(ctx).ID()
}

// blocked returns why a call must wait, or "", and how long it should wait.
func (s *limited) blocked(now time.Time) (wait time.Duration, reason string) {
	if s.limit.Concurrent > 0 && s.inFlight >= s.limit.Concurrent {
		return concurrencyRetry, fmt.Sprintf("%d are in flight", s.inFlight)
	}
	if s.bucket == nil {
		return 0, ""
	}
	missing := 1 - s.bucket.TokensAt(now)
	if missing <= 0 {
		return 0, ""
	}
	seconds := min(missing/s.limit.Rate, math.MaxInt32)
	return time.Duration(seconds * float64(time.Second)), fmt.Sprintf("the limit is %g a second", s.limit.Rate)
}

// take counts a call that is not blocked.
func (s *limited) take(now time.Time) {
	s.inFlight++
	if s.bucket != nil {
		s.bucket.AllowN(now, 1)
	}
}

// isIdle reports whether the state is that of a new caller.
func (s *limited) isIdle(now time.Time) bool {
	return s.inFlight == 0 && (s.bucket == nil || s.bucket.TokensAt(now) >= float64(s.bucket.Burst()))
}

// callerLocked returns the state of a caller. It forgets idle ones, two for each new one, so that
// the table shrinks after a crowd.
func (l *Limits) callerLocked(id string, now time.Time) *limited {
	if l.opts.Caller == (Limit{}) {
		return l.crowd
	}
	if e, ok := l.callers[id]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*limited)
	}
	for range 2 {
		e := l.recent.Back()
		if e == nil || !e.Value.(*limited).isIdle(now) {
			break
		}
		delete(l.callers, e.Value.(*limited).id)
		l.recent.Remove(e)
	}
	if len(l.callers) >= maxCallers {
		return l.crowd
	}
	s := newLimited(id, l.opts.Caller)
	l.callers[id] = l.recent.PushFront(s)
	return s
}

// upstreamLocked returns the state of an upstream. Their names come from the configuration.
func (l *Limits) upstreamLocked(name string) *limited {
	s := l.upstreams[name]
	if s == nil {
		s = newLimited(name, l.opts.Upstreams[name])
		l.upstreams[name] = s
	}
	return s
}

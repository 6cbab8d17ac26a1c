package bridge

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// maxStart is how long a server that sends nothing counts as starting: one that hangs must not
// delay the others for long.
const maxStart = 10 * time.Second

// Starts limit how many servers start at once. Several bridges may have the same. Use [NewStarts].
type Starts struct {
	// again is for servers whose last start has failed, so that they do not delay others.
	first, again chan struct{}
}

// NewStarts returns a limit of n starts at once, and as many of servers whose last start failed.
func NewStarts(n int) *Starts {
	return &Starts{make(chan struct{}, n), make(chan struct{}, n)}
}

// A startQueue counts the upstreams of a bridge that wait to start. The zero value is ready to use.
type startQueue struct {
	waiting atomic.Int64
	// last is when one last waited, in nanoseconds since the epoch.
	last atomic.Int64
}

// waited returns when an upstream last waited: the current time while one does, and the zero time
// if none did.
func (q *startQueue) waited() time.Time {
	if q.waiting.Load() > 0 {
		return time.Now()
	}
	if n := q.last.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// begin waits until the upstream may start its server. The caller must call started, which may be
// called several times, when the server has sent something or has ended.
func (u *upstream) begin() (started func(), err error) {
	limit := u.b.opts.Starts
	if limit == nil || u.b.opts.HTTP {
		return func() {}, nil
	}
	places := limit.first
	if _, failed := u.backoff.last(); failed != nil {
		places = limit.again
	}
	select {
	case places <- struct{}{}:
	default:
		q := &u.b.starting
		q.waiting.Add(1)
		defer func() {
			q.last.Store(time.Now().UnixNano())
			q.waiting.Add(-1)
		}()
		select {
		case places <- struct{}{}:
		case <-u.ctx.Done():
			return nil, context.Cause(u.ctx)
		}
	}
	release := sync.OnceFunc(func() { <-places })
	timer := time.AfterFunc(maxStart, release)
	return func() { timer.Stop(); release() }, nil
}

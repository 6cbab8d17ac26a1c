package jsonrpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Context is the context of one incoming request. It ends when the peer cancels the request, when it has run for too long, when the connection
// ends, and when it has been answered. It makes its channel only if somebody asks for it, so that a request that nobody waits in costs
// one small object; layers above embed it in an object of their own. It may be used by many goroutines at once.
type Context struct {
	conn     *Conn
	base     context.Context // has the values
	lifetime context.Context // that it ends with, which it watches only if somebody asks; nil if it ends with the connection only
	turn     uint64          // of the reader that runs the handler itself; 0 on other goroutines
	trace    *Trace          // nil if there is none
	ended    atomic.Bool     // answered or cancelled: nothing may be sent for it any more

	hasSender bool       // what belongs to the request goes by its own outlet
	sending   sync.Mutex // held while something does; guards outlet
	sender    Sender     // nil once the request has been dismissed

	mu       sync.Mutex
	done     chan struct{}
	err      error
	timeout  *timeout  // nil if there is none; it does not change
	watchers *watchers // nil until there is something to watch
}

// watchers are those who want to know of the end of a Context, and what it watches for them.
type watchers struct {
	callbacks map[*func()]struct{}
	stopWatch func() bool // stops watching until; nil if that is not watched
}

// A timeout is the end of the time that a request may take.
type timeout struct {
	deadline time.Time
	timer    *time.Timer
}

type contextKey struct{}

// RequestContext returns the Context of the incoming request that ctx stems from, or nil.
func RequestContext(ctx context.Context) *Context {
	c, _ := ctx.Value(contextKey{}).(*Context)
	return c
}

// WithoutRequest returns ctx without the request that it stems from, but with its trace: calls and notifications that are made with it belong to no request, and
// on a detached connection do not go by the request's outlet.
func WithoutRequest(ctx context.Context) context.Context {
	return &withoutRequestCtx{WithTrace(ctx, TraceFrom(ctx))}
}

type withoutRequestCtx struct{ context.Context }

// Value implements [context.Context].
func (c *withoutRequestCtx) Value(key any) any {
	if key == (contextKey{}) {
		return nil
	}
	return c.Context.Value(key)
}

// Conn returns the connection that the request came in on.
func (c *Context) Conn() *Conn { return c.conn }

// WithSender calls f with what the request was delivered with (see [Delivery]), which is valid until f returns: nil once the request has been answered, and on
// connections that read for themselves. Nothing is sent for the request meanwhile: f must not send with its context.
func (c *Context) WithSender(f func(Sender)) {
	c.sending.Lock()
	defer c.sending.Unlock()
	f(c.sender)
}

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) {
	if c.timeout == nil {
		if c.lifetime != nil {
			return c.lifetime.Deadline()
		}
		return c.base.Deadline()
	}
	return c.timeout.deadline, true
}

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
		c.watchLifetimeLocked()
	}
	return c.done
}

// watchLifetimeLocked watches over until from now on.
func (c *Context) watchLifetimeLocked() {
	if c.lifetime == nil || c.err != nil {
		return
	}
	if w := c.watchersLocked(); w.stopWatch == nil {
		w.stopWatch = context.AfterFunc(c.lifetime, func() { c.finish(c.lifetime.Err()) })
	}
}

func (c *Context) watchersLocked() *watchers {
	if c.watchers == nil {
		c.watchers = new(watchers)
	}
	return c.watchers
}

// Err implements [context.Context].
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.lifetime != nil {
		return c.lifetime.Err()
	}
	return c.err
}

// Value implements [context.Context].
func (c *Context) Value(key any) any {
	if key == (contextKey{}) {
		return c
	}
	return c.base.Value(key)
}

// AfterFunc calls f on a goroutine of its own once the context has ended, unless stop is called first. The package context uses it to derive
// contexts without a goroutine.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	w := c.watchersLocked()
	if w.callbacks == nil {
		w.callbacks = make(map[*func()]struct{})
	}
	w.callbacks[&f] = struct{}{}
	c.watchLifetimeLocked()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := w.callbacks[&f]
		delete(w.callbacks, &f)
		return waiting
	}
}

// end ends the request with its context.
func (c *Context) end() {
	c.ended.Store(true)
	c.finish(context.Canceled)
}

// expire ends the context but not the request, which is still owed an answer.
func (c *Context) expire() { c.finish(context.DeadlineExceeded) }

// finish ends the context; only the first call counts.
func (c *Context) finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	if c.timeout != nil {
		c.timeout.timer.Stop()
	}
	w := c.watchers
	if w == nil {
		return
	}
	if w.stopWatch != nil {
		w.stopWatch()
	}
	for f := range w.callbacks {
		go (*f)()
	}
	w.callbacks = nil
}

// active reports whether something may still be sent for the request.
func (c *Context) active() bool {
	return !c.ended.Load() && !(c.lifetime != nil && c.lifetime.Err() != nil)
}

// Notify sends a notification that belongs to the request, and is on the wire before its answer. It fails with [ErrRequestEnded] once the
// request has been answered or cancelled. params is JSON text, or nil.
func (c *Context) Notify(method string, params []byte) error {
	params, err := checkParams(params)
	if err != nil {
		return fmt.Errorf("notify %s: %w", method, err)
	}
	if c.hasSender {
		return c.notifyDirect(method, params)
	}
	return c.conn.notify(method, params, c.active)
}

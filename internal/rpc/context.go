package rpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
)

// A Context is the context of one incoming request. It ends when the peer cancels the request, when
// the request times out, when the connection ends, and when the request is answered. It allocates
// its channel on the first call of Done, so that other requests cost one small object; layers above
// embed it in an object of theirs. Many goroutines may use it at once.
type Context struct {
	conn *Conn
	// base supplies the values.
	base context.Context
	// lifetime ends this context too. It is watched only on demand. It is nil if only the
	// connection ends the context.
	lifetime context.Context
	// turn is the turn of the leader that runs the handler, or 0 on other goroutines.
	turn uint64
	// trace may be nil.
	trace *Trace
	// cause holds the values of base and the cause of the end. It is nil if there is no cause.
	cause atomic.Pointer[causeContext]
	// ended reports that the request was answered or canceled, so nothing may be sent for it.
	ended atomic.Bool

	// hasSender reports that the request's messages go through sender.
	hasSender bool
	// sending is held during a send. It guards sender.
	sending sync.Mutex
	// sender is nil once the request has ended.
	sender Sender

	mu   sync.Mutex
	done chan struct{}
	err  error
	// watchers is nil until there is something to watch.
	watchers *watchers
}

// A causeContext is a context that package context created, and so has a [context.Cause].
type causeContext struct{ context.Context }

// watchers holds the callbacks for the end of a Context, and the watch of its lifetime.
type watchers struct {
	callbacks map[*func()]struct{}
	// stopWatch stops watching lifetime. It is nil if lifetime is not watched.
	stopWatch func() bool
}

type contextKey struct{}

// RequestContext returns the Context of the incoming request that ctx derives from, or nil.
func RequestContext(ctx context.Context) *Context {
	c, _ := ctx.Value(contextKey{}).(*Context)
	return c
}

// WithoutRequest returns ctx without its incoming request but with its trace. Calls and
// notifications that use it belong to no request; a detached connection does not send them by a
// request's sender.
func WithoutRequest(ctx context.Context) context.Context {
	return context.WithValue(WithTrace(ctx, TraceFrom(ctx)), contextKey{}, (*Context)(nil))
}

// WithSender calls f with the Sender of the [Delivery] of c's request, which is valid until f
// returns. It is nil once the request has been answered, and on connections that read for
// themselves. Nothing is sent for the request meanwhile: f must not send with c.
func WithSender(c *Context, f func(Sender)) {
	c.sending.Lock()
	defer c.sending.Unlock()
	f(c.sender)
}

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) {
	if c.lifetime != nil {
		return c.lifetime.Deadline()
	}
	return c.base.Deadline()
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

// watchLifetimeLocked starts to watch lifetime.
func (c *Context) watchLifetimeLocked() {
	if c.lifetime == nil || c.err != nil {
		return
	}
	if w := c.watchersLocked(); w.stopWatch == nil {
		w.stopWatch = context.AfterFunc(c.lifetime, func() { c.finish(c.lifetime.Err(), jsonrpc.ErrDisconnected) })
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
	if c.err == nil && c.lifetime != nil && c.lifetime.Err() != nil {
		c.finishLocked(c.lifetime.Err(), jsonrpc.ErrDisconnected)
	}
	return c.err
}

// Value implements [context.Context].
func (c *Context) Value(key any) any {
	if key == (contextKey{}) {
		return c
	}
	if ended := c.cause.Load(); ended != nil {
		return ended.Value(key)
	}
	return c.base.Value(key)
}

// AfterFunc calls f on a new goroutine once the context has ended, unless stop is called first.
// Package context uses it to derive contexts without a goroutine.
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

// end ends the request and its context. cause is nil if the request was answered.
func (c *Context) end(cause error) {
	c.ended.Store(true)
	c.finish(context.Canceled, cause)
}

// finish ends the context. Only the first call counts.
func (c *Context) finish(err, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishLocked(err, cause)
}

func (c *Context) finishLocked(err, cause error) {
	if c.err != nil {
		return
	}
	c.err = err
	if cause != nil {
		c.setCause(cause)
	}
	if c.done != nil {
		close(c.done)
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

// setCause sets the cause of the end, unless lifetime has ended with a cause.
func (c *Context) setCause(cause error) {
	if c.conn.stopping.Load() && cause == jsonrpc.ErrDisconnected && c.conn.detached {
		cause = jsonrpc.ErrShutdown
	}
	if c.lifetime != nil {
		if known := context.Cause(c.lifetime); known != nil && known != context.Canceled {
			cause = known
		}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(c.base))
	cancel(cause)
	c.cause.Store(&causeContext{ctx})
}

// active reports whether messages may still be sent for the request.
func (c *Context) active() bool {
	return !c.ended.Load() && !(c.lifetime != nil && c.lifetime.Err() != nil)
}

// Notify sends a notification that belongs to the request, before the response. It fails with
// [jsonrpc.ErrRequestEnded] once the request has been answered or canceled. params is JSON text or
// nil.
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

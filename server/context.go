package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"mcpwire/internal/rpc"
)

type callKey struct{}

// CallOf returns the Call that ctx derives from, or nil.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// A callContext is the context of a Call.
type callContext struct {
	// request is the context of the request.
	request rpc.Context
	// derived holds the handler's timeout and the values of middleware. It is nil without either.
	derived atomic.Pointer[derivedContext]
}

// A derivedContext is a context that derives from the request's.
type derivedContext struct{ context.Context }

// current returns the context that methods of the Call use.
func (cc *callContext) current() context.Context {
	if l := cc.derived.Load(); l != nil {
		return l.Context
	}
	return &cc.request
}

// afterFunc calls f on a new goroutine once the context has ended.
func (cc *callContext) afterFunc(f func()) (stop func() bool) {
	if l := cc.derived.Load(); l != nil {
		return context.AfterFunc(l.Context, f)
	}
	return cc.request.AfterFunc(f)
}

// derive replaces the context with ctx, which derives from it.
func (cc *callContext) derive(ctx context.Context) { cc.derived.Store(&derivedContext{ctx}) }

// startTimer starts the handler's timeout, if d is positive. The caller must call stop when the
// handler has returned.
func (cc *callContext) startTimer(d time.Duration) (stop context.CancelFunc) {
	if d <= 0 {
		return func() {}
	}
	before := cc.derived.Load()
	ctx, cancel := context.WithTimeoutCause(cc.current(), d, errHandlerTimeout)
	cc.derive(ctx)
	return func() {
		cc.derived.Store(before) // middleware may continue with the call
		cancel()
	}
}

// errHandlerTimeout distinguishes [Limits.HandlerTimeout] from other deadlines.
var errHandlerTimeout = errors.New("the handler's time limit expired")

// leaveChain replaces the context with ctx, which the middleware passed on. It derives from the
// chainContext of the request.
func (cc *callContext) leaveChain(ctx context.Context) {
	if start, ok := ctx.(chainContext); ok && start.Context == &cc.request {
		cc.derived.Store(nil)
		return
	}
	cc.derive(ctx)
}

// joinContext returns a context that derives from the call, so that requests belong to it, and that
// also ends with ctx.
func joinContext(ctx context.Context, c *Call) (context.Context, context.CancelFunc) {
	if CallOf(ctx) == c {
		return context.WithCancel(ctx)
	}
	joined, cancel := context.WithCancelCause(c)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return joined, func() { stop(); cancel(nil) }
}

// A chainContext is the context at the start of the chain of an incoming message. It derives from
// the message's context, and CallOf finds the Call in it. Unlike the Call it does not have the
// values of middleware.
type chainContext struct {
	*rpc.Context
	call *Call
}

// Value implements [context.Context].
func (cc chainContext) Value(key any) any {
	if key == (callKey{}) {
		return cc.call
	}
	return cc.Context.Value(key)
}

// A sessionContext is the context of messages that belong to no request of the session. It ends
// with the connection. It is created on demand, since most sessions need none.
type sessionContext struct {
	// Context supplies the values.
	context.Context
	conn *rpc.Conn
}

// Deadline implements [context.Context].
func (sc *sessionContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements [context.Context].
func (sc *sessionContext) Done() <-chan struct{} { return sc.conn.Done() }

// Err implements [context.Context].
func (sc *sessionContext) Err() error {
	select {
	case <-sc.conn.Done():
		return context.Canceled
	default:
		return nil
	}
}

package streamable

import (
	"context"
	"net/http"
	"sync"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
)

// A listener is a client with a standing stream: a subscription, or what belongs to no request of a session. It lasts as long as the client's authorization, and
// its request, unless its connection is held (see held.go).
type listener struct {
	h      *Handler
	caller *caller
	p      *response
	leave  func() // gives up its place among the streams

	// end ends what the stream is about, with an answer if the client is to have one; nil if there is nothing yet.
	end    func(answered bool)
	once   sync.Once
	cancel context.CancelFunc // of what begin returned
	untie  func() bool        // from the request
	isHeld bool
}

// begin returns the context of the stream. It ends with the request's until the connection is held.
func (l *listener) begin(r *http.Request) context.Context {
	l.p.lone = true
	ctx, cancel := auth.WithExpiry(context.WithoutCancel(r.Context()))
	l.cancel = cancel
	l.untie = context.AfterFunc(r.Context(), cancel)
	return ctx
}

// finish ends the stream. Only the first call counts.
func (l *listener) finish(answered bool) {
	l.once.Do(func() {
		if l.end != nil {
			l.end(answered)
		}
		l.p.stop()
		l.untie()
		l.cancel()
		l.leave()
	})
}

// served is called when the request has been. It reports whether a goroutine goes on with it, which has to leave then.
func (l *listener) served() (goesOn bool) {
	if !l.isHeld {
		l.finish(true)
	}
	return l.isHeld
}

// held has the stream end when the client is gone, the authorization ends, or the handler shuts down, whichever is first. The connection has been taken, and with
// it the place of the request among those that are counted: a client that sees the stream may ask for more before the request has been served.
func (l *listener) held(ctx context.Context) {
	l.isHeld = true
	l.untie()
	stayOpen := context.AfterFunc(l.h.closed, func() { l.finish(true) })
	authorized := context.AfterFunc(ctx, func() { l.finish(false) })
	go func() {
		defer l.h.leave(l.caller, nil)
		l.p.untilGone()
		stayOpen()
		authorized()
		l.finish(false)
	}()
}

// subscribe answers subscriptions/listen.
func (l *listener) subscribe(x *exchange) {
	ctx := l.begin(x.r)
	l.p.keepWarm(nil)
	returned := false
	defer func() {
		if !returned { // middleware has ended the goroutine
			l.p.fail(x.id())
		}
	}()
	d := &x.delivery
	d.Outlet, d.Free, d.Stand = l.p, true, true
	answer, err := l.h.modern.deliver(x.onBehalf(ctx), x.body, &x.delivery, nil)
	returned = true
	standing, ok := err.(*jsonrpc.Outstanding)
	if !ok { // it was refused, or has ended
		if ctx.Err() == nil {
			l.p.end(answer, err)
		}
		return
	}
	l.end = func(answered bool) {
		answer := standing.Finish(nil)
		if answered && ctx.Err() == nil { // the client is not to hear that all went well if it has lost its authorization
			l.p.end(answer, nil)
		}
	}
	if l.p.hold() {
		l.held(ctx)
		return
	}
	select {
	case <-x.r.Context().Done():
	case <-ctx.Done():
	case <-l.h.closed.Done():
	}
}

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
type standingStream struct {
	h        *Handler
	caller   *caller
	response *response
	release  func() // gives up its place among the streams

	// end ends what the stream is about, with an answer if the client is to have one; nil if there is nothing yet.
	end           func(answered bool)
	once          sync.Once
	cancel        context.CancelFunc // of what begin returned
	unbindRequest func() bool        // from the request
	hijacked      bool
}

// begin returns the context of the stream. It ends with the request's until the connection is held.
func (ss *standingStream) begin(r *http.Request) context.Context {
	ss.response.closeConn = true
	ctx, cancel := auth.WithExpiry(context.WithoutCancel(r.Context()))
	ss.cancel = cancel
	ss.unbindRequest = context.AfterFunc(r.Context(), cancel)
	return ctx
}

// finish ends the stream. Only the first call counts.
func (ss *standingStream) finish(answered bool) {
	ss.once.Do(func() {
		if ss.end != nil {
			ss.end(answered)
		}
		ss.response.stop()
		ss.unbindRequest()
		ss.cancel()
		ss.release()
	})
}

// done is called when the request has been. It reports whether a goroutine goes on with it, which has to leave then.
func (ss *standingStream) done() (detached bool) {
	if !ss.hijacked {
		ss.finish(true)
	}
	return ss.hijacked
}

// serveHijacked has the stream end when the client is gone, the authorization ends, or the handler shuts down, whichever is first. The connection has been taken, and with
// it the place of the request among those that are counted: a client that sees the stream may ask for more before the request has been served.
func (ss *standingStream) serveHijacked(ctx context.Context) {
	ss.hijacked = true
	ss.unbindRequest()
	stopOnShutdown := context.AfterFunc(ss.h.closed, func() { ss.finish(true) })
	stopOnExpiry := context.AfterFunc(ctx, func() { ss.finish(false) })
	go func() {
		defer ss.h.releaseHTTP(ss.caller, nil)
		ss.response.waitClosed()
		stopOnShutdown()
		stopOnExpiry()
		ss.finish(false)
	}()
}

// subscribe answers subscriptions/listen.
func (ss *standingStream) subscribe(pr *postRequest) {
	ctx := ss.begin(pr.r)
	ss.response.startKeepAlive(nil)
	returned := false
	defer func() {
		if !returned { // middleware has ended the goroutine
			ss.response.fail(pr.id())
		}
	}()
	d := &pr.delivery
	d.Sender, d.Untracked, d.AllowDeferred = ss.response, true, true
	answer, err := ss.h.modern.deliverRequest(pr.withIdentity(ctx), pr.body, &pr.delivery, nil)
	returned = true
	deferred, ok := err.(*jsonrpc.Deferred)
	if !ok { // it was refused, or has ended
		if ctx.Err() == nil {
			ss.response.end(answer, err)
		}
		return
	}
	ss.end = func(answered bool) {
		answer := deferred.Finish(nil)
		if answered && ctx.Err() == nil { // the client is not to hear that all went well if it has lost its authorization
			ss.response.end(answer, nil)
		}
	}
	if ss.response.hijack() {
		ss.serveHijacked(ctx)
		return
	}
	select {
	case <-pr.r.Context().Done():
	case <-ctx.Done():
	case <-ss.h.closed.Done():
	}
}

package resend

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
)

// Abort ends the exchange of a message that was sent, from this side: that is how clients cancel a request over HTTP in the modern era
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#cancellation). The server gets all of the message before. Abort does not wait: what
// [Session.Next] returns tells that the exchange is over. It does nothing for one that is over, or over stdio.
func (s *Session) Abort(exchange uint64) {
	w, ok := s.conn.(*httpConn)
	if !ok {
		return
	}
	w.mu.Lock()
	l := w.aborts[exchange]
	w.mu.Unlock()
	if l != nil {
		l.set(&l.requested)
	}
}

// A line is the connection of one exchange, as far as it can be cut from this side.
type abortState struct {
	cancel context.CancelCauseFunc

	mu                 sync.Mutex
	written, requested bool // the whole request, and that it be cut then
}

// newAbortState returns a line, and the context for the request of its exchange.
func newAbortState(parent context.Context) (context.Context, *abortState) {
	l := new(abortState)
	ctx, cancel := context.WithCancelCause(parent)
	l.cancel = cancel
	var message atomic.Bool // what is written is the message, and not a request for a token that it needs
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { message.Store(false) },
		WroteHeaderField: func(name string, _ []string) {
			if strings.EqualFold(name, headerVersion) {
				message.Store(true)
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil && message.Load() {
				l.set(&l.written)
			}
		},
	}), l
}

// registerAbort lets [Session.Abort] find the line of an exchange, until over is called.
func (hc *httpConn) registerAbort(x *exchange, l *abortState) (over func()) {
	x.abort = l
	hc.mu.Lock()
	hc.aborts[x.n] = l
	hc.mu.Unlock()
	return func() {
		hc.mu.Lock()
		delete(hc.aborts, x.n)
		hc.mu.Unlock()
		l.cancel(nil)
	}
}

// set sets one of the line's two conditions, and cuts it when both are met.
func (a *abortState) set(condition *bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*condition = true
	if a.written && a.requested {
		a.cancel(errClientClosed)
	}
}

// roundTrip makes the request of an exchange.
func (x *exchange) roundTrip(r *http.Request) (*http.Response, error) {
	resp, err := x.conn.transport.RoundTrip(r)
	if x.abort != nil {
		x.abort.set(&x.abort.written) // transports that are not net/http's may say nothing
	}
	return resp, err
}

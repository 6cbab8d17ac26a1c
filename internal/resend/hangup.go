package resend

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
)

// HangUp ends the exchange of a message that was sent, from this side: that is how clients cancel a request over HTTP in the modern era
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#cancellation). The server gets all of the message before. HangUp does not wait: what
// [Session.Next] returns tells that the exchange is over. It does nothing for one that is over, or over stdio.
func (s *Session) HangUp(exchange uint64) {
	w, ok := s.link.(*web)
	if !ok {
		return
	}
	w.mu.Lock()
	l := w.lines[exchange]
	w.mu.Unlock()
	if l != nil {
		l.mark(&l.wanted)
	}
}

// A line is the connection of one exchange, as far as it can be cut from this side.
type line struct {
	cancel context.CancelCauseFunc

	mu              sync.Mutex
	written, wanted bool // the whole request, and that it be cut then
}

// newLine returns a line, and the context for the request of its exchange.
func newLine(parent context.Context) (context.Context, *line) {
	l := new(line)
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
				l.mark(&l.written)
			}
		},
	}), l
}

// connect lets [Session.HangUp] find the line of an exchange, until over is called.
func (w *web) connect(x *exchange, l *line) (over func()) {
	x.line = l
	w.mu.Lock()
	w.lines[x.n] = l
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.lines, x.n)
		w.mu.Unlock()
		l.cancel(nil)
	}
}

// mark sets one of the line's two conditions, and cuts it when both are met.
func (l *line) mark(condition *bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*condition = true
	if l.written && l.wanted {
		l.cancel(errClientClosed)
	}
}

// roundTrip makes the request of an exchange.
func (x *exchange) roundTrip(r *http.Request) (*http.Response, error) {
	resp, err := x.w.transport.RoundTrip(r)
	if x.line != nil {
		x.line.mark(&x.line.written) // transports that are not net/http's may say nothing
	}
	return resp, err
}

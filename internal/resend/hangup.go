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
		l.hangUp()
	}
}

// A line is the connection of one exchange, as far as it can be cut from this side.
type line struct {
	cancel context.CancelCauseFunc

	mu              sync.Mutex
	written, wanted bool // the whole request, and that it be cut then
}

// lineOf returns a context for an exchange whose line can be cut, and what is to be called when that is over.
func (w *web) lineOf(n uint64) (ctx context.Context, l *line, over func()) {
	l = new(line)
	ctx, l.cancel = context.WithCancelCause(w.ctx)
	var message atomic.Bool // what is written is the message, and not a request for a token that it needs
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { message.Store(false) },
		WroteHeaderField: func(name string, _ []string) {
			if strings.EqualFold(name, headerVersion) {
				message.Store(true)
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil && message.Load() {
				l.wrote()
			}
		},
	})
	w.mu.Lock()
	w.lines[n] = l
	w.mu.Unlock()
	return ctx, l, func() {
		w.mu.Lock()
		delete(w.lines, n)
		w.mu.Unlock()
		l.cancel(nil)
	}
}

func (l *line) wrote() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = true
	if l.wanted {
		l.cancel(errClientClosed)
	}
}

func (l *line) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
	if l.written {
		l.cancel(errClientClosed)
	}
}

// roundTrip makes the request of an exchange.
func (x *exchange) roundTrip(r *http.Request) (*http.Response, error) {
	resp, err := x.w.transport.RoundTrip(r)
	if x.line != nil {
		x.line.wrote() // transports that are not net/http's may say nothing
	}
	return resp, err
}

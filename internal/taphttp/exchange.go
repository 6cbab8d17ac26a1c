package taphttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/httphead"
	"mcpwire/internal/neterror"
)

// An exchange is a request with its response.
type exchange struct {
	h          *Handler
	w          http.ResponseWriter
	r          *http.Request
	rc         *http.ResponseController
	ctx        context.Context
	cancel     context.CancelCauseFunc
	number     uint64
	conn       *clientConn // nil if the listener is not ours
	isEndpoint bool        // it is at the path of the URL that is tapped

	// The handler's sessions have these.
	connNumber  *connNumber
	session     uint64
	provisional bool // the number is the connection's, and may become a session's

	header      []capture.Header // of the request, as on the wire; nil if that is not known
	endRecorded bool             // KindEnd was recorded
	returned    atomic.Bool      // the handler has returned, or is about to

	bodyRead atomic.Bool // all of the request's body
	interim  interim
	buffers  []*boundedBuffer // to give back
}

// record records an event of this exchange.
func (x *exchange) record(e *capture.Event) {
	e.Session, e.Exchange = x.session, x.number
	x.h.rec.record(e)
}

// note records a remark.
func (x *exchange) note(dir capture.Dir, text string) {
	x.record(&capture.Event{Kind: capture.KindNote, Dir: dir, Data: []byte(text)})
}

// recordEnd records that the exchange is over, and why if that is not the normal end.
func (x *exchange) recordEnd(why string) {
	if !x.endRecorded {
		x.endRecorded = true
		e := &capture.Event{Kind: capture.KindEnd}
		if why != "" {
			e.Data = []byte(why)
		}
		x.record(e)
	}
}

// abortLocked ends the exchange, also one whose client neither sends nor reads. The handler's lock keeps it from being over: its deadlines would not be ours any more.
func (x *exchange) abortLocked() {
	x.cancel(errShutdown)
	w := x.w
	if outer, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		w = outer.Unwrap() // what is around net/http's is for one goroutine
	}
	rc, past := http.NewResponseController(w), time.Unix(1, 0)
	rc.SetReadDeadline(past)
	rc.SetWriteDeadline(past)
}

// abortErr is asked behind the setting of a deadline, which may have undone that of abortLocked.
func (x *exchange) abortErr() error {
	if errors.Is(context.Cause(x.ctx), errShutdown) {
		return errShutdown
	}
	return nil
}

// finish gives back what the exchange has taken.
func (x *exchange) finish() {
	x.returned.Store(true)
	x.recordEnd("the tap failed") // a panic
	if x.conn != nil && x.r.ProtoMajor == 1 && !x.bodyRead.Load() && x.abortErr() != nil {
		x.conn.Close() // net/http would wait for the rest of the body
	}
	x.cancel(nil)
	x.releaseBuffers()
	x.h.sessions.unassign(x)
	x.h.remove(x)
}

func (x *exchange) releaseBuffers() {
	for _, b := range x.buffers {
		b.release()
	}
}

// newBuffer returns a place for a body or an event.
func (x *exchange) newBuffer() *boundedBuffer {
	b := &boundedBuffer{budget: &x.h.budget, max: x.h.opts.MaxBody}
	x.buffers = append(x.buffers, b)
	return b
}

// standing reports whether the exchange is one that does not end by itself.
func (x *exchange) standing() bool {
	return x.r.Method == http.MethodGet || x.r.Header.Get("Mcp-Method") == methodListen
}

const methodListen = "subscriptions/listen"

// recordRequest records the head of the request.
func (x *exchange) recordRequest() {
	r := x.r
	if x.conn != nil && r.ProtoMajor == 1 {
		if list, ok := x.conn.head.take(); ok && sameFields(list, r.Header) {
			x.header = list
		}
	}
	head := httphead.ServerRequest(r)
	if x.header != nil {
		head.Headers = x.header
	}
	x.record(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: head})
}

// expectNextHead is called when the body of the request has been read and nothing of the response has been sent: what the client sends from now on is its next request.
func (x *exchange) expectNextHead() {
	x.bodyRead.Store(true)
	if x.conn != nil && x.r.ProtoMajor == 1 {
		x.conn.head.expect()
	}
}

// refuse answers in the place of the server. That is no event of a response, since the server is not to be judged by it.
func (x *exchange) refuse(status int, why string) {
	x.recordEnd("refused by the tap with status " + strconv.Itoa(status) + ": " + why)
	x.writeError(status, why)
}

// writeError sends a response of the tap's own.
func (x *exchange) writeError(status int, why string) {
	h := x.w.Header()
	clear(h)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	if x.r.ProtoMajor == 1 {
		h.Set("Connection", "close") // a body that was not read is in the way of the next request
	}
	x.w.WriteHeader(status)
	if x.r.Method != http.MethodHead {
		x.w.Write([]byte("mcpwire tap: " + why + "\n"))
	}
}

// endReason says why the exchange ended early, in view of an error of the given side.
func (x *exchange) endReason(side string, err error) string {
	// net/http cancels the context of a request whose connection reached a deadline, too.
	switch cause := context.Cause(x.ctx); {
	case errors.Is(cause, errShutdown):
		return errShutdown.Error()
	case errors.Is(err, errSlowReader):
		return err.Error()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return side + " timed out"
	case cause != nil, errors.Is(err, errClientGone):
		return errClientGone.Error()
	case neterror.IsReset(err):
		return side + " reset"
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return side + ": no address of the host is known: " + dns.Err
	}
	return side + ": " + printable(err.Error())
}

// printable bounds a text that peers have a part in, and takes what terminals could act upon out of it.
func printable(s string) string {
	const most = 300
	q := strconv.QuoteToASCII(s[:min(len(s), most)])
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

package streamable

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"runtime/debug"
	"time"
)

// A guard is around the handler of a server: it has what every request needs and net/http leaves to handlers.
type guard struct {
	next  http.Handler
	opts  *ServeOptions
	clock clock
	known bool // the context of all requests has a principal
}

// ServeHTTP implements [http.Handler].
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &guardedWriter{ResponseWriter: w}
	if !g.known {
		out.anonymous = r.Context()
	}
	if r.ProtoMajor == 1 {
		out.stale = true
		if len(r.TransferEncoding) > 0 {
			// A length that came together with it has been removed, so that it cannot be told from a chunked request without one. What stands between may have
			// gone by the length: nothing more is taken from there (RFC 9112, section 6.1).
			w.Header()["Connection"] = closeConnection
		}
	}
	defer g.boundEnd(out, r)
	defer g.contain(out, r)
	g.next.ServeHTTP(out, r)
}

// closeConnection is shared by responses; nobody changes it.
var closeConnection = []string{"close"}

// boundEnd bounds what net/http does when the handler has returned, which has no deadline otherwise: it reads what is left of a small body, and writes what
// is left of the answer.
func (g *guard) boundEnd(w *guardedWriter, r *http.Request) {
	if w.taken {
		return
	}
	since := g.clock.since()
	w.SetWriteDeadline(g.clock.base.Add(since + g.opts.WriteTimeout))
	if r.ContentLength != 0 && r.ProtoMajor == 1 && !w.drained {
		w.SetReadDeadline(g.clock.base.Add(since + g.opts.HeaderTimeout))
	}
}

// contain ends a request whose handler panics.
func (g *guard) contain(w *guardedWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	g.opts.Logger.ErrorContext(r.Context(), "a handler panicked", "panic", v, "stack", string(debug.Stack()))
	if w.begun {
		panic(http.ErrAbortHandler) // lets the client see that the answer is not whole
	}
	h := w.Header()
	clear(h)
	setHeader(h, jsonType)
	if r.ProtoMajor == 1 {
		h["Connection"] = closeConnection
	}
	w.WriteHeader(http.StatusInternalServerError)
	w.Write([]byte(`{"jsonrpc":"2.0","error":{"code":-32603,"message":"internal error"}}` + "\n"))
}

// A guardedWriter knows whether an answer has begun, and sees to it that the deadline which bounded the end of the answer before this one does not count for it.
type guardedWriter struct {
	http.ResponseWriter
	anonymous context.Context // of the request: as long as it has no other, it comes from nobody in particular; nil if that is not sure
	begun     bool
	stale     bool  // the connection may have such a deadline
	taken     bool  // the connection is not net/http's any more
	drained   bool  // the body was read to its end
	written   int32 // bytes, as long as they are few
}

// buffered is how much net/http keeps before it writes to the connection, in bytes. It is less than that, to leave room for the header.
const buffered = 2 << 10

// renew takes the stale deadline away.
func (w *guardedWriter) renew() {
	if w.stale {
		w.SetWriteDeadline(time.Time{})
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *guardedWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.begun = true
	} else {
		w.renew() // it is written at once
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *guardedWriter) Write(b []byte) (int, error) {
	w.begun = true
	if w.written += int32(min(len(b), 2*buffered)); w.written > buffered {
		w.written = buffered + 1
		w.renew()
	}
	return w.ResponseWriter.Write(b)
}

// Flush implements [http.Flusher].
func (w *guardedWriter) Flush() { w.FlushError() }

// FlushError is for [http.ResponseController].
func (w *guardedWriter) FlushError() error {
	w.begun = true
	w.renew()
	if f, ok := w.ResponseWriter.(interface{ FlushError() error }); ok {
		return f.FlushError()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// SetWriteDeadline is for [http.ResponseController].
func (w *guardedWriter) SetWriteDeadline(t time.Time) error {
	w.stale = false
	if d, ok := w.ResponseWriter.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return d.SetWriteDeadline(t)
	}
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
}

// SetReadDeadline is for [http.ResponseController].
func (w *guardedWriter) SetReadDeadline(t time.Time) error {
	if d, ok := w.ResponseWriter.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(t)
}

// Hijack is for [http.ResponseController]. The connection is handed over without the stale deadline.
func (w *guardedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.renew()
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.taken = err == nil
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (w *guardedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

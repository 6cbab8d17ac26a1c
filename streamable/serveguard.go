package streamable

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"time"
)

// A guard is around the handler of a server: it has what every request needs and net/http leaves to handlers.
type guard struct {
	next  http.Handler
	opts  *ServeOptions
	known bool // the context of all requests has a principal
}

// ServeHTTP implements [http.Handler].
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &guardedWriter{ResponseWriter: w}
	if !g.known {
		out.anonymous = r.Context()
	}
	out.body = r.Body
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// A length that came together with it has been removed, so that it cannot be told from a chunked request without one. What stands between may have
		// gone by the length: nothing more is taken from there (RFC 9112, section 6.1).
		w.Header()["Connection"] = closeConnection
	}
	defer g.boundEnd(out, r)
	defer g.contain(out, r)
	g.next.ServeHTTP(out, r)
}

// closeConnection is shared by responses; nobody changes it.
var closeConnection = []string{"close"}

// boundEnd bounds what net/http does when the handler has returned: with HTTP/1 it reads what is left of a small body, and with HTTP/2 it waits until the client has
// room for what is left of the answer, before anything is written to the connection, which is bounded by itself.
func (g *guard) boundEnd(w *guardedWriter, r *http.Request) {
	switch {
	case w.taken:
	case r.ProtoMajor > 1:
		http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(g.opts.WriteTimeout))
	case r.ContentLength != 0 && !w.drained:
		w.SetReadDeadline(time.Now().Add(g.opts.HeaderTimeout))
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

// A guardedWriter knows what became of a request and its answer.
type guardedWriter struct {
	http.ResponseWriter
	anonymous context.Context // of the request: as long as it has no other, it comes from nobody in particular; nil if that is not sure
	body      io.ReadCloser   // of the request, as net/http gave it
	begun     bool            // the answer has
	taken     bool            // the connection is not net/http's any more
	drained   bool            // the body was read to its end
}

// WriteHeader implements [http.ResponseWriter].
func (w *guardedWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.begun = true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *guardedWriter) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Flush implements [http.Flusher].
func (w *guardedWriter) Flush() { w.FlushError() }

// FlushError is for [http.ResponseController].
func (w *guardedWriter) FlushError() error {
	w.begun = true
	if f, ok := w.ResponseWriter.(interface{ FlushError() error }); ok {
		return f.FlushError()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// SetReadDeadline is for [http.ResponseController].
func (w *guardedWriter) SetReadDeadline(t time.Time) error {
	if d, ok := w.ResponseWriter.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(t)
}

// Hijack is for [http.ResponseController].
func (w *guardedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.taken = true
		unbind(conn)
	}
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (w *guardedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

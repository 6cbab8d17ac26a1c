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
type serverHandler struct {
	next         http.Handler
	opts         *ServeOptions
	hasPrincipal bool // the context of all requests has a principal
}

// ServeHTTP implements [http.Handler].
func (sh *serverHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &trackingWriter{ResponseWriter: w}
	if !sh.hasPrincipal {
		out.anonymousCtx = r.Context()
	}
	out.body = r.Body
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// A length that came together with it has been removed, so that it cannot be told from a chunked request without one. What stands between may have
		// gone by the length: nothing more is taken from there (RFC 9112, section 6.1).
		w.Header()["Connection"] = closeConnection
	}
	defer sh.setFinishDeadline(out, r)
	defer sh.recoverPanic(out, r)
	sh.next.ServeHTTP(out, r)
}

// closeConnection is shared by responses; nobody changes it.
var closeConnection = []string{"close"}

// setFinishDeadline bounds what net/http does when the handler has returned: with HTTP/1 it reads what is left of a small body, and with HTTP/2 it waits until the client has
// room for what is left of the answer, before anything is written to the connection, which is bounded by itself.
func (sh *serverHandler) setFinishDeadline(w *trackingWriter, r *http.Request) {
	switch {
	case w.hijacked:
	case r.ProtoMajor > 1:
		http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(sh.opts.WriteTimeout))
	case r.ContentLength != 0 && !w.bodyConsumed:
		w.SetReadDeadline(time.Now().Add(sh.opts.HeaderTimeout))
	}
}

// recoverPanic ends a request whose handler panics.
func (sh *serverHandler) recoverPanic(w *trackingWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	sh.opts.Logger.ErrorContext(r.Context(), "a handler panicked", "panic", v, "stack", string(debug.Stack()))
	if w.wroteHeader {
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

// A trackingWriter knows what became of a request and its answer.
type trackingWriter struct {
	http.ResponseWriter
	anonymousCtx context.Context // of the request: as long as it has no other, it comes from nobody in particular; nil if that is not sure
	body         io.ReadCloser   // of the request, as net/http gave it
	wroteHeader  bool            // the answer has
	hijacked     bool            // the connection is not net/http's any more
	bodyConsumed bool            // the body was read to its end
}

// WriteHeader implements [http.ResponseWriter].
func (w *trackingWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.wroteHeader = true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *trackingWriter) Write(b []byte) (int, error) {
	w.wroteHeader = true
	return w.ResponseWriter.Write(b)
}

// Flush implements [http.Flusher].
func (w *trackingWriter) Flush() { w.FlushError() }

// FlushError is for [http.ResponseController].
func (w *trackingWriter) FlushError() error {
	w.wroteHeader = true
	if f, ok := w.ResponseWriter.(interface{ FlushError() error }); ok {
		return f.FlushError()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// SetReadDeadline is for [http.ResponseController].
func (w *trackingWriter) SetReadDeadline(t time.Time) error {
	if d, ok := w.ResponseWriter.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(t)
}

// Hijack is for [http.ResponseController].
func (w *trackingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked = true
		clearImplied(conn)
	}
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (w *trackingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

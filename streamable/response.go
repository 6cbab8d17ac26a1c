package streamable

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/net/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A response is the HTTP response to one request. It is one JSON text, or an event stream if a
// message precedes the result, or if the result is so late that the client or a proxy could
// consider the connection dead. A status that reports an error must be known before that.
type response struct {
	h  *Handler
	w  http.ResponseWriter
	rc *http.ResponseController
	// r is the request. It is nil once the connection was hijacked.
	r      *http.Request
	accept acceptedTypes
	// hijackable means that the connection can be hijacked, to end the response before its handler
	// returns. The stream then watches whether the client seems to be gone.
	hijackable bool
	// chunked means that the body has chunks, of which the last needs a mark.
	chunked bool
	// closeConn makes an event stream of HTTP/1 close its connection.
	closeConn bool
	// isHTTP2 means that a deadline belongs to the HTTP/2 stream, and ends it even if no write is
	// running.
	isHTTP2 bool
	// hasWriteTimeout means that the server has a WriteTimeout, which counts from the beginning of
	// the request.
	hasWriteTimeout bool

	mu sync.Mutex
	// conn is the hijacked connection. It is nil while net/http has the connection.
	conn      net.Conn
	streaming bool
	// ended means that nothing more may be written.
	ended bool
	// writeErr is the first error of a write.
	writeErr error
	// keepAlive is nil until its first use.
	keepAlive *keepAliveTimer
	// hasDeadline means that a write deadline is set.
	hasDeadline bool
	// final means that the end of the response is being written, which net/http flushes itself.
	final bool
	// tickRunning means that tick could not be stopped and may still run.
	tickRunning bool
	// stream writes the keep-alives. If it is nil, the response does.
	stream *stream
	buf    []byte
}

// begin prepares rs as the response to r. The caller must end or stop it before the HTTP request
// has been served.
func (rs *response) begin(h *Handler, w http.ResponseWriter, r *http.Request, accept acceptedTypes) {
	rs.h, rs.w, rs.r, rs.accept = h, w, r, accept
	rs.chunked, rs.isHTTP2 = r.ProtoAtLeast(1, 1), r.ProtoMajor > 1
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		rs.hasWriteTimeout = s.WriteTimeout > 0
	}
}

// newResponse returns the response to a request that doesn't reuse a postRequest's.
func (h *Handler) newResponse(w http.ResponseWriter, r *http.Request, accept acceptedTypes) *response {
	rs := new(response)
	rs.begin(h, w, r, accept)
	return rs
}

// reset prepares rs, which was stopped, for another request. It reports whether that is possible.
func (rs *response) reset() bool {
	if rs.tickRunning {
		return false
	}
	keepAlive, buf := rs.keepAlive, shrink(rs.buf)
	*rs = response{keepAlive: keepAlive, buf: buf}
	return true
}

// startKeepAlive sends keep-alives until the response has ended, by st unless it is nil.
func (rs *response) startKeepAlive(st *stream) { rs.startKeepAliveAt(st, rs.h.clock.elapsed()) }

// startKeepAliveAt is startKeepAlive for a response that began at that time of the clock.
func (rs *response) startKeepAliveAt(st *stream, began time.Duration) {
	if !rs.accept.stream {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.stream = st
	if rs.keepAlive == nil {
		rs.keepAlive = new(keepAliveTimer)
	}
	rs.keepAlive.start(rs, began)
}

// tick is called by the keepAliveTimer. It reports whether it wants to be called again.
func (rs *response) tick() bool {
	if rs.stream != nil {
		rs.stream.keepAlive(rs)
	} else {
		rs.writeKeepAlive()
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return !rs.ended && rs.writeErr == nil
}

// Send implements [rpc.Sender]. If the client does not accept a stream, Send drops the message.
func (rs *response) Send(message []byte) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	switch {
	case rs.ended:
		return jsonrpc.ErrRequestEnded
	case !rs.accept.stream:
		return nil
	}
	if err := rs.startLocked(); err != nil {
		return err
	}
	return rs.writeMessageLocked(message)
}

// CheckHeaderParams checks that the headers agree with a tool's arguments. Package server calls it.
func (rs *response) CheckHeaderParams(params []mcp.HeaderParam, arguments []byte) error {
	for i := range params {
		p := &params[i]
		if err := checkParam(rs.r.Header, http.CanonicalHeaderKey(headerParam+p.Header), p.Path, arguments); err != nil {
			return err
		}
	}
	return nil
}

// Denies reports whether err, of a handler, can become the response's status. Package server calls
// it.
func (rs *response) Denies(err error) bool { return isDenial(err) && !rs.isStreaming() }

// isDenial reports whether err is one of [auth.Require].
func isDenial(err error) bool {
	_, ok := errors.AsType[*auth.ScopeError](err)
	return ok || errors.Is(err, auth.ErrUnauthenticated)
}

// isStreaming reports whether the response is a stream already.
func (rs *response) isStreaming() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.streaming
}

// startLocked makes the response a stream.
func (rs *response) startLocked() error {
	if rs.streaming || rs.writeErr != nil {
		return rs.writeErr
	}
	rs.streaming = true
	header := rs.w.Header()
	setHeader(header, valueStream)
	header["X-Accel-Buffering"] = noBuffering
	if rs.closeConn && !rs.isHTTP2 {
		header["Connection"] = closeConnection // or a client could send its next request there
	}
	rs.w.WriteHeader(http.StatusOK)
	return nil
}

// writeMessageLocked writes one message of a stream.
func (rs *response) writeMessageLocked(message []byte) error {
	rs.buf = sse.AppendMessage(rs.buf[:0], message)
	return rs.writeLocked()
}

// maxWrite is the number of bytes that a client must read within Options.WriteTimeout.
const maxWrite = 64 << 10

// writeLocked writes rs.buf.
func (rs *response) writeLocked() error {
	err := rs.writeTextLocked(rs.buf)
	rs.buf = shrink(rs.buf)
	return err
}

// writeTextLocked writes and flushes text.
func (rs *response) writeTextLocked(text []byte) error {
	if rs.writeErr != nil {
		return rs.writeErr
	}
	if rs.conn != nil {
		if err := rs.writeHijackedLocked(text); err != nil {
			rs.writeErr = errors.Join(errClientGone, err)
		}
		return rs.writeErr
	}
	for rest := text; len(rest) > 0 && rs.writeErr == nil; {
		part := rest[:min(len(rest), maxWrite)]
		rest = rest[len(part):]
		rs.setWriteDeadline(rs.h.clock.now().Add(rs.h.opts.Timeouts.Write))
		if rs.final && len(rest) == 0 && (rs.streaming || rs.isHTTP2) {
			_, rs.writeErr = rs.w.Write(part) // net/http appends the end before it flushes
		} else {
			rs.writeErr = httpserve.WriteAndFlush(rs.w, part)
		}
		if errors.Is(rs.writeErr, http.ErrNotSupported) {
			rs.writeErr = nil // the part is sent with a later one, or at the end
			rs.h.warnUnflushed(rs.w)
		}
	}
	if rs.writeErr != nil {
		rs.writeErr = errors.Join(errClientGone, rs.writeErr)
	} else if rs.isHTTP2 && !rs.final {
		rs.setWriteDeadline(time.Time{})
	}
	return rs.writeErr
}

// canFlush reports whether the client gets what is written before the response ends.
func (rs *response) canFlush() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.conn != nil || rs.ended || httpserve.CanFlush(rs.w)
}

// warnUnflushed logs once that w cannot flush.
func (h *Handler) warnUnflushed(w http.ResponseWriter) {
	h.unflushed.Do(func() {
		h.opts.Logger.Warn("messages before a result arrive only with it, and there are no standing streams: the http.ResponseWriter of a middleware has no method Flush; give it a method Unwrap() http.ResponseWriter", "type", fmt.Sprintf("%T", w))
	})
}

// refuseStream reports whether the client accepts no stream, or w cannot carry a standing one. It
// then answers the request, in the second case with status and id, which may be nil.
func (h *Handler) refuseStream(w http.ResponseWriter, accept acceptedTypes, status int, id jsonrpc.ID) bool {
	switch {
	case !accept.stream:
		writeError(w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must allow text/event-stream")
	case !httpserve.CanFlush(w):
		h.warnUnflushed(w)
		writeErrorID(w, status, id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%v", errCannotFlush))
	default:
		return false
	}
	return true
}

// setWriteDeadline limits the writes that follow. Only ResponseWriters of tests do not support it.
func (rs *response) setWriteDeadline(t time.Time) {
	rs.hasDeadline = !t.IsZero()
	if rs.rc == nil {
		rs.rc = http.NewResponseController(rs.w)
	}
	rs.rc.SetWriteDeadline(t)
}

// markFinal notes that the next write ends the response.
func (rs *response) markFinal() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.final = true
}

// wantsStream reports whether the response must be a stream though nothing precedes the result. A
// canceled request has no result but needs a response: an empty stream.
func (rs *response) wantsStream(answer []byte) bool {
	return rs.accept.stream && (len(answer) == 0 || rs.h.opts.StreamAlways || !rs.accept.json)
}

// end writes the response to the request, unless answer is empty. err selects the status; it is the
// error that answer has. end reports whether the answer was written, as far as known.
func (rs *response) end(answer []byte, err error) (sent bool) { return rs.endWhen(answer, err, false) }

// endWhen is end. early means that the handler has not returned.
func (rs *response) endWhen(answer []byte, err error, early bool) (sent bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ended {
		return false
	}
	defer rs.stopLocked()
	status := statusOf(err)
	if early && rs.isHTTP2 && rs.accept.stream {
		// Over HTTP/2 a JSON body would only end when the handler returns.
		status = http.StatusOK
	}
	if rs.streaming || (rs.wantsStream(answer) || early && rs.isHTTP2 && rs.accept.stream) && (status == http.StatusOK || len(answer) == 0) {
		if rs.startLocked() == nil && len(answer) > 0 {
			rs.final = !early
			sent = rs.writeMessageLocked(answer) == nil
		}
		return sent
	}
	switch {
	case len(answer) == 0:
		rs.w.WriteHeader(http.StatusAccepted)
		return false
	case isDenial(err) && !early:
		auth.Deny(rs.w, rs.r, err)
		return true
	}
	// Without Cache-Control: a response to POST is only cached if it asks for that (RFC 9110,
	// section 9.3.3).
	header := rs.w.Header()
	header["Content-Type"] = valueJSON
	if e := rejectedError(err); e != nil {
		header.Set("Retry-After", retryAfterOf(e))
	} else if status == http.StatusTooManyRequests {
		header.Set("Retry-After", strconv.Itoa(retrySeconds(err)))
	}
	if early && !rs.isHTTP2 {
		header["Connection"] = closeConnection
	}
	// Clients that know the length allocate memory once.
	if early || len(answer) > maxImpliedLength {
		header.Set("Content-Length", strconv.Itoa(len(answer)))
	}
	if status != http.StatusOK {
		rs.w.WriteHeader(status)
	}
	if len(answer) <= maxBuffered && !rs.hasWriteTimeout && !early {
		_, rs.writeErr = rs.w.Write(answer)
		return rs.writeErr == nil
	}
	rs.final = !early
	return rs.writeTextLocked(answer) == nil
}

const (
	maxImpliedLength = 2 << 10 // net/http sets Content-Length up to this, in bytes
	maxBuffered      = 3 << 10 // net/http buffers this much and a header, in bytes
)

// endNow ends a stream before its handler returns. Over HTTP/2 that needs no action here.
func (rs *response) endNow() error {
	if !rs.hijackable {
		return nil
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ended || rs.writeErr != nil {
		return nil
	}
	conn, _, err := http.NewResponseController(rs.w).Hijack()
	if err != nil {
		return fmt.Errorf("%w: %w", errCannotResume, err)
	}
	rs.hasDeadline = false
	rs.stopLocked()
	if err := endBody(conn, rs.chunked, rs.h.opts.Timeouts.Write); err != nil {
		rs.h.opts.Logger.Debug("stream not ended", "error", err)
	}
	return nil
}

// endEmpty responds to a GET whose stream has nothing more. A client would resume an empty stream
// again. Some clients would use it as the standalone stream, in place of the one they have.
func (rs *response) endEmpty() {
	setHeader(rs.w.Header(), valueStream)
	rs.w.WriteHeader(http.StatusNoContent)
}

// endUnanswered answers a request whose session has ended before. It may have been carried out.
func (rs *response) endUnanswered(id jsonrpc.ID) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ended || rs.streaming || rs.writeErr != nil {
		return
	}
	rs.stopLocked()
	writeErrorID(rs.w, http.StatusInternalServerError, id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session ended before the response to the request"))
}

// fail answers a request whose handler ended the goroutine.
func (rs *response) fail(id jsonrpc.ID) {
	rs.end(jsonrpc.AppendError(nil, id, errHandlerExited, false), errHandlerExited)
	http.NewResponseController(rs.w).Flush() // net/http's final flush does not run
}

var errHandlerExited = jsonrpc.Errorf(jsonrpc.CodeInternalError, "internal error")

// stop makes sure that nothing more is written, as required once the request has been served.
func (rs *response) stop() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.stopLocked()
}

func (rs *response) stopLocked() {
	if rs.ended {
		return
	}
	rs.ended = true
	if rs.keepAlive != nil && !rs.keepAlive.stop() {
		rs.tickRunning = true
	}
	switch {
	case rs.conn != nil:
		endBody(rs.conn, rs.chunked && rs.writeErr == nil, streamCloseTimeout)
	// The deadline covers the final writes of net/http. An HTTP/2 deadline ends with its stream,
	// and a server with a WriteTimeout sets it again.
	case rs.isHTTP2 || rs.hasDeadline && rs.hasWriteTimeout:
		rs.setWriteDeadline(rs.h.clock.now().Add(rs.h.opts.Timeouts.Write))
	case rs.hasDeadline:
		rs.setWriteDeadline(time.Time{}) // the connection may serve other requests
	}
}

// statusOf returns the status for the error of a response
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#error-handling).
func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if _, ok := errors.AsType[*era.FormError](err); ok {
		return http.StatusBadRequest
	}
	if err == errAborted {
		// Without Retry-After: clients automatically repeat what was certainly not carried out.
		return http.StatusServiceUnavailable
	}
	if err == errUnread {
		return http.StatusInternalServerError
	}
	if e := rejectedError(err); e != nil {
		return e.Status
	}
	if isDenial(err) {
		return http.StatusForbidden
	}
	switch jsonrpc.ErrorOf(err).Code {
	case codeTooManyRequests:
		return http.StatusTooManyRequests
	case jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case mcp.CodeHeaderMismatch, mcp.CodeMissingRequiredClientCapability, mcp.CodeUnsupportedProtocolVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// codeTooManyRequests is server.CodeTooManyRequests, with which the limits of a server reject a
// request.
const codeTooManyRequests jsonrpc.Code = http.StatusTooManyRequests

// retrySeconds returns the seconds after which a client may repeat a request that failed with
// codeTooManyRequests. The error's data may have them in milliseconds.
func retrySeconds(err error) int {
	ms, parseErr := strconv.ParseInt(string(jsonwire.Lookup(jsonrpc.ErrorOf(err).Data, "retryAfterMs")), 10, 64)
	if parseErr != nil || ms <= 1000 {
		return 1
	}
	return int(min((ms-1)/1000+1, math.MaxInt32))
}

// A client that only listens should cost less than one that sends requests, which needs a goroutine
// deep in net/http, another that detects hang-ups, and buffers. So the handler hijacks the
// connection of a standing stream where possible (HTTP/1). A small goroutine waits for the client
// to hang up.

// hijack takes the stream's connection from net/http, and reports whether it did. The response is
// then no longer bound to the request. The caller ends or stops it when waitClosed returns.
func (rs *response) hijack() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.isHTTP2 || rs.rc == nil || !rs.streaming || rs.ended || rs.writeErr != nil {
		return false
	}
	conn, _, err := rs.rc.Hijack()
	if err != nil {
		return false // net/http keeps it
	}
	rs.conn = conn
	rs.w, rs.rc, rs.r, rs.buf, rs.hasDeadline = nil, nil, nil, nil, false
	return true
}

// isHijacked reports whether the connection was hijacked.
func (rs *response) isHijacked() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.conn != nil
}

// waitClosed waits until the client disconnects or the response has ended. The client sends nothing
// on the connection while the stream lasts.
func (rs *response) waitClosed() {
	var b [1]byte
	rs.conn.Read(b[:])
}

// writeHijackedLocked writes a message to the hijacked connection. Each part has its own deadline.
func (rs *response) writeHijackedLocked(text []byte) error {
	for len(text) > 0 {
		part := text[:min(len(text), maxWrite)]
		text = text[len(part):]
		if rs.chunked {
			chunk := strconv.AppendInt(make([]byte, 0, len(part)+12), int64(len(part)), 16)
			chunk = append(append(chunk, "\r\n"...), part...)
			part = append(chunk, "\r\n"...)
		}
		rs.conn.SetWriteDeadline(rs.h.clock.now().Add(rs.h.opts.Timeouts.Write))
		if _, err := rs.conn.Write(part); err != nil {
			rs.conn.Close() // wakes waitClosed
			return err
		}
	}
	return nil
}

// streamCloseTimeout limits the write of a stream's last chunk.
const streamCloseTimeout = time.Second

// endBody writes the last chunk of a chunked body (RFC 9112, section 7.1), and closes the
// connection.
func endBody(conn net.Conn, chunked bool, timeout time.Duration) error {
	if !chunked {
		return conn.Close()
	}
	conn.SetWriteDeadline(time.Now().Add(timeout))
	_, err := conn.Write([]byte("0\r\n\r\n"))
	return errors.Join(err, conn.Close())
}

// A keepAliveTimer calls a response's tick at intervals until the response has ended. Hardly any
// response lasts for one interval, and to start and stop a timer for each would cost more than all
// else: so the timer keeps running, and checks when it fires whether it is early or has nothing to
// do. Successive responses share it.
type keepAliveTimer struct {
	mu    sync.Mutex
	timer *time.Timer
	// armed means that the timer or its function runs.
	armed bool
	// ticking means that tick is running.
	ticking bool
	// response is the response to call, or nil.
	response *response
	// since is the clock's time of the response's start, or of its last tick.
	since time.Duration
}

// start starts the calls of rs, which began at that time.
func (k *keepAliveTimer) start(rs *response, began time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.response, k.since = rs, began
	switch {
	case k.armed:
		return
	case k.timer == nil:
		k.timer = time.AfterFunc(rs.h.opts.Timeouts.KeepAlive, k.fire)
	default:
		k.timer.Reset(rs.h.opts.Timeouts.KeepAlive)
	}
	k.armed = true
}

// stop ends the calls. It reports false if one may be running: then another request must not reuse
// the response.
func (k *keepAliveTimer) stop() (quiet bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.response = nil
	return !k.ticking
}

// fire is the function of the timer.
func (k *keepAliveTimer) fire() {
	rs := k.next()
	if rs == nil {
		return
	}
	again := rs.tick()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ticking = false
	if k.armed = again && k.response == rs; k.armed {
		k.since = rs.h.clock.elapsed()
		k.timer.Reset(rs.h.opts.Timeouts.KeepAlive)
	}
}

// next returns the response to call now, or nil.
func (k *keepAliveTimer) next() *response {
	k.mu.Lock()
	defer k.mu.Unlock()
	rs := k.response
	if rs == nil {
		k.armed = false
		return nil
	}
	if early := rs.h.opts.Timeouts.KeepAlive - (rs.h.clock.elapsed() - k.since); early > 0 {
		k.timer.Reset(early)
		return nil
	}
	k.ticking = true
	return rs
}

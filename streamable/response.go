package streamable

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A response is the HTTP response to one request. It is one JSON text, unless something precedes the result or the result is so late that the client, or
// something between, could take the connection for dead: then it is a stream of events. What may be said by a status must be known before.
type response struct {
	h               *Handler
	w               http.ResponseWriter
	rc              *http.ResponseController
	header          http.Header // of the request
	accept          acceptedTypes
	hijackable      bool // the connection can be taken from net/http, to end the response before its handler has returned
	chunked         bool // the body has parts, of which the last has to be marked
	closeConn       bool // the connection ends with it, at least if it becomes a stream
	isHTTP2         bool // a deadline is the stream's own, and ends it even if nothing is being written
	hasWriteTimeout bool // the server has a deadline for writing, which counts from the beginning of the request

	mu          sync.Mutex
	conn        net.Conn // that it is held on; nil if net/http has the connection
	streaming   bool
	ended       bool            // nothing more may be written
	writeErr    error           // why nothing can be
	keepAlive   *keepAliveTimer // nil until there was one
	hasDeadline bool            // a deadline is set
	final       bool            // what is written now is the end, which net/http flushes with its own
	tickRunning bool            // tick could not be kept from running, and may do so still
	clientGone  context.Context // ends when the client seems to have gone; nil if nobody asks
	stream      *stream         // whose signs of life they are; nil if there is no stream but the response
	buf         []byte
}

// begin makes p the response to a request. It must be ended or stopped before the request has been served.
func (rs *response) begin(h *Handler, w http.ResponseWriter, r *http.Request, accept acceptedTypes) {
	rs.h, rs.w, rs.header, rs.accept = h, w, r.Header, accept
	rs.chunked, rs.isHTTP2 = r.ProtoAtLeast(1, 1), r.ProtoMajor > 1
	if _, ours := w.(*trackingWriter); ours {
		return // no server of Serve has one
	}
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		rs.hasWriteTimeout = s.WriteTimeout > 0
	}
}

// newResponse returns the response to a request that is no POST.
func (h *Handler) newResponse(w http.ResponseWriter, r *http.Request, accept acceptedTypes) *response {
	rs := new(response)
	rs.begin(h, w, r, accept)
	return rs
}

// reset makes p ready for another request, and reports whether that is possible. It has been stopped.
func (rs *response) reset() bool {
	if rs.tickRunning {
		return false
	}
	keepAlive, buf := rs.keepAlive, shrink(rs.buf)
	*rs = response{keepAlive: keepAlive, buf: buf}
	return true
}

// startKeepAlive sends signs of life, by st if that is not nil, until the response has ended.
func (rs *response) startKeepAlive(st *stream) { rs.startKeepAliveAt(st, rs.h.clock.elapsed()) }

// startKeepAliveAt is startKeepAlive for a response that began at that time.
func (rs *response) startKeepAliveAt(st *stream, began time.Duration) {
	if !rs.accept.stream {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.stream = st
	if rs.keepAlive == nil {
		rs.keepAlive = &keepAliveTimer{interval: rs.h.opts.KeepAlive, clock: rs.h.clock}
	}
	rs.keepAlive.start(rs, began)
}

// tick is called by the warmer. It reports whether it wants to be called again.
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

// keepAliveComment is a comment that means nothing.
const keepAliveComment = "keep-alive"

// Send implements [jsonrpc.Sender]. What a client that takes no stream is sent is lost: it has said so.
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

// CheckHeaderParams is for package server: it asks whether the headers say what a tool's arguments do.
func (rs *response) CheckHeaderParams(params []mcp.HeaderParam, arguments []byte) error {
	if e := checkParams(rs.header, params, arguments); e != nil {
		return e
	}
	return nil
}

// isStreaming reports whether the response is a stream already.
func (rs *response) isStreaming() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.streaming
}

// startRequestLocked makes the response a stream.
func (rs *response) startLocked() error {
	if rs.streaming || rs.writeErr != nil {
		return rs.writeErr
	}
	rs.streaming = true
	header := rs.w.Header()
	setHeader(header, sseType)
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

// maxWrite is what a client must take within Options.WriteTimeout, in bytes.
const maxWrite = 64 << 10

// writeLocked writes p.buf.
func (rs *response) writeLocked() error {
	err := rs.writeTextLocked(rs.buf)
	rs.buf = shrink(rs.buf)
	return err
}

// writeTextLocked writes text, with mu held, and sees that it leaves this machine.
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
	if rs.rc == nil {
		rs.rc = http.NewResponseController(rs.w)
	}
	for rest := text; len(rest) > 0 && rs.writeErr == nil; {
		part := rest[:min(len(rest), maxWrite)]
		rest = rest[len(part):]
		rs.setWriteDeadline(rs.h.clock.now().Add(rs.h.opts.WriteTimeout))
		if _, rs.writeErr = rs.w.Write(part); rs.writeErr == nil && !(rs.final && len(rest) == 0) {
			rs.writeErr = rs.rc.Flush()
		}
	}
	if rs.writeErr != nil {
		rs.writeErr = errors.Join(errClientGone, rs.writeErr)
	} else if rs.isHTTP2 && !rs.final {
		rs.setWriteDeadline(time.Time{})
	}
	return rs.writeErr
}

// setWriteDeadline bounds the writes that follow. Not every ResponseWriter can do that; the ones that cannot are those of tests.
func (rs *response) setWriteDeadline(t time.Time) {
	rs.hasDeadline = !t.IsZero()
	rs.rc.SetWriteDeadline(t)
}

// markFinal notes that what is written from now on is the end.
func (rs *response) markFinal() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.final = true
}

// wantsStream reports whether the answer to a request is to be a stream though nothing precedes it. One that was cancelled is not answered, but has to have a response:
// a stream without events is one.
func (rs *response) wantsStream(answer []byte) bool {
	return rs.accept.stream && (len(answer) == 0 || rs.h.opts.StreamAlways || !rs.accept.json)
}

// end writes the answer to the request, which is empty if there is to be none. err is what it says, to choose the status by.
// It reports whether the answer was written, as far as that is known.
func (rs *response) end(answer []byte, err error) (sent bool) { return rs.endWhen(answer, err, false) }

// endEarly is end, called though the handler has not returned.
func (rs *response) endEarly(answer []byte, err error) { rs.endWhen(answer, err, true) }

func (rs *response) endWhen(answer []byte, err error, early bool) (sent bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ended {
		return false
	}
	defer rs.stopLocked()
	status := statusOf(err)
	if early && rs.isHTTP2 && rs.accept.stream {
		status = http.StatusOK // what ends a body that is no stream comes when the handler has returned
	}
	if rs.streaming || (rs.wantsStream(answer) || early && rs.isHTTP2 && rs.accept.stream) && (status == http.StatusOK || len(answer) == 0) {
		if rs.startLocked() == nil && len(answer) > 0 {
			rs.final = !early
			sent = rs.writeMessageLocked(answer) == nil
		}
		return sent
	}
	if len(answer) == 0 {
		rs.w.WriteHeader(http.StatusAccepted)
		return false
	}
	header := rs.w.Header() // without Cache-Control: no answer to a POST is kept that does not ask for it (RFC 9110, section 9.3.3)
	header["Content-Type"] = jsonType
	if e := rejectedError(err); e != nil {
		header.Set("Retry-After", e.seconds())
	} else if status == http.StatusTooManyRequests {
		header.Set("Retry-After", strconv.Itoa(retrySeconds(err)))
	}
	if early && !rs.isHTTP2 {
		header["Connection"] = closeConnection
	}
	if early || len(answer) > maxImpliedLength { // clients that know the length take memory for it once
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
	maxImpliedLength = 2 << 10 // whose length net/http says by itself, in bytes
	maxBuffered      = 4 << 10 // what net/http takes without writing it, in bytes
)

// endNow ends a stream now, where that does not happen by itself.
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
		return fmt.Errorf("%w: %w", ErrNotResumable, err)
	}
	rs.hasDeadline = false
	rs.stopLocked()
	if err := endBody(conn, rs.chunked, rs.h.opts.WriteTimeout); err != nil {
		rs.h.opts.Logger.Debug("stream not ended", "error", err)
	}
	return nil
}

// endUnanswered answers a request that nobody has answered, because its session has ended meanwhile. It may have been carried out.
func (rs *response) endUnanswered(id jsonrpc.ID) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ended || rs.streaming || rs.writeErr != nil {
		return
	}
	rs.stopLocked()
	writeErrorID(rs.w, http.StatusInternalServerError, id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session has ended before the request was answered"))
}

// fail answers a request whose handler has ended the goroutine, which is that of the response.
func (rs *response) fail(id jsonrpc.ID) {
	rs.end(jsonrpc.AppendError(nil, id, errHandlerExited, false), errHandlerExited)
	http.NewResponseController(rs.w).Flush() // what net/http does at the end is not done
}

var errHandlerExited = jsonrpc.Errorf(jsonrpc.CodeInternalError, "internal error")

// stop makes sure that nothing is written any more, as it must not be once the request has been served.
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
		rs.closeHijackedLocked()
	case rs.isHTTP2 || rs.hasDeadline && rs.hasWriteTimeout: // for what is written at the end; the deadline of a stream ends with it, and a server that has one sets it again
		if rs.rc == nil {
			rs.rc = http.NewResponseController(rs.w)
		}
		rs.setWriteDeadline(rs.h.clock.now().Add(rs.h.opts.WriteTimeout))
	case !rs.hasDeadline:
	default:
		rs.setWriteDeadline(time.Time{}) // the connection may serve others
	}
}

// statusOf returns the status that goes with the error of an answer
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#error-handling).
func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if _, ok := errors.AsType[*era.FormError](err); ok {
		return http.StatusBadRequest
	}
	if err == errAborted {
		return http.StatusServiceUnavailable // without Retry-After: clients repeat on their own what was certainly not carried out
	}
	if err == errUnread {
		return http.StatusInternalServerError
	}
	if e := rejectedError(err); e != nil {
		return e.Status
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

// codeTooManyRequests is server.CodeTooManyRequests: what the limits of a server answer before
// anything was carried out.
const codeTooManyRequests jsonrpc.Code = http.StatusTooManyRequests

// retrySeconds returns after how many seconds a request makes sense again that was refused with
// codeTooManyRequests. The error says so in milliseconds, if it knows.
func retrySeconds(err error) int {
	data := jsonrpc.ErrorOf(err).Data
	if len(data) == 0 || data[0] != '{' {
		return 1
	}
	members := jsonwire.ObjectMembers(data)
	for members.Next() {
		if !members.KeyIs("retryAfterMs") {
			continue
		}
		if ms, err := strconv.ParseInt(string(members.Value()), 10, 64); err == nil && ms > 1000 {
			return int(min((ms+999)/1000, math.MaxInt32))
		}
	}
	return 1
}

// A client that only listens should not cost what one does that asks: a goroutine deep in net/http, another that looks whether it is there, and buffers. So the
// connection of a stream that stands is taken from net/http, where that is possible (HTTP/1), and held by a goroutine that does nothing but wait for
// the client to go.

// hijack takes the connection of the stream that p is, and reports whether it did. p is no longer bound to the request then, and is ended or stopped when
// waitClosed has returned.
func (rs *response) hijack() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.isHTTP2 || rs.rc == nil || !rs.streaming || rs.ended || rs.writeErr != nil {
		return false
	}
	conn, _, err := rs.rc.Hijack()
	if err != nil {
		return false // it goes on as it is
	}
	rs.conn = conn
	rs.w, rs.rc, rs.header, rs.buf, rs.hasDeadline = nil, nil, nil, nil, false
	return true
}

// isHijacked reports whether the connection is not net/http's any more.
func (rs *response) isHijacked() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.conn != nil
}

// waitClosed waits until the client is gone, or the response has ended. A client has nothing to say on the connection as long as the stream lasts.
func (rs *response) waitClosed() {
	var b [1]byte
	rs.conn.Read(b[:])
}

// writeHijackedLocked writes a message of the stream, with mu held. A client may take its time for each part of it.
func (rs *response) writeHijackedLocked(text []byte) error {
	for len(text) > 0 {
		part := text[:min(len(text), maxWrite)]
		text = text[len(part):]
		if rs.chunked {
			chunk := strconv.AppendInt(make([]byte, 0, len(part)+12), int64(len(part)), 16)
			chunk = append(append(chunk, "\r\n"...), part...)
			part = append(chunk, "\r\n"...)
		}
		rs.conn.SetWriteDeadline(rs.h.clock.now().Add(rs.h.opts.WriteTimeout))
		if _, err := rs.conn.Write(part); err != nil {
			rs.conn.Close() // wakes waitClosed
			return err
		}
	}
	return nil
}

// streamCloseTimeout is how long a client may take to be told that a stream has ended.
const streamCloseTimeout = time.Second

// closeHijackedLocked ends the stream and the connection, with mu held.
func (rs *response) closeHijackedLocked() {
	endBody(rs.conn, rs.chunked && rs.writeErr == nil, streamCloseTimeout)
}

// endBody marks the end of a body that comes in parts (RFC 9112, section 7.1), and closes the connection. A body that does not ends with the connection.
func endBody(conn net.Conn, chunked bool, timeout time.Duration) error {
	if !chunked {
		return conn.Close()
	}
	conn.SetWriteDeadline(time.Now().Add(timeout))
	_, err := conn.Write([]byte("0\r\n\r\n"))
	if closed := conn.Close(); err == nil {
		err = closed
	}
	return err
}

// A warmer calls a response again and again, for as long as that has not ended. Hardly any response lasts until the first time, and to start and stop a timer for
// each costs more than all else that is done for it: the timer of a warmer runs on, and looks when it comes whether it came too early or for nothing. It is
// used by one response after another.
type keepAliveTimer struct {
	interval time.Duration
	clock    clock // that since is of

	mu       sync.Mutex
	timer    *time.Timer
	armed    bool          // the timer runs, or what it calls does
	ticking  bool          // a response is being called
	response *response     // that is to be called; nil if none is
	since    time.Duration // when that began, or was called
}

// start has p called, which began at that time.
func (k *keepAliveTimer) start(rs *response, began time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.response, k.since = rs, began
	switch {
	case k.armed:
		return
	case k.timer == nil:
		k.timer = time.AfterFunc(k.interval, k.fire)
	default:
		k.timer.Reset(k.interval)
	}
	k.armed = true
}

// stop has the response not called any more. It reports false if it may be called just now: it must not be used by another request then.
func (k *keepAliveTimer) stop() (quiet bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.response = nil
	return !k.ticking
}

// fire is called by the timer.
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
		k.since = k.clock.elapsed()
		k.timer.Reset(k.interval)
	}
}

// next returns the response that is to be called now; nil if there is none.
func (k *keepAliveTimer) next() *response {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.response == nil {
		k.armed = false
		return nil
	}
	if early := k.interval - (k.clock.elapsed() - k.since); early > 0 {
		k.timer.Reset(early)
		return nil
	}
	k.ticking = true
	return k.response
}

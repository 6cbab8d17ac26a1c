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
	"mcpwire/internal/jsonwire"
	"mcpwire/internal/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A response is the HTTP response to one request. It is one JSON text, unless something precedes the result or the result is so late that the client, or
// something between, could take the connection for dead: then it is a stream of events. What may be said by a status must be known before.
type response struct {
	h        *Handler
	w        http.ResponseWriter
	rc       *http.ResponseController
	header   http.Header // of the request
	takes    accepted
	cuttable bool // the connection can be taken from net/http, to end the response before its handler has returned
	chunked  bool // the body has parts, of which the last has to be marked
	lone     bool // the connection ends with it, at least if it becomes a stream
	h2       bool // a deadline is the stream's own, and ends it even if nothing is being written
	timed    bool // the server has a deadline for writing, which counts from the beginning of the request

	mu        sync.Mutex
	conn      net.Conn // that it is held on, see held.go; nil if net/http has the connection
	streaming bool
	ended     bool            // nothing more may be written
	broken    error           // why nothing can be
	warmer    *warmer         // nil until there was one
	bounded   bool            // a deadline is set
	last      bool            // what is written now is the end, which net/http flushes with its own
	busy      bool            // tick could not be kept from running, and may do so still
	gone      context.Context // ends when the client seems to have gone; nil if nobody asks
	carries   *stream         // whose signs of life they are; nil if there is no stream but the response
	buf       []byte
}

// begin makes p the response to a request. It must be ended or stopped before the request has been served.
func (p *response) begin(h *Handler, w http.ResponseWriter, r *http.Request, takes accepted) {
	p.h, p.w, p.header, p.takes = h, w, r.Header, takes
	p.chunked, p.h2 = r.ProtoAtLeast(1, 1), r.ProtoMajor > 1
	if _, ours := w.(*guardedWriter); ours {
		return // no server of Serve has one
	}
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		p.timed = s.WriteTimeout > 0
	}
}

// respond returns the response to a request that is no POST.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request, takes accepted) *response {
	p := new(response)
	p.begin(h, w, r, takes)
	return p
}

// recycle makes p ready for another request, and reports whether that is possible. It has been stopped.
func (p *response) recycle() bool {
	if p.busy {
		return false
	}
	warmer, buf := p.warmer, shrink(p.buf)
	*p = response{warmer: warmer, buf: buf}
	return true
}

// keepWarm sends signs of life, by st if that is not nil, until the response has ended.
func (p *response) keepWarm(st *stream) { p.keepWarmSince(st, p.h.clock.since()) }

// keepWarmSince is keepWarm for a response that began at that time.
func (p *response) keepWarmSince(st *stream, began time.Duration) {
	if !p.takes.stream {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.carries = st
	if p.warmer == nil {
		p.warmer = &warmer{every: p.h.opts.KeepAlive, clock: p.h.clock}
	}
	p.warmer.start(p, began)
}

// tick is called by the warmer. It reports whether it wants to be called again.
func (p *response) tick() bool {
	if p.carries != nil {
		p.carries.warm(p)
	} else {
		p.comment()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ended && p.broken == nil
}

// signOfLife is a comment that means nothing.
const signOfLife = "keep-alive"

// Send implements [jsonrpc.Outlet]. What a client that takes no stream is sent is lost: it has said so.
func (p *response) Send(message []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return jsonrpc.ErrRequestEnded
	case !p.takes.stream:
		return nil
	}
	if err := p.startLocked(); err != nil {
		return err
	}
	return p.eventLocked(message)
}

// CheckMirror is for package server: it asks whether the headers say what a tool's arguments do.
func (p *response) CheckMirror(params []mcp.HeaderParam, arguments []byte) error {
	if e := checkParams(p.header, params, arguments); e != nil {
		return e
	}
	return nil
}

// begun reports whether the response is a stream already.
func (p *response) begun() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.streaming
}

// startLocked makes the response a stream.
func (p *response) startLocked() error {
	if p.streaming || p.broken != nil {
		return p.broken
	}
	p.streaming = true
	header := p.w.Header()
	setHeader(header, sseType)
	header["X-Accel-Buffering"] = noBuffers
	if p.lone && !p.h2 {
		header["Connection"] = closeConnection // or a client could send its next request there
	}
	p.w.WriteHeader(http.StatusOK)
	return nil
}

// eventLocked writes one message of a stream.
func (p *response) eventLocked(message []byte) error {
	p.buf = sse.AppendMessage(p.buf[:0], message)
	return p.writeLocked()
}

// maxWrite is what a client must take within Options.WriteTimeout, in bytes.
const maxWrite = 64 << 10

// writeLocked writes p.buf.
func (p *response) writeLocked() error {
	err := p.write(p.buf)
	p.buf = shrink(p.buf)
	return err
}

// write writes text, with mu held, and sees that it leaves this machine.
func (p *response) write(text []byte) error {
	if p.broken != nil {
		return p.broken
	}
	if p.conn != nil {
		if err := p.writeHeld(text); err != nil {
			p.broken = errors.Join(errGone, err)
		}
		return p.broken
	}
	if p.rc == nil {
		p.rc = http.NewResponseController(p.w)
	}
	for rest := text; len(rest) > 0 && p.broken == nil; {
		part := rest[:min(len(rest), maxWrite)]
		rest = rest[len(part):]
		p.deadline(p.h.clock.now().Add(p.h.opts.WriteTimeout))
		if _, p.broken = p.w.Write(part); p.broken == nil && !(p.last && len(rest) == 0) {
			p.broken = p.rc.Flush()
		}
	}
	if p.broken != nil {
		p.broken = errors.Join(errGone, p.broken)
	} else if p.h2 && !p.last {
		p.deadline(time.Time{})
	}
	return p.broken
}

// deadline bounds the writes that follow. Not every ResponseWriter can do that; the ones that cannot are those of tests.
func (p *response) deadline(t time.Time) {
	p.bounded = !t.IsZero()
	p.rc.SetWriteDeadline(t)
}

// ends notes that what is written from now on is the end.
func (p *response) ends() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = true
}

// streams reports whether the answer to a request is to be a stream though nothing precedes it. One that was cancelled is not answered, but has to have a response:
// a stream without events is one.
func (p *response) streams(answer []byte) bool {
	return p.takes.stream && (len(answer) == 0 || p.h.opts.StreamAlways || !p.takes.json)
}

// end writes the answer to the request, which is empty if there is to be none. err is what it says, to choose the status by.
// It reports whether the answer was written, as far as that is known.
func (p *response) end(answer []byte, err error) (sent bool) { return p.endWhen(answer, err, false) }

// endEarly is end, called though the handler has not returned.
func (p *response) endEarly(answer []byte, err error) { p.endWhen(answer, err, true) }

func (p *response) endWhen(answer []byte, err error, early bool) (sent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	defer p.stopLocked()
	status := statusOf(err)
	if early && p.h2 && p.takes.stream {
		status = http.StatusOK // what ends a body that is no stream comes when the handler has returned
	}
	if p.streaming || (p.streams(answer) || early && p.h2 && p.takes.stream) && (status == http.StatusOK || len(answer) == 0) {
		if p.startLocked() == nil && len(answer) > 0 {
			p.last = !early
			sent = p.eventLocked(answer) == nil
		}
		return sent
	}
	if len(answer) == 0 {
		p.w.WriteHeader(http.StatusAccepted)
		return false
	}
	header := p.w.Header() // without Cache-Control: no answer to a POST is kept that does not ask for it (RFC 9110, section 9.3.3)
	header["Content-Type"] = jsonType
	if e := rejectionOf(err); e != nil {
		header.Set("Retry-After", e.seconds())
	} else if status == http.StatusTooManyRequests {
		header.Set("Retry-After", strconv.Itoa(retrySeconds(err)))
	}
	if early && !p.h2 {
		header["Connection"] = closeConnection
	}
	if early || len(answer) > maxCounted { // clients that know the length take memory for it once
		header.Set("Content-Length", strconv.Itoa(len(answer)))
	}
	if status != http.StatusOK {
		p.w.WriteHeader(status)
	}
	if len(answer) <= maxBuffered && !p.timed && !early {
		_, p.broken = p.w.Write(answer)
		return p.broken == nil
	}
	p.last = !early
	return p.write(answer) == nil
}

const (
	maxCounted  = 2 << 10 // whose length net/http says by itself, in bytes
	maxBuffered = 4 << 10 // what net/http takes without writing it, in bytes
)

// cut ends a stream now, where that does not happen by itself.
func (p *response) cut() error {
	if !p.cuttable {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.broken != nil {
		return nil
	}
	conn, _, err := http.NewResponseController(p.w).Hijack()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotResumable, err)
	}
	p.bounded = false
	p.stopLocked()
	if err := endBody(conn, p.chunked, p.h.opts.WriteTimeout); err != nil {
		p.h.opts.Logger.Debug("stream not ended", "error", err)
	}
	return nil
}

// unanswered answers a request that nobody has answered, because its session has ended meanwhile. It may have been carried out.
func (p *response) unanswered(id jsonrpc.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.streaming || p.broken != nil {
		return
	}
	p.stopLocked()
	refuseID(p.w, http.StatusInternalServerError, id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session has ended before the request was answered"))
}

// fail answers a request whose handler has ended the goroutine, which is that of the response.
func (p *response) fail(id jsonrpc.ID) {
	p.end(jsonrpc.AppendError(nil, id, errExited, false), errExited)
	http.NewResponseController(p.w).Flush() // what net/http does at the end is not done
}

var errExited = jsonrpc.Errorf(jsonrpc.CodeInternalError, "internal error")

// stop makes sure that nothing is written any more, as it must not be once the request has been served.
func (p *response) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopLocked()
}

func (p *response) stopLocked() {
	if p.ended {
		return
	}
	p.ended = true
	if p.warmer != nil && !p.warmer.stop() {
		p.busy = true
	}
	switch {
	case p.conn != nil:
		p.closeHeld()
	case p.h2 || p.bounded && p.timed: // for what is written at the end; the deadline of a stream ends with it, and a server that has one sets it again
		if p.rc == nil {
			p.rc = http.NewResponseController(p.w)
		}
		p.deadline(p.h.clock.now().Add(p.h.opts.WriteTimeout))
	case !p.bounded:
	default:
		p.deadline(time.Time{}) // the connection may serve others
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
	if err == errCutOff {
		return http.StatusServiceUnavailable // without Retry-After: clients repeat on their own what was certainly not carried out
	}
	if err == errUnread {
		return http.StatusInternalServerError
	}
	if e := rejectionOf(err); e != nil {
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

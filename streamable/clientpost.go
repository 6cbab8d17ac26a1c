package streamable

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A post is a request of this side and the HTTP request that it is. It belongs to one goroutine; cancel may be called by others.
type post struct {
	f           *framer
	id          string // JSON text
	method      string
	modern      bool
	header      http.Header // nil of a legacy request until the session says what is in it
	body        []byte
	initialized <-chan struct{} // to wait for, as is
	listening   <-chan struct{} // both may be nil

	sendErr     error           // why it is not to be sent; nil for most
	mustEnqueue bool            // there are messages in framer.in that the answer has to stand behind
	from        context.Context // of the HTTP request whose response is being read

	ctx         context.Context
	cancel      context.CancelFunc
	sent        atomic.Bool // the server may have seen it
	cancelTimer *time.Timer // ends the wait for a request that was cancelled; guarded by framer.mu
}

// run sends the request and sees to it that there is an answer, or an error.
func (p *post) run() {
	select {
	case p.f.slots <- struct{}{}:
		defer func() { <-p.f.slots }()
	case <-p.ctx.Done():
		return
	}
	if !awaitClosed(p.ctx, p.initialized) || !awaitClosed(p.ctx, p.listening) {
		return
	}
	if err := p.roundTrip(); err != nil {
		p.fail(err)
	}
}

// awaitClosed waits until a channel is closed, unless it is nil, and reports whether ctx did not end before.
func awaitClosed(ctx context.Context, c <-chan struct{}) bool {
	if c == nil {
		return true
	}
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// fail makes the call fail. Nobody waits for one that was cancelled.
func (p *post) fail(err error) {
	if p.ctx.Err() != nil {
		return
	}
	e, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok {
		e = lostError(err)
	}
	e.ID = jsonrpc.ID(p.id)
	if large, ok := errors.AsType[*jsonrpc.TooLargeError](e.Err); ok {
		large.ID = e.ID
	}
	p.f.enqueue(inbound{err: e, from: p.from})
}

// roundTrip sends the request and reads the response to its end.
func (p *post) roundTrip() error {
	if conn := p.f.currentSSE(); conn != nil && !p.modern {
		return p.roundTripSSE(conn)
	}
	var session clientSession
	if !p.modern {
		session = p.f.currentSession()
		p.header = p.f.transport.legacyHeader(&session)
		p.header["Content-Type"], p.header["Accept"] = valueJSON, valueAccept
	}
	p.sent.Store(true)
	resp, err := p.f.transport.send(p.ctx, http.MethodPost, p.f.transport.url, p.header, p.body)
	if err != nil {
		return sendError(err)
	}
	defer resp.Body.Close()
	p.from = resp.Request.Context()
	if resp.StatusCode != http.StatusOK {
		return p.handleErrorStatus(resp, session.id != "")
	}
	if session.id != "" && !p.f.sessionServed.Load() {
		p.f.sessionServed.Store(true)
	}
	if p.method == mcp.MethodInitialize && !p.modern {
		if err := p.f.setSessionID(resp.Header); err != nil {
			return err
		}
	}
	if err := checkContentEncoding(resp.Header); err != nil {
		return lostError(err)
	}
	switch kind := mediaTypeOf(resp.Header); kind {
	case mediaJSON:
		return p.readJSON(resp)
	case mediaStream:
		return p.readStream(resp.Body)
	default:
		return malformedError("the content type of the answer is %.100q, and must be %s or %s", kind, mediaJSON, mediaStream)
	}
}

// handleErrorStatus deals with a response that is none of success.
func (p *post) handleErrorStatus(resp *http.Response, inSession bool) error {
	if resp.StatusCode/100 == 2 {
		return malformedError("a request was answered with HTTP status %d, as if it were a notification", resp.StatusCode)
	}
	r := readHTTPError(resp, 0)
	switch {
	case p.modern:
	case inSession && p.f.isSessionRejected(r, p.id):
		p.f.loseSession()
		return sessionGoneError(r)
	case p.method == mcp.MethodInitialize && p.mayBeSSE(r):
		if conn := p.f.openSSE(p.ctx, r); conn != nil {
			return p.roundTripSSE(conn)
		}
	}
	if !r.isAnswer() {
		return r.callError()
	}
	// What error it is matters, and that it belongs to this request is certain, whatever id it has.
	return p.complete(jsonrpc.AppendError(nil, jsonrpc.ID(p.id), r.message.Err(), false))
}

// readJSON takes an answer that is one message.
func (p *post) readJSON(resp *http.Response) error {
	frame, err := readBody(resp, p.f.transport.opts.MaxFrame)
	if err != nil {
		return err
	}
	answered, err := p.handleMessage(frame, true)
	if err == nil && !answered {
		err = malformedError("the answer is to another request, or none")
	}
	return err
}

// tooLargeError is the error of a request whose answer is larger than DialOptions.MaxFrame. size is how large it is at least, in bytes; 0 if that is not known.
func tooLargeError(limit int, size int64) *jsonrpc.CallError {
	return lostError(&jsonrpc.TooLargeError{Limit: limit, Size: size, Kind: jsonrpc.KindResponse})
}

// maxPreallocated is the largest body for which memory is taken because its length is announced.
const maxPreallocated = 1 << 20

// readBody reads all of a response.
func readBody(resp *http.Response, limit int) ([]byte, error) {
	if resp.ContentLength > int64(limit) {
		return nil, tooLargeError(limit, resp.ContentLength)
	}
	if n := resp.ContentLength; n >= 0 && n <= maxPreallocated {
		body := make([]byte, n)
		if _, err := io.ReadFull(resp.Body, body); err != nil {
			return nil, sendError(err)
		}
		return body, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, sendError(err)
	case len(body) > limit:
		return nil, tooLargeError(limit, int64(len(body)))
	}
	return body, nil
}

// handleMessage looks at a message that came as a response to the request, and passes it on if the protocol lets it come there. answered tells that it is the answer. sole tells that nothing
// else can be.
func (p *post) handleMessage(frame []byte, sole bool) (answered bool, err error) {
	frame = bytes.TrimPrefix(frame, bom)
	var m jsonrpc.Message
	if jsonrpc.IsBatch(frame) && !p.modern {
		return p.handleBatch(frame)
	}
	if err := jsonrpc.Parse(frame, &m, 0); err != nil {
		if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError && !sole {
			p.f.log.Warn("bad message", "error", err)
			return false, nil
		}
		return false, malformedError("%v", err)
	}
	switch m.Kind {
	case jsonrpc.KindResponse, jsonrpc.KindError:
		return p.handleResponse(frame, &m, sole)
	case jsonrpc.KindRequest:
		if p.modern {
			p.f.log.Warn("request dropped: a server may not send any in this revision", "method", clip(string(m.Method)))
			return false, nil
		}
	}
	if !sole {
		p.enqueue(frame)
	}
	return false, nil
}

// enqueue hands a message to the reader that is not the answer.
func (p *post) enqueue(frame []byte) {
	p.mustEnqueue = true
	p.f.enqueue(inbound{frame: frame, from: p.from})
}

// complete hands on what the call waits for.
func (p *post) complete(frame []byte) error {
	if p.mustEnqueue || p.f.deliverAnswer == nil {
		p.f.enqueue(inbound{frame: frame, from: p.from})
		return nil
	}
	if err := p.f.deliverAnswer(frame); err != nil {
		return malformedError("%v", err)
	}
	return nil
}

// handleResponse is take for a response.
func (p *post) handleResponse(frame []byte, m *jsonrpc.Message, sole bool) (answered bool, err error) {
	switch {
	case string(m.ID) == p.id || m.ID.Equal(jsonrpc.ID(p.id)):
	case m.Kind == jsonrpc.KindError && sole && (len(m.ID) == 0 || m.ID.IsNull()):
		frame = jsonrpc.AppendError(nil, jsonrpc.ID(p.id), m.Err(), false)
	case p.modern || sole:
		p.f.log.Warn("response to another request dropped", "id", clip(string(m.ID)), "want", p.id)
		return false, nil
	default:
		p.enqueue(frame) // legacy servers replay what was meant for other streams
		return false, nil
	}
	switch {
	case p.modern && p.method == mcp.MethodToolsList:
		frame = p.f.transport.tools.filterTools(frame, m, p.f.log)
	case !p.modern && p.method == mcp.MethodInitialize:
		p.f.setNegotiated(m)
	}
	return true, p.complete(frame)
}

// handleBatch passes on an array of messages, which there are in one legacy revision. That the answer is in it is enough for it to be found.
func (p *post) handleBatch(frame []byte) (answered bool, err error) {
	entries, err := jsonrpc.ParseBatch(frame, 0)
	if err != nil {
		return false, malformedError("%v", err)
	}
	for i := range entries {
		e := &entries[i]
		answered = answered || (e.Kind == jsonrpc.KindResponse || e.Kind == jsonrpc.KindError) && e.ID.Equal(jsonrpc.ID(p.id))
	}
	p.f.enqueue(inbound{frame: frame, from: p.from})
	return answered, nil
}

// An aside is a notification or an answer of this side, which the server only takes note of.
type oneWayPost struct {
	f           *framer
	method      string // "" of an answer
	header      http.Header
	body        []byte
	ctx         context.Context
	cancel      context.CancelFunc
	previous    <-chan struct{} // to wait for, as is
	initialized <-chan struct{} // both may be nil
	done        chan struct{}   // closed in the end; may be nil
	listening   chan<- struct{} // closed when the server knows that somebody listens; nil unless that is to be done
}

func (o *oneWayPost) run() {
	defer o.cancel()
	o.sendInOrder()
	if o.done != nil {
		close(o.done)
	}
	if o.listening != nil {
		o.f.startListening(o.listening)
	}
}

func (o *oneWayPost) sendInOrder() {
	select {
	case o.f.oneWaySlots <- struct{}{}:
		defer func() { <-o.f.oneWaySlots }()
	case <-o.ctx.Done():
		return
	}
	if !awaitClosed(o.ctx, o.previous) || !awaitClosed(o.ctx, o.initialized) {
		return
	}
	err := o.send()
	for tries := 1; err != nil && tries < maxOneWayTries; tries++ {
		e, ok := errors.AsType[*jsonrpc.CallError](err)
		if !ok || e.Outcome != jsonrpc.OutcomeUnprocessed || !sleep(o.ctx, max(e.RetryAfter, minRetry<<tries)) {
			break
		}
		err = o.send()
	}
	if err != nil && o.f.ctx.Err() == nil {
		o.f.log.Warn("the server did not take a message", "method", o.method, "error", err)
	}
}

// maxOneWayTries is how often a message is sent at most that the server certainly did not take in: nobody else would send it again.
const maxOneWayTries = 4

// send posts it. Servers are not agreed on how to say that they have taken it, so each status of success will do.
func (o *oneWayPost) send() error {
	f, h, to := o.f, o.header, o.f.transport.url
	session := f.currentSession()
	if h == nil {
		h = f.transport.legacyHeader(&session)
		h["Content-Type"], h["Accept"] = valueJSON, valueAccept
		if conn := f.currentSSE(); conn != nil {
			to = conn.endpoint
		}
	}
	resp, err := f.transport.send(o.ctx, http.MethodPost, to, h, o.body)
	if err != nil {
		return sendError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		linger(resp.Body, o.cancel)
		return nil
	}
	r := readHTTPError(resp, 0)
	if o.header == nil && (to != f.transport.url && resp.StatusCode == http.StatusNotFound || session.id != "" && f.isSessionRejected(r, "")) {
		f.loseSession()
	}
	return r.callError()
}

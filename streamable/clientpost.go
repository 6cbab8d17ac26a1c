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
	f       *framer
	id      string // JSON text
	method  string
	modern  bool
	header  http.Header // nil of a legacy request until the session says what is in it
	body    []byte
	gate    <-chan struct{} // to wait for, as is
	listens <-chan struct{} // both may be nil

	refused error           // why it is not to be sent; nil for most
	behind  bool            // there are messages in framer.in that the answer has to stand behind
	from    context.Context // of the HTTP request whose response is being read

	ctx      context.Context
	cancel   context.CancelFunc
	sent     atomic.Bool // the server may have seen it
	patience *time.Timer // ends the wait for a request that was cancelled; guarded by framer.mu
}

// run sends the request and sees to it that there is an answer, or an error.
func (p *post) run() {
	select {
	case p.f.slots <- struct{}{}:
		defer func() { <-p.f.slots }()
	case <-p.ctx.Done():
		return
	}
	if !reached(p.ctx, p.gate) || !reached(p.ctx, p.listens) {
		return
	}
	if err := p.exchange(); err != nil {
		p.fail(err)
	}
}

// reached waits until a channel is closed, unless it is nil, and reports whether ctx did not end before.
func reached(ctx context.Context, c <-chan struct{}) bool {
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
		e = unanswered(err)
	}
	e.ID = jsonrpc.ID(p.id)
	if large, ok := errors.AsType[*jsonrpc.TooLargeError](e.Err); ok {
		large.ID = e.ID
	}
	p.f.deliver(inbound{err: e, from: p.from})
}

// exchange sends the request and reads the response to its end.
func (p *post) exchange() error {
	if old := p.f.oldStream(); old != nil && !p.modern {
		return p.exchangeOld(old)
	}
	var session clientSession
	if !p.modern {
		session = p.f.currentSession()
		p.header = p.f.c.legacyHeader(&session)
		p.header["Content-Type"], p.header["Accept"] = valueJSON, valueAccept
	}
	p.sent.Store(true)
	resp, err := p.f.c.send(p.ctx, http.MethodPost, p.f.c.url, p.header, p.body)
	if err != nil {
		return sendError(err)
	}
	defer resp.Body.Close()
	p.from = resp.Request.Context()
	if resp.StatusCode != http.StatusOK {
		return p.takeRefusal(resp, session.id != "")
	}
	if session.id != "" && !p.f.served.Load() {
		p.f.served.Store(true)
	}
	if p.method == mcp.MethodInitialize && !p.modern {
		if err := p.f.opened(resp.Header); err != nil {
			return err
		}
	}
	if err := checkCoding(resp.Header); err != nil {
		return unanswered(err)
	}
	switch kind := mediaTypeOf(resp.Header); kind {
	case mediaJSON:
		return p.takeJSON(resp)
	case mediaStream:
		return p.follow(resp.Body)
	default:
		return malformedAnswer("the content type of the answer is %.100q, and must be %s or %s", kind, mediaJSON, mediaStream)
	}
}

// takeRefusal deals with a response that is none of success.
func (p *post) takeRefusal(resp *http.Response, inSession bool) error {
	if resp.StatusCode/100 == 2 {
		return malformedAnswer("a request was answered with HTTP status %d, as if it were a notification", resp.StatusCode)
	}
	r := readRefusal(resp, 0)
	switch {
	case p.modern:
	case inSession && p.f.refusesSession(r, p.id):
		p.f.loseSession()
		return sessionGone(r)
	case p.method == mcp.MethodInitialize && p.mayBeOld(r):
		if old := p.f.openOld(p.ctx, r); old != nil {
			return p.exchangeOld(old)
		}
	}
	if !r.isAnswer() {
		return r.callError()
	}
	// What error it is matters, and that it belongs to this request is certain, whatever id it has.
	return p.answer(jsonrpc.AppendError(nil, jsonrpc.ID(p.id), r.message.Err(), false))
}

// takeJSON takes an answer that is one message.
func (p *post) takeJSON(resp *http.Response) error {
	frame, err := readBody(resp, p.f.c.opts.MaxFrame)
	if err != nil {
		return err
	}
	answered, err := p.take(frame, true)
	if err == nil && !answered {
		err = malformedAnswer("the answer is to another request, or none")
	}
	return err
}

// answerTooLarge is the error of a request whose answer is larger than DialOptions.MaxFrame. size is how large it is at least, in bytes; 0 if that is not known.
func answerTooLarge(limit int, size int64) *jsonrpc.CallError {
	return unanswered(&jsonrpc.TooLargeError{Limit: limit, Size: size, Kind: jsonrpc.KindResponse})
}

// maxTrusted is the largest body for which memory is taken because its length is announced.
const maxTrusted = 1 << 20

// readBody reads all of a response.
func readBody(resp *http.Response, limit int) ([]byte, error) {
	if resp.ContentLength > int64(limit) {
		return nil, answerTooLarge(limit, resp.ContentLength)
	}
	if n := resp.ContentLength; n >= 0 && n <= maxTrusted {
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
		return nil, answerTooLarge(limit, int64(len(body)))
	}
	return body, nil
}

// take looks at a message that came as a response to the request, and passes it on if the protocol lets it come there. answered tells that it is the answer. sole tells that nothing
// else can be.
func (p *post) take(frame []byte, sole bool) (answered bool, err error) {
	frame = bytes.TrimPrefix(frame, bom)
	var m jsonrpc.Message
	if jsonrpc.IsBatch(frame) && !p.modern {
		return p.takeBatch(frame)
	}
	if err := jsonrpc.Parse(frame, &m, 0); err != nil {
		if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError && !sole {
			p.f.log.Warn("bad message", "error", err)
			return false, nil
		}
		return false, malformedAnswer("%v", err)
	}
	switch m.Kind {
	case jsonrpc.KindResponse, jsonrpc.KindError:
		return p.takeResponse(frame, &m, sole)
	case jsonrpc.KindRequest:
		if p.modern {
			p.f.log.Warn("request dropped: a server may not send any in this revision", "method", clipped(string(m.Method)))
			return false, nil
		}
	}
	if !sole {
		p.pass(frame)
	}
	return false, nil
}

// pass hands a message to the reader that is not the answer.
func (p *post) pass(frame []byte) {
	p.behind = true
	p.f.deliver(inbound{frame: frame, from: p.from})
}

// answer hands on what the call waits for.
func (p *post) answer(frame []byte) error {
	if p.behind || p.f.answer == nil {
		p.f.deliver(inbound{frame: frame, from: p.from})
		return nil
	}
	if err := p.f.answer(frame); err != nil {
		return malformedAnswer("%v", err)
	}
	return nil
}

// takeResponse is take for a response.
func (p *post) takeResponse(frame []byte, m *jsonrpc.Message, sole bool) (answered bool, err error) {
	switch {
	case string(m.ID) == p.id || m.ID.Equal(jsonrpc.ID(p.id)):
	case m.Kind == jsonrpc.KindError && sole && (len(m.ID) == 0 || m.ID.IsNull()):
		frame = jsonrpc.AppendError(nil, jsonrpc.ID(p.id), m.Err(), false)
	case p.modern || sole:
		p.f.log.Warn("response to another request dropped", "id", clipped(string(m.ID)), "want", p.id)
		return false, nil
	default:
		p.pass(frame) // legacy servers replay what was meant for other streams
		return false, nil
	}
	switch {
	case p.modern && p.method == mcp.MethodToolsList:
		frame = p.f.c.tools.take(frame, m, p.f.log)
	case !p.modern && p.method == mcp.MethodInitialize:
		p.f.agreed(m)
	}
	return true, p.answer(frame)
}

// takeBatch passes on an array of messages, which there are in one legacy revision. That the answer is in it is enough for it to be found.
func (p *post) takeBatch(frame []byte) (answered bool, err error) {
	entries, err := jsonrpc.ParseBatch(frame, 0)
	if err != nil {
		return false, malformedAnswer("%v", err)
	}
	for i := range entries {
		e := &entries[i]
		answered = answered || (e.Kind == jsonrpc.KindResponse || e.Kind == jsonrpc.KindError) && e.ID.Equal(jsonrpc.ID(p.id))
	}
	p.f.deliver(inbound{frame: frame, from: p.from})
	return answered, nil
}

// An aside is a notification or an answer of this side, which the server only takes note of.
type aside struct {
	f       *framer
	method  string // "" of an answer
	header  http.Header
	body    []byte
	ctx     context.Context
	cancel  context.CancelFunc
	before  <-chan struct{} // to wait for, as is
	gate    <-chan struct{} // both may be nil
	done    chan struct{}   // closed in the end; may be nil
	listens chan<- struct{} // closed when the server knows that somebody listens; nil unless that is to be done
}

func (a *aside) run() {
	defer a.cancel()
	a.deliver()
	if a.done != nil {
		close(a.done)
	}
	if a.listens != nil {
		a.f.listenTo(a.listens)
	}
}

func (a *aside) deliver() {
	select {
	case a.f.aside <- struct{}{}:
		defer func() { <-a.f.aside }()
	case <-a.ctx.Done():
		return
	}
	if !reached(a.ctx, a.before) || !reached(a.ctx, a.gate) {
		return
	}
	err := a.send()
	for tries := 1; err != nil && tries < maxAsideTries; tries++ {
		e, ok := errors.AsType[*jsonrpc.CallError](err)
		if !ok || e.Fate != jsonrpc.FateUnsent || !sleepFor(a.ctx, max(e.RetryAfter, minRetry<<tries)) {
			break
		}
		err = a.send()
	}
	if err != nil && a.f.ctx.Err() == nil {
		a.f.log.Warn("the server did not take a message", "method", a.method, "error", err)
	}
}

// maxAsideTries is how often a message is sent at most that the server certainly did not take in: nobody else would send it again.
const maxAsideTries = 4

// send posts it. Servers are not agreed on how to say that they have taken it, so each status of success will do.
func (a *aside) send() error {
	f, h, to := a.f, a.header, a.f.c.url
	session := f.currentSession()
	if h == nil {
		h = f.c.legacyHeader(&session)
		h["Content-Type"], h["Accept"] = valueJSON, valueAccept
		if old := f.oldStream(); old != nil {
			to = old.endpoint
		}
	}
	resp, err := f.c.send(a.ctx, http.MethodPost, to, h, a.body)
	if err != nil {
		return sendError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		linger(resp.Body, a.cancel)
		return nil
	}
	r := readRefusal(resp, 0)
	if a.header == nil && (to != f.c.url && resp.StatusCode == http.StatusNotFound || session.id != "" && f.refusesSession(r, "")) {
		f.loseSession()
	}
	return r.callError()
}

package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

// A callTable matches responses to the calls of this side.
type callTable struct {
	count atomic.Int32

	// prefix is Options.CallPrefix. It is nil if ids are numbers.
	prefix atomic.Pointer[string]

	mu  sync.Mutex
	ids *atomic.Int64
	// ownIDs is the counter that ids points to if Options.IDs is nil.
	ownIDs atomic.Int64
	// pending is nil until the first call.
	pending map[int64]*Pending
	// err is the reason why no further call is possible.
	err error

	// notices counts the notifications that the peer may still answer, as some do, without an id.
	// noticedAt is the last call before the last of them.
	notices   atomic.Int32
	noticedAt atomic.Int64

	// pool holds Pendings for [Conn.NewCall]. They have channels, which belong to the synctest
	// bubble of their connection.
	pool sync.Pool
}

func (t *callTable) init(ids *atomic.Int64) {
	if t.ids = ids; ids == nil {
		t.ids = &t.ownIDs
	}
}

// SetCallPrefix changes Options.CallPrefix. It must be called before the first call.
func (c *Conn) SetCallPrefix(prefix string) {
	if prefix != "" {
		c.calls.prefix.Store(&prefix)
	}
}

func (t *callTable) appendID(dst []byte, n int64) []byte {
	prefix := t.prefix.Load()
	if prefix == nil {
		return strconv.AppendInt(dst, n, 10)
	}
	return jsonwire.AppendQuote(dst, *prefix+"."+strconv.FormatInt(n, 10))
}

// numberOf returns the number of the call with the given id.
func (t *callTable) numberOf(id jsonrpc.ID) (n int64, ok bool) {
	prefix := t.prefix.Load()
	if prefix == nil {
		return jsonwire.ParseInt(id)
	}
	text, ok := id.Text()
	if !ok {
		return 0, false
	}
	text, ok = strings.CutPrefix(text, *prefix+".")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

// add gives p an id and lists it as pending.
func (t *callTable) add(p *Pending) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	p.id = t.ids.Add(1)
	if t.pending == nil {
		t.pending = make(map[int64]*Pending)
	}
	t.pending[p.id] = p
	t.count.Add(1)
	return nil
}

// remove removes a call from the table, so that it belongs to the caller alone. It returns nil if
// the call is not in the table.
func (t *callTable) remove(id int64) *Pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pending[id]
	if p != nil {
		delete(t.pending, id)
		t.count.Add(-1)
	}
	return p
}

// resolve completes the call that m answers. It reports whether there was one.
func (c *Conn) resolve(m *jsonrpc.Message) bool {
	t := &c.calls
	var p *Pending
	if id, ok := t.numberOf(m.ID); ok {
		p = t.remove(id)
	}
	if p == nil {
		return c.failUnmatched(m.ID, m.Err())
	}
	if t.notices.Load() > 0 && p.id > t.noticedAt.Load() {
		t.notices.Store(0) // the peer has handled them
	}
	if e := m.Err(); e != nil {
		p.err = e
	} else {
		p.setResult(m.Result)
	}
	if a := p.answered.Load(); a != nil && !a.Load() {
		a.Store(true)
	}
	p.finish()
	return true
}

// failUnmatched fails the call that a response belongs to, although the id is malformed or that of
// no pending call: the call with the same id in another spelling, or else the only pending call. It
// reports whether there was one. A response to a call that was given up belongs to no other, and
// one without an id may answer a notification. e is the error in the response, or says what is
// wrong with it. It may be nil.
func (c *Conn) failUnmatched(id jsonrpc.ID, e *jsonrpc.Error) bool {
	t := &c.calls
	if c.Issued(id) {
		c.log.Debug("late response dropped", "id", clip.String(id, 100))
		return false
	}
	var sent []sentCall
	if !c.detached { // over HTTP, the response is refused
		sent = t.list(func(p *Pending) bool { return p.offered.Load() })
	}
	at := slices.IndexFunc(sent, func(s sentCall) bool { return SameText(s.id, id) })
	if len(sent) == 1 && t.count.Load() == 1 && t.prefix.Load() == nil {
		if len(id) > 0 && !id.IsNull() || t.notices.Load() == 0 {
			at = 0
		} else {
			t.notices.Add(-1)
		}
	}
	text := clip.String(id, 100)
	if len(id) == 0 {
		text = "missing"
	}
	if at < 0 {
		c.log.Warn("response matches no request in flight", "id", text, "error", e)
		return false
	}
	err := fmt.Errorf("%w: the id is %s, want %s", jsonrpc.ErrMalformed, text, sent[at].id)
	if e != nil {
		err = fmt.Errorf("%w: %s", err, e.Message)
	}
	return t.fail(sent[at].id, err)
}

// SameText reports whether two ids differ in their spelling at most: 1, "1" and 1.0.
func SameText(a, b jsonrpc.ID) bool {
	text := func(id jsonrpc.ID) string {
		s, ok := id.Text()
		if !ok {
			s = string(id)
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return s
	}
	return len(b) > 0 && text(a) == text(b)
}

// fail fails a call, unless it has ended. It reports whether it did.
func (t *callTable) fail(id jsonrpc.ID, err error) bool {
	n, ok := t.numberOf(id)
	if !ok {
		return false
	}
	p := t.remove(n)
	if p == nil {
		return false
	}
	p.err = err
	p.finish()
	return true
}

// failMalformed fails the call that a malformed response belongs to.
func (c *Conn) failMalformed(id jsonrpc.ID, e *jsonrpc.Error) bool {
	return c.calls.fail(id, fmt.Errorf("%w: %s", jsonrpc.ErrMalformed, e.Message)) || c.failUnmatched(id, e)
}

// BrokenResponse returns the id in a frame that is not JSON but begins as a response. ok is false
// for other frames.
func BrokenResponse(frame []byte) (id jsonrpc.ID, ok bool) {
	frame = bytes.TrimSpace(frame)
	if len(frame) == 0 || frame[0] != '{' {
		return nil, false
	}
	for m := jsonwire.ObjectMembers(frame); m.Next(); {
		switch string(m.RawKey()) {
		case "id":
			if v := jsonrpc.ID(m.Value()); v.Valid() {
				id = v
			}
		case "method":
			return nil, false
		case "result", "error":
			ok = true
		}
	}
	return id, ok
}

// failAll fails all pending and all future calls.
func (t *callTable) failAll(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	for id, p := range t.pending {
		p.err = t.err
		p.finish()
		delete(t.pending, id)
	}
	t.count.Store(0)
}

// A sentCall identifies a pending call whose request was sent.
type sentCall struct {
	id     jsonrpc.ID
	method string
	// via is [Pending.sentVia].
	via *Context
}

// sent returns the pending calls whose requests were sent, except silent ones.
func (t *callTable) sent() []sentCall {
	return t.list(func(p *Pending) bool { return p.sent.Load() && !p.silent.Load() })
}

// list returns the pending calls that has reports.
func (t *callTable) list(has func(*Pending) bool) (list []sentCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pending {
		if has(p) {
			list = append(list, p.sentCall())
		}
	}
	return list
}

// cancelFlushTimeout limits how long closing waits until a slow peer has read the cancellations.
const cancelFlushTimeout = 100 * time.Millisecond

// cancelCalls sends the peer, once, cancellations for the pending calls. A peer that only sees the
// end of its input would work on them for as long as it drains. Run fails the calls, since it knows
// the cause.
func (c *Conn) cancelCalls() {
	select {
	case <-c.draining:
		return
	default:
	}
	if c.callsCanceled.Swap(true) {
		return
	}
	sent := c.calls.sent()
	for _, call := range sent {
		c.cancelCall(call, jsonrpc.ErrClosed.Error())
	}
	if sent != nil {
		c.flushFor(cancelFlushTimeout)
	}
}

// Call sends a request and waits for its response. params is JSON text, an object or an array, or
// nil. The result is JSON text and belongs to the caller.
//
// The error is an *[jsonrpc.Error] if the peer answered with one. It wraps [jsonrpc.ErrClosed] and
// the cause if the connection ended first. When ctx ends, Call sends a cancellation and returns the
// context's error; a late response is dropped. The request carries the trace in ctx (see
// [WithTrace]).
func (c *Conn) Call(ctx context.Context, method string, params []byte) (result []byte, err error) {
	if _, ok := ctx.Deadline(); !ok && c.opts.CallTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.CallTimeout)
		defer cancel()
	}
	p, err := c.NewCall(method)
	if err != nil {
		return nil, err
	}
	if err := p.Send(ctx, params); err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

func (c *Conn) cancelCall(call sentCall, reason string) {
	name, params := c.opts.Cancellation.Notice(call.id, call.method, reason)
	if name == "" || call.cancel(name, params) {
		return
	}
	buf := c.notification(name, params)
	// There are at most as many cancellations as calls, so they need not wait for room.
	if err := c.w.post(&buf); err != nil {
		c.log.Debug("cancellation not sent", "id", call.id, "error", err)
	}
}

// Notify sends a notification. params is JSON text or nil. The notification carries the trace in
// ctx. If ctx can end, Notify waits for a slow peer until then, and another goroutine writes the
// message: see [Conn.Flush]. Use [Context.Notify] for notifications that belong to an incoming
// request.
func (c *Conn) Notify(ctx context.Context, method string, params []byte) error {
	params, err := prepareParams(ctx, params)
	if err != nil {
		return fmt.Errorf("notify %s: %w", method, err)
	}
	if ctx.Done() == nil {
		return c.notify(method, params, nil)
	}
	buf := c.notification(method, params)
	if err := postError(c.w.postWithin(ctx, 0, &buf)); err != nil {
		return fmt.Errorf("notify %s: %w", method, err)
	}
	return nil
}

// Flush waits until all queued messages are written, or ctx ends.
func (c *Conn) Flush(ctx context.Context) {
	c.w.start()
	stop := context.AfterFunc(ctx, c.w.wake)
	defer stop()
	c.w.wait(func() bool { return ctx.Err() != nil })
}

func (c *Conn) notify(method string, params []byte, allowed func() bool) error {
	select {
	case <-c.done:
		return fmt.Errorf("notify %s: %w", method, jsonrpc.ErrClosed)
	default:
	}
	buf := c.notification(method, params)
	if err := c.w.send(&buf, allowed); err != nil {
		return fmt.Errorf("notify %s: %w", method, err)
	}
	return nil
}

// notification returns a framed notification.
func (c *Conn) notification(method string, params []byte) []byte {
	c.calls.noticedAt.Store(c.calls.ids.Load())
	c.calls.notices.Add(1)
	buf := c.src.BeginFrame(nil)
	start := len(buf)
	buf = jsonrpc.AppendNotification(buf, method, params)
	c.trace(jsonrpc.Outgoing, buf[start:])
	return c.src.FinishFrame(buf, 0)
}

// prepareParams checks parameters from outside this package and adds the trace of ctx.
func prepareParams(ctx context.Context, params []byte) ([]byte, error) {
	params, err := checkParams(params)
	if err != nil {
		return nil, err
	}
	return TraceFrom(ctx).appendTo(params), nil
}

// checkParams checks that params are an object, an array or null, and returns them on one line.
func checkParams(params []byte) ([]byte, error) {
	if params == nil {
		return nil, nil
	}
	if err := jsonwire.Valid(params, 0); err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	params = jsonwire.OneLine(bytes.TrimSpace(params))
	switch params[0] {
	case '{', '[':
		return params, nil
	case 'n':
		return nil, nil // null
	}
	return nil, errors.New("params must be an object or an array")
}

// A Pending is a call in separate steps, for callers that need its id or do other work while they
// wait: [Conn.NewCall], then [Pending.Send], then [Pending.Wait], or Done and [Pending.Result].
// One goroutine sends and waits. Others may call Cancel and Abandon.
type Pending struct {
	conn   *Conn
	id     int64
	method string
	// offered says that the request was given to the writer, so that the peer may have read it, and
	// sent that the writer has taken it.
	offered, sent atomic.Bool
	// silent says that the end of the call sends no cancellation.
	silent atomic.Bool
	// sentVia is the request whose sender took this call, on a detached connection. It is nil if
	// the connection sent the call.
	sentVia atomic.Pointer[Context]

	// answered is set when the response is read. It may be nil.
	answered atomic.Pointer[atomic.Bool]

	// done receives one value, after result and err were set.
	done   chan struct{}
	result []byte
	err    error
}

// NewCall returns a call that has an id but is not sent yet. A caller that does not send it must
// call [Pending.Abandon]. The error wraps [jsonrpc.ErrClosed].
func (c *Conn) NewCall(method string) (*Pending, error) {
	p, _ := c.calls.pool.Get().(*Pending)
	if p == nil {
		p = &Pending{conn: c, done: make(chan struct{}, 1)}
	}
	p.method = method
	if err := c.calls.add(p); err != nil {
		return nil, fmt.Errorf("call %s: %w", method, err)
	}
	return p, nil
}

// SetAnswered has a flag set when the peer's response is read, which is before the connection
// notices an end of input behind it. A peer may respond before Send.
func (p *Pending) SetAnswered(flag *atomic.Bool) { p.answered.Store(flag) }

// setResult copies the result of a response.
func (p *Pending) setResult(result []byte) {
	if cap(p.result) < len(result) {
		p.result = make([]byte, 0, len(result))
	}
	p.result = append(p.result[:0], result...)
}

// finish wakes the caller, which owns p from then on.
func (p *Pending) finish() { p.done <- struct{}{} }

// maxKeptResult limits the memory of a result that Release keeps, in bytes.
const maxKeptResult = 64 << 10

// Release gives the memory of p and of its result to other calls of its connection. It may be
// called once, after the value of Done was received, if nobody uses p or the result afterwards. It
// saves allocations and is not required.
func (p *Pending) Release() {
	p.method, p.err = "", nil
	p.answered.Store(nil)
	p.offered.Store(false)
	p.sent.Store(false)
	p.silent.Store(false)
	p.sentVia.Store(nil)
	if cap(p.result) > maxKeptResult {
		p.result = nil
	}
	p.conn.calls.pool.Put(p)
}

func (p *Pending) sentCall() sentCall { return sentCall{p.ID(), p.method, p.sentVia.Load()} }

// SetSilent makes Cancel and the end of the connection send no cancellation of the call.
func (p *Pending) SetSilent() { p.silent.Store(true) }

// ID returns the id of the request.
func (p *Pending) ID() jsonrpc.ID { return p.conn.calls.appendID(nil, p.id) }

// Send sends the request, once. If it fails, nothing was sent and the call is over. ctx limits the
// wait for a slow peer and supplies the trace. params is as for [Conn.Call].
func (p *Pending) Send(ctx context.Context, params []byte) error { return p.SendWithin(ctx, 0, params) }

// SendWithin is like Send, but waits at most d for a slow peer. Zero means as long as ctx allows.
func (p *Pending) SendWithin(ctx context.Context, d time.Duration, params []byte) error {
	checked, err := checkParams(params)
	if err != nil {
		p.Abandon()
		return fmt.Errorf("call %s: %w", p.method, err)
	}
	return p.SendValid(ctx, d, checked)
}

// SendValid is like SendWithin for params that are known to be a JSON object on one line.
func (p *Pending) SendValid(ctx context.Context, d time.Duration, params []byte) (err error) {
	defer func() {
		if err != nil {
			p.Abandon()
		}
	}()
	c := p.conn
	params = TraceFrom(ctx).appendTo(params)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("call %s: %w", p.method, err)
	}
	yieldLead(ctx)
	out := sendBuffers.Get().(*[]byte)
	defer putSendBuffer(out)
	var id [40]byte
	buf := c.src.BeginFrame((*out)[:0])
	start := len(buf)
	buf = jsonrpc.AppendRequest(buf, c.calls.appendID(id[:0], p.id), p.method, params)
	if sent, err := p.sendCall(ctx, buf[start:]); sent || err != nil {
		*out = buf
		p.sent.Store(sent)
		return err
	}
	c.trace(jsonrpc.Outgoing, buf[start:])
	buf = c.src.FinishFrame(buf, 0)
	*out = buf
	p.offered.Store(true) // the response may arrive before post returns
	if err := postError(c.w.postWithin(ctx, d, out)); err != nil {
		return fmt.Errorf("call %s: %w", p.method, err)
	}
	p.sent.Store(true)
	return nil
}

// sendBuffers holds memory for requests. The writer takes the memory of a request and leaves memory
// that it no longer needs.
var sendBuffers = sync.Pool{New: func() any { return new([]byte) }}

// maxSendBuffer limits the memory that stays in sendBuffers, in bytes.
const maxSendBuffer = 64 << 10

func putSendBuffer(b *[]byte) {
	if cap(*b) <= maxSendBuffer {
		sendBuffers.Put(b)
	}
}

// Done returns a channel that receives one value when the call has a response, or the connection
// ends.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Result returns the result of [Conn.Call]. It must be called after the value of Done was received.
func (p *Pending) Result() ([]byte, error) {
	if p.err != nil {
		return nil, fmt.Errorf("call %s: %w", p.method, p.err)
	}
	return p.result, nil
}

// Wait waits for the response. It cancels the call if ctx ends first.
func (p *Pending) Wait(ctx context.Context) ([]byte, error) {
	began := time.Now()
	select {
	case <-p.done:
	case <-ctx.Done():
		if p.Cancel(context.Cause(ctx).Error()) {
			return nil, fmt.Errorf("call %s: no response after %v: %w", p.method, time.Since(began).Round(time.Millisecond), ctx.Err())
		}
		<-p.done // the response was faster
	}
	return p.Result()
}

// Cancel abandons the call and sends the peer a cancellation with the reason. A late response is
// dropped. Cancel reports false if the response or the end of the connection came first; then Done
// has its value, or is about to.
func (p *Pending) Cancel(reason string) bool {
	if !p.Abandon() {
		return false
	}
	if !p.silent.Load() {
		p.conn.cancelCall(p.sentCall(), reason)
	}
	return true
}

// Abandon is like Cancel, but sends nothing.
func (p *Pending) Abandon() bool { return p.conn.calls.remove(p.id) != nil }

// A MessageTransport is a [jsonrpc.Framer] that sends each message separately, as HTTP requests for
// example. The frames that ReadFrame returns belong to the reader and need not be copied.
type MessageTransport interface {
	jsonrpc.Framer
	// OnResponse sets the function for responses that do not come through ReadFrame, which saves a
	// wake-up. It is called before the other methods. Many goroutines may call answer at once. A
	// frame that was passed to it must not change. An error of answer means that the frame is not a
	// response.
	OnResponse(answer func(frame []byte) error)
	// Post is like WriteFrame, but does not wait for the peer, and many goroutines may call it at
	// once. It uses the values of ctx and ignores its end. An error means that neither this message
	// nor any later one is sent.
	Post(ctx context.Context, msg []byte) error
}

// handleResponse handles a response that does not come through ReadFrame.
func (c *Conn) handleResponse(frame []byte) error {
	c.trace(jsonrpc.Incoming, frame)
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, c.opts.MaxDepth); err != nil {
		return err
	}
	if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
		return jsonrpc.ErrMalformed
	}
	c.resolve(&m)
	return nil
}

// failTooLarge fails the only pending call, after a response without a known id was too large to be
// read. If several calls are pending, it cannot tell which one failed: they wait until their
// contexts end. It reports whether a call failed.
func (t *callTable) failTooLarge(e *jsonrpc.TooLargeError, log *slog.Logger) bool {
	sent := t.sent()
	if len(sent) != 1 {
		log.Warn("a response was too large to read, and its id is unknown: its call keeps waiting", "calls", len(sent), "limit", e.Limit)
		return false
	}
	return t.fail(sent[0].id, &jsonrpc.CallError{ID: sent[0].id, Err: e, Outcome: jsonrpc.OutcomeUnknown})
}

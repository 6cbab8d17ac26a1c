package jsonrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/json/jsonwire"
)

// A callTable matches responses to the calls of this side.
type callTable struct {
	count atomic.Int32

	prefix atomic.Pointer[string] // see Conn.SetCallPrefix; nil if ids are numbers

	mu      sync.Mutex
	ids     *atomic.Int64
	ownIDs  atomic.Int64       // that ids is, if there are no others
	pending map[int64]*Pending // nil until there was one
	err     error              // why no call can be made any more
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

// appendID appends the id of the call with that number.
func (t *callTable) appendID(dst []byte, n int64) []byte {
	prefix := t.prefix.Load()
	if prefix == nil {
		return strconv.AppendInt(dst, n, 10)
	}
	return jsonwire.AppendQuote(dst, *prefix+"."+strconv.FormatInt(n, 10))
}

// numberOf returns the number of the call with that id.
func (t *callTable) numberOf(id ID) (n int64, ok bool) {
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

// add gives p an id and lists it.
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

// remove takes a call out, so that it belongs to the caller alone; nil if it was taken out already.
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

// resolve wakes the caller whose answer m is. It reports whether there was one.
func (t *callTable) resolve(m *Message, log *slog.Logger) bool {
	var p *Pending
	if id, ok := t.numberOf(m.ID); ok {
		p = t.remove(id)
	}
	if p == nil {
		log.Warn("response to no request that is in flight", "id", clip(m.ID), "kind", m.Kind.String())
		return false
	}
	if e := m.Err(); e != nil {
		p.err = e
	} else {
		p.result = append(make([]byte, 0, len(m.Result)), m.Result...)
	}
	close(p.done)
	return true
}

// failMalformed makes the call that a malformed response belongs to fail.
func (t *callTable) failMalformed(id ID, e *Error) bool {
	n, ok := t.numberOf(id)
	if !ok {
		return false
	}
	p := t.remove(n)
	if p == nil {
		return false
	}
	p.err = fmt.Errorf("%w: %s", ErrMalformed, e.Message)
	close(p.done)
	return true
}

// failAll makes all calls fail, those to come as well.
func (t *callTable) failAll(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	for id, p := range t.pending {
		p.err = t.err
		close(p.done)
		delete(t.pending, id)
	}
	t.count.Store(0)
}

// sent returns the calls that were sent.
func (t *callTable) sent() []*Pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sent []*Pending
	for _, p := range t.pending {
		if p.sent.Load() {
			sent = append(sent, p)
		}
	}
	return sent
}

// cancelFlushTimeout is how long closing waits for a peer that does not read to be told that it need not go on.
const cancelFlushTimeout = 100 * time.Millisecond

// cancelCalls tells the peer, once, that nobody waits for the answers to the calls under way. One that only sees the end of its input would go on with them for as
// long as it drains. That they fail is up to Run, which knows why.
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
	for _, p := range sent {
		c.cancelCall(p, ErrClosed.Error())
	}
	if sent != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cancelFlushTimeout)
		defer cancel()
		c.Flush(ctx)
	}
}

// Call sends a request and waits for its answer. params is JSON text, an object or an array, or nil. The result is JSON text and the caller's.
//
// The error is an *[Error] if the peer answered one; it wraps [ErrClosed] if the connection ended first, and says why. When ctx ends, the peer is told
// that the request is cancelled, the error is the context's, and a late answer is dropped. A trace in ctx goes along (see [WithTrace]).
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

func (c *Conn) cancelCall(p *Pending, reason string) {
	name, params := c.opts.Cancellation.Notice(p.ID(), p.method, reason)
	if name == "" || p.cancelCall(name, params) {
		return
	}
	buf := c.notification(name, params)
	if err := c.w.post(&buf); err != nil { // no more of these than there were calls, so they need not wait for room
		c.log.Debug("cancellation not sent", "id", p.ID(), "error", err)
	}
}

// Notify sends a notification. params is JSON text, or nil. A trace in ctx goes along. If ctx can end, Notify waits for a peer that does not read until
// then, and leaves the writing to others: see [Conn.Flush]. Notifications that belong to a request that is being handled are sent with [Context.Notify].
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

// Flush waits until what was sent has been written, or ctx ends.
func (c *Conn) Flush(ctx context.Context) {
	c.w.start()
	stop := context.AfterFunc(ctx, c.w.wake)
	defer stop()
	c.w.wait(func() bool { return ctx.Err() != nil })
}

func (c *Conn) notify(method string, params []byte, allowed func() bool) error {
	select {
	case <-c.done:
		return fmt.Errorf("notify %s: %w", method, ErrClosed)
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
	buf := c.src.begin(nil)
	start := len(buf)
	buf = AppendNotification(buf, method, params)
	if c.opts.Trace != nil {
		c.opts.Trace(Outgoing, buf[start:])
	}
	return c.src.finish(buf, 0)
}

// prepareParams checks parameters that come from outside this package and gives them the trace of ctx.
func prepareParams(ctx context.Context, params []byte) ([]byte, error) {
	params, err := checkParams(params)
	if err != nil {
		return nil, err
	}
	return TraceFrom(ctx).appendTo(params), nil
}

// checkParams makes sure that params can go on the wire: JSON, on one line, an object or an array or nothing.
func checkParams(params []byte) ([]byte, error) {
	if params == nil {
		return nil, nil
	}
	if err := jsonwire.Valid(params, 0); err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	params = OneLine(bytes.TrimSpace(params))
	switch params[0] {
	case '{', '[':
		return params, nil
	case 'n':
		return nil, nil // null
	}
	return nil, errors.New("params must be an object or an array")
}

// A Pending is a call in its single steps, for callers that want its id, or to do something else while they wait: [Conn.NewCall], then [Pending.Send],
// then [Pending.Wait], or Done and [Pending.Result]. Send is for one goroutine; the other methods may be called by many at once.
type Pending struct {
	conn    *Conn
	id      int64
	method  string
	began   time.Time
	sent    atomic.Bool
	sentVia atomic.Pointer[Context] // whose outlet it went by, of a detached connection; nil if it went by none

	done   chan struct{}
	result []byte // set before done is closed, as is
	err    error
}

// NewCall returns a call that has an id, and has not been sent. If it is not to be, it must be abandoned. The error wraps [ErrClosed].
func (c *Conn) NewCall(method string) (*Pending, error) {
	p := &Pending{conn: c, method: method, done: make(chan struct{})}
	if err := c.calls.add(p); err != nil {
		return nil, fmt.Errorf("call %s: %w", method, err)
	}
	return p, nil
}

// ID returns the id of the request.
func (p *Pending) ID() ID { return p.conn.calls.appendID(nil, p.id) }

// Send sends the request, once. If it fails, nothing was sent, and the call is over. ctx is for the wait until the peer reads, and for a trace to go along;
// params is as for [Conn.Call].
func (p *Pending) Send(ctx context.Context, params []byte) error { return p.SendWithin(ctx, 0, params) }

// SendWithin is Send, but waits no longer than d until the peer reads. 0 is as long as ctx allows.
func (p *Pending) SendWithin(ctx context.Context, d time.Duration, params []byte) (err error) {
	defer func() {
		if err != nil {
			p.Abandon()
		}
	}()
	c := p.conn
	if params, err = prepareParams(ctx, params); err != nil {
		return fmt.Errorf("call %s: %w", p.method, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("call %s: %w", p.method, err)
	}
	yieldLead(ctx)
	p.began = time.Now()
	out := sendBuffers.Get().(*[]byte)
	defer putSendBuffer(out)
	var id [40]byte
	buf := c.src.begin((*out)[:0])
	start := len(buf)
	buf = AppendRequest(buf, c.calls.appendID(id[:0], p.id), p.method, params)
	if sent, err := p.sendCall(ctx, buf[start:]); sent || err != nil {
		*out = buf
		p.sent.Store(sent)
		return err
	}
	if c.opts.Trace != nil {
		c.opts.Trace(Outgoing, buf[start:])
	}
	buf = c.src.finish(buf, 0)
	*out = buf
	if err := postError(c.w.postWithin(ctx, d, out)); err != nil {
		return fmt.Errorf("call %s: %w", p.method, err)
	}
	p.sent.Store(true)
	return nil
}

// sendBuffers holds memory for requests. The writer takes the memory of a request and leaves what it has done with.
var sendBuffers = sync.Pool{New: func() any { return new([]byte) }}

func putSendBuffer(b *[]byte) {
	if cap(*b) <= minBuffer {
		sendBuffers.Put(b)
	}
}

// Done is closed when the call is answered, or can no longer be because the connection ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Result returns what [Conn.Call] does, once Done is closed.
func (p *Pending) Result() ([]byte, error) {
	if p.err != nil {
		return nil, fmt.Errorf("call %s: %w", p.method, p.err)
	}
	return p.result, nil
}

// Wait waits for the answer. When ctx ends first, the call is cancelled.
func (p *Pending) Wait(ctx context.Context) ([]byte, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		if p.Cancel(context.Cause(ctx).Error()) {
			return nil, fmt.Errorf("call %s: no answer after %v: %w", p.method, time.Since(p.began).Round(time.Millisecond), ctx.Err())
		}
		<-p.done // the answer was first, by a hair
	}
	return p.Result()
}

// Cancel gives the call up: the peer is told, with the reason, and a late answer is dropped. It reports false if the answer, or the end of the
// connection, was first: then Done is closed, or about to be.
func (p *Pending) Cancel(reason string) bool {
	if !p.Abandon() {
		return false
	}
	p.conn.cancelCall(p, reason)
	return true
}

// Abandon is Cancel without telling the peer.
func (p *Pending) Abandon() bool { return p.conn.calls.remove(p.id) != nil }

// A CallError is what a call fails with that its transport could not bring to an answer, while the connection goes on: over HTTP, each call is a request of
// its own. A Framer returns one from ReadFrame; [Pending.Result] and [Conn.Call] wrap it. It never comes from the peer's JSON-RPC side: that is an *[Error].
type CallError struct {
	ID         ID            // of the call that fails
	Err        error         // why; never nil
	Outcome    Outcome       // what became of the request
	RetryAfter time.Duration // that the peer wants the next attempt to wait; 0 if it did not say
}

func (e *CallError) Error() string { return fmt.Sprintf("%v: %v", e.Outcome, e.Err) }

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }

// A Outcome tells whether a request that got no answer has been carried out, which decides whether it may be sent again.
type Outcome uint8

// The fates.
const (
	OutcomeUnknown     Outcome = iota // it may have been: only what is safe to repeat may be sent again
	OutcomeUnprocessed                // it was not, and may be if it is sent again
	OutcomeRejected                   // it was not, and would not be the next time
	OutcomeDenied                     // it was not: the peer does not trust this side, or this side does not trust the peer
)

func (o Outcome) String() string {
	switch o {
	case OutcomeUnprocessed:
		return "not carried out"
	case OutcomeRejected:
		return "refused"
	case OutcomeDenied:
		return "denied"
	}
	return "no answer"
}

// A MessageTransport is a [Framer] that takes each message by itself, as one whose messages are HTTP requests does. What ReadFrame has returned belongs to the reader: it is not written to
// any more, and need not be copied.
type MessageTransport interface {
	Framer
	// OnResponse is called before the other methods. Answers to requests may be handed to answer, by many goroutines at once, rather than come by ReadFrame, which takes a wake-up more. A
	// frame that is handed over is not changed any more. The error says that it is no response.
	OnResponse(answer func(frame []byte) error)
	// Post is WriteFrame for many goroutines at once, and does not wait for the peer. ctx is that of whoever sends the message: its values go along, its end means nothing. An error
	// means that this message was not sent, and no other will be.
	Post(ctx context.Context, msg []byte) error
}

// handleResponse takes an answer that does not come by ReadFrame.
func (c *Conn) handleResponse(frame []byte) error {
	if c.opts.Trace != nil {
		c.opts.Trace(Incoming, frame)
	}
	var m Message
	if err := Parse(frame, &m, c.opts.MaxDepth); err != nil {
		return err
	}
	if m.Kind != KindResponse && m.Kind != KindError {
		return ErrMalformed
	}
	c.calls.resolve(&m, c.log)
	return nil
}

// ErrGap is what ReadFrame of a [Framer] returns when messages that the peer sent of itself may have been missed. The next call reads on.
var ErrGap = errors.New("messages may have been missed")

// failTransport makes the call that e is about fail. It reports whether there was one.
func (t *callTable) failTransport(e *CallError) bool {
	var p *Pending
	if id, ok := t.numberOf(e.ID); ok {
		p = t.remove(id)
	}
	if p == nil {
		return false // nobody waits for it any more
	}
	p.err = e
	close(p.done)
	return true
}

// failTooLarge makes the only call under way fail, whose answer was too large to be read and told no id. Of several, nobody can tell which it is: they go on
// until their contexts end. It reports whether a call failed.
func (t *callTable) failTooLarge(e *TooLargeError, log *slog.Logger) bool {
	sent := t.sent()
	if len(sent) != 1 {
		log.Warn("an answer was too large to be read, and its id is not known: the call that it belongs to goes on waiting", "calls", len(sent), "limit", e.Limit)
		return false
	}
	return t.failTransport(&CallError{ID: sent[0].ID(), Err: e, Outcome: OutcomeUnknown})
}

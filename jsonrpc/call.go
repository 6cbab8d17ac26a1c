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

	"mcpwire/internal/jsonwire"
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

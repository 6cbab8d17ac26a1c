package jsonrpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

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

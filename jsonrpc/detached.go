package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// An Sender takes messages to the peer: each is JSON text on one line, valid until Send returns. Send is not called twice at once. When it fails, the
// message is lost: a call fails then, and whoever sent a notification that belongs to a request is told.
type Sender interface {
	Send(message []byte) error
}

// A Delivery is one incoming request of a detached connection.
type Delivery struct {
	Message *Message // valid, with its slices, until [Conn.Deliver] returns
	// Sender takes what belongs to the request and goes before its answer: notifications, and the calls that are made while it is handled. nil is the
	// connection's. It is not used any more when Deliver has returned, unless the request stands.
	Sender Sender
	// Untracked is for transports where an id need not be unique and nothing cancels a request but the end of its context: the connection keeps no list of it.
	Untracked bool
	Batch     bool // it came in a batch
	// Lifetime is what the request's context ends with, instead of the one that Deliver is called with, whose values it has all the same; nil if it is that one.
	Lifetime context.Context
	// AllowDeferred lets the handler leave the request standing, of a Untracked delivery: Deliver then returns no response, and the error is the *[Deferred] to finish.
	AllowDeferred bool
	// OnPrepared, if it is not nil, is called once what came behind the request may be delivered, when
	// its own state has been noted: as soon as the handler has prepared it, or answered it if that
	// is [Immediate]. It may not be called at all if the request is refused.
	OnPrepared func()

	request  *Request // that Parse has parsed into, for Deliver
	onUnsent func()   // see ReportSent; nil for most
}

// Parse parses a frame like the function [Parse] does, into memory of the delivery's own that Message points to then and that the next frame takes: the request
// is handled where it lies. The frame must last as long as Message is used.
func (d *Delivery) Parse(frame []byte, maxDepth int) error {
	if d.request == nil {
		d.request = new(Request)
	}
	d.Message = &d.request.Message
	return Parse(frame, d.Message, maxDepth)
}

// ReportSent says whether the response that [Conn.Deliver] returned was sent, to the handler if it wants
// to know that, see [Request.OnUnsent]. A transport that knows calls it after each Deliver: with false
// if the peer was gone before the response was written. It does not block.
func (d *Delivery) ReportSent(sent bool) {
	f := d.onUnsent
	d.onUnsent = nil
	if !sent && f != nil {
		f()
	}
}

// acquire returns the request to deliver, and whether it is the delivery's own.
func (d *Delivery) acquire() (r *Request, reused bool) {
	if r = d.request; r != nil && d.Message == &r.Message {
		r.clear()
		return r, true
	}
	r = requests.Get().(*Request)
	r.clear()
	r.Message = *d.Message // by itself, or it is copied twice
	return r, false
}

// NewDetached returns a connection without a transport of its own, for one that brings each message by itself and has a way back for what belongs to it, as
// HTTP does. Messages are handed in with [Conn.Deliver], [Conn.DeliverNotification] and [Conn.DeliverResponse]; what belongs to no request goes to out.
// It has no goroutine of its own, and is not run: it lasts until [Conn.Close], which cancels what is being handled but waits only for notifications. Bounds on
// the number of requests are the transport's business, and Options.Goroutines means nothing.
func NewDetached(out Sender, opts *Options) *Conn {
	c := new(Conn)
	f := &struct {
		senderFramer
		frameSource
	}{senderFramer: senderFramer{out, c}}
	f.Framer = &f.senderFramer
	c.init(&f.frameSource, opts)
	c.detached = true
	c.started.Store(true)
	return c
}

// An senderFramer makes an Sender what the writer of a Conn writes to. A message that is lost is not the end of the connection: the next one may get through.
type senderFramer struct {
	Sender
	conn *Conn
}

func (f *senderFramer) ReadFrame() ([]byte, error) { return nil, io.EOF }
func (f *senderFramer) Close() error               { return nil }

func (f *senderFramer) WriteFrame(frame []byte) error {
	err := f.Send(frame)
	if err == nil {
		return nil
	}
	f.conn.log.Debug("message not sent", "error", err)
	var m Message
	if Parse(frame, &m, f.conn.opts.MaxDepth) == nil && m.Kind == KindRequest {
		f.conn.calls.failCall(m.ID, &sendError{err})
	}
	return nil
}

// failCall makes the call with that id fail, which did not get through.
func (t *callTable) failCall(id ID, err error) {
	n, ok := t.numberOf(id)
	if !ok {
		return
	}
	if p := t.remove(n); p != nil {
		p.err = err
		close(p.done)
	}
}

// A sendError is a failure of an Sender. It is no end of the connection.
type sendError struct{ err error }

func (e *sendError) Error() string { return "send: " + e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

// closeDetached is Close of a detached connection: there is no Run to wait for.
func (c *Conn) closeDetached() {
	if c.stopping.Swap(true) {
		return
	}
	c.stop(nil)
	close(c.draining)
	c.inFlight.cancelAll()
	c.calls.failAll(ErrClosed)
	c.w.close()
	c.waitTimeout(c.opts.DrainTimeout)
	close(c.done)
}

// errNotDetached is what the Deliver methods of other connections panic with.
var errNotDetached = errors.New("jsonrpc: Deliver on a connection that reads for itself")

// Deliver handles a request on the calling goroutine and appends the response to dst, without framing. err is what the handler returned, which is in the
// response as [ErrorOf] maps it, for transports that tell errors apart. No response is appended if the request was cancelled by a notification; the
// error is [ErrRequestEnded] then. The request's context has the values of ctx, and ends with it, or with Delivery.Lifetime. It may be called by many goroutines at once.
func (c *Conn) Deliver(ctx context.Context, d *Delivery, dst []byte) (response []byte, err error) {
	if !c.detached {
		panic(errNotDetached)
	}
	if c.opts.Trace != nil {
		c.opts.Trace(Incoming, d.Message.text)
	}
	r, reused := d.acquire()
	d.onUnsent = nil
	r.conn, r.base, r.lifetime, r.sender, r.mayDefer = c, ctx, d.Lifetime, d.Sender, d.Untracked && d.AllowDeferred
	r.onPrepared = d.OnPrepared
	if r.lifetime == nil {
		r.lifetime = ctx
	}
	if d.Batch {
		r.batch = deliveredBatch
	}
	start := len(dst)
	if rejection := c.admit(r, d.Untracked); rejection != nil {
		if !reused {
			r.release()
		}
		return c.traceOutgoing(AppendError(dst, d.Message.ID, rejection, true), start), rejection
	}
	deferred := false
	defer func() { // on the way of runtime.Goexit too
		d.onUnsent = r.onUnsent
		if !deferred && !c.finishRequest(r, d.Untracked) {
			response, err = dst[:start], ErrRequestEnded
			d.ReportSent(false)
		}
		if !reused {
			r.release()
		}
	}()
	response, err = c.serve(r, dst)
	if s, ok := err.(*Deferred); ok && r.mayDefer {
		s.bind(r)
		deferred = true
		return dst[:start], s
	}
	return c.traceOutgoing(response, start), err
}

// deliveredBatch marks requests that came in a batch which is none of the connection's business.
var deliveredBatch = new(batch)

// traceOutgoing shows an outgoing message to who wants to see it.
func (c *Conn) traceOutgoing(dst []byte, start int) []byte {
	if c.opts.Trace != nil {
		c.opts.Trace(Outgoing, dst[start:])
	}
	return dst
}

// admit lists the request among those in flight.
func (c *Conn) admit(r *Request, untracked bool) *Error {
	t := &c.inFlight
	if untracked {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.stopping.Load() {
		return Errorf(CodeInternalError, "the connection is closed")
	}
	if t.requests.get(r.ID) != nil {
		return errDuplicateID
	}
	t.trackLocked(r)
	return nil
}

// finishRequest ends a request that was admitted, and reports whether it is owed an answer.
func (c *Conn) finishRequest(r *Request, untracked bool) (mayRespond bool) {
	if ctx := r.ctx.Load(); ctx != nil {
		ctx.close()
	}
	if untracked {
		return true
	}
	return c.inFlight.untrack(r)
}

// serve has the request answered.
func (c *Conn) serve(r *Request, dst []byte) ([]byte, error) {
	start := len(dst)
	dst = appendResultHead(dst, r.ID)
	head := len(dst)
	cost := r.prepare()
	if r.onPrepared != nil && cost != Immediate {
		r.onPrepared()
	}
	r.began = c.startTime()
	out, err := r.invoke(dst)
	if r.onPrepared != nil && cost == Immediate {
		r.onPrepared()
	}
	if err == nil {
		if len(out) <= head {
			return append(dst, "null}"...), nil
		}
		return append(out, '}'), nil
	}
	if _, ok := err.(*Deferred); ok && r.mayDefer {
		return dst, err
	}
	e := ErrorOf(err)
	if e.Code == CodeInternalError && !r.canceled.Load() && r.lifetime.Err() == nil {
		c.logError(r, err)
	}
	return AppendError(dst[:start], r.ID, e, true), err
}

// startTime returns the time for the log, if there is one.
func (c *Conn) startTime() time.Time {
	if c.log.Enabled(context.Background(), slog.LevelError) {
		return time.Now()
	}
	return time.Time{}
}

// DeliverNotification handles a notification, or a cancellation. Those that the handler takes at its own pace are handled in their order on a goroutine of
// the connection's; m is copied for that. A notification that is beyond Options.MaxQueueBytes is dropped, with a warning. The handler's context has the values
// of ctx, but does not end with it.
func (c *Conn) DeliverNotification(ctx context.Context, m *Message) {
	if !c.detached {
		panic(errNotDetached)
	}
	if c.opts.Trace != nil {
		c.opts.Trace(Incoming, m.text)
	}
	if c.stopping.Load() || c.handleCancel(m) {
		return
	}
	c.handleNotification(&Request{Message: *m, conn: c, base: context.WithoutCancel(ctx)}, m.text)
}

// DeliverResponse gives the answer to a call of this side to who waits for it, and reports whether somebody did.
func (c *Conn) DeliverResponse(m *Message) bool {
	if !c.detached {
		panic(errNotDetached)
	}
	if c.opts.Trace != nil {
		c.opts.Trace(Incoming, m.text)
	}
	return c.calls.resolve(m, c.log)
}

// requestOf returns the context of the request in flight whose outlet is the way for what is sent with ctx; nil if there is none.
func (c *Conn) requestOf(ctx context.Context) *Context {
	if !c.detached {
		return nil
	}
	if r := RequestContext(ctx); r != nil && r.conn == c {
		return r
	}
	return nil
}

// send sends a message by the request's outlet. sent is false, without an error, if the request has none or has ended.
func (c *Context) send(message []byte) (sent bool, err error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.sender == nil || !c.active() {
		return false, nil
	}
	if trace := c.conn.opts.Trace; trace != nil {
		trace(Outgoing, message)
	}
	if err := c.sender.Send(message); err != nil {
		return false, &sendError{err}
	}
	return true, nil
}

// notifyDirect is Notify where the request has an outlet.
func (c *Context) notifyDirect(method string, params []byte) error {
	sent, err := c.send(AppendNotification(nil, method, params))
	switch {
	case err != nil:
		return fmt.Errorf("notify %s: %w", method, err)
	case !sent:
		return fmt.Errorf("notify %s: %w", method, ErrRequestEnded)
	}
	return nil
}

// sendCall sends the request p by the outlet of the request that ctx stems from, if there is one.
func (p *Pending) sendCall(ctx context.Context, message []byte) (sent bool, err error) {
	r := p.conn.requestOf(ctx)
	if r == nil {
		return false, nil
	}
	// The answer comes by another way, and may be here before send returns.
	if sent, err = r.send(message); sent {
		p.sentVia.Store(r)
	}
	return sent, err
}

// cancelCall sends the cancellation of the call by the way that the call went, if that is still there.
func (p *Pending) cancelCall(method string, params []byte) (sent bool) {
	if r := p.sentVia.Load(); r != nil {
		sent, _ = r.send(AppendNotification(nil, method, params))
	}
	return sent
}

// An Deferred is what a [Handler] may return as the error of a request that goes on for as long as the peer listens, if [Request.MayDefer] allows it: the
// request has no answer yet, its context goes on, and no goroutine waits. The transport that delivered it ends it with [Deferred.Finish].
type Deferred struct {
	// Result gives up what belongs to the request, and appends the result to dst. It is called once.
	Result func(dst []byte) []byte

	conn *Conn
	id   ID
	ctx  *Context
}

func (*Deferred) Error() string { return "the request stands" }

// bind takes over from r what outlasts Deliver.
func (d *Deferred) bind(r *Request) {
	d.conn, d.id, d.ctx = r.conn, r.ID.Clone(), r.ctx.Load()
}

// Finish ends the request and appends the response to dst, for a peer that is still there. It must be called once. When it has returned, nothing is sent
// by the request's outlet any more.
func (d *Deferred) Finish(dst []byte) []byte {
	start := len(dst)
	dst = append(d.Result(appendResultHead(dst, d.id)), '}')
	if d.ctx != nil {
		d.ctx.close()
	}
	return d.conn.traceOutgoing(dst, start)
}

// MayDefer reports whether the handler may return an [Deferred].
func (r *Request) MayDefer() bool { return r.mayDefer }

// close ends the context, once what is on its way has been sent.
func (c *Context) close() {
	c.end()
	c.sending.Lock()
	c.sender = nil
	c.sending.Unlock()
}

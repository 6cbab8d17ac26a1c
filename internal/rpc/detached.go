package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"mcpwire/jsonrpc"
)

// A Delivery is one incoming request of a detached connection.
type Delivery struct {
	// Message and its slices must be valid until [Conn.Deliver] returns.
	Message *jsonrpc.Message
	// Sender takes messages that precede the response: the request's notifications, and the calls
	// that its handler makes. Nil means the connection's sender. It is not used after Deliver
	// returns, unless the response is deferred.
	Sender Sender
	// Untracked says that the id need not be unique and that only the end of its context cancels
	// the request: the connection does not track it.
	Untracked bool
	// Batch says that the request came in a batch.
	Batch bool
	// Lifetime is the context that ends the request's context. The values still come from the ctx
	// of Deliver. Nil means that ctx.
	Lifetime context.Context
	// AllowDeferred lets the handler of an Untracked delivery defer the response: Deliver then
	// returns no response, and the error is the *[Deferred] to finish.
	AllowDeferred bool
	// OnPrepared, if not nil, is called once when the next message may be delivered: as soon as the
	// handler has prepared the request, or has answered it if it is [Immediate]. It may not be
	// called if the request is rejected.
	OnPrepared func()

	// request is the target of Parse.
	request *Request
	// onUnsent is for ReportSent. It is mostly nil.
	onUnsent func()
}

// Parse is like [jsonrpc.Parse], but parses into memory of the Delivery and sets Message to
// it; the next Parse reuses that memory. The frame must be valid for as long as Message is used.
func (d *Delivery) Parse(frame []byte, maxDepth int) error {
	if d.request == nil {
		d.request = new(Request)
	}
	d.Message = &d.request.Message
	return jsonrpc.Parse(frame, d.Message, maxDepth)
}

// ReportSent reports whether the response that [Conn.Deliver] returned was sent. A transport that
// knows calls it after each Deliver, with false if the peer was gone before the response was
// written; then it calls the function of [Request.OnUnsent]. It does not block.
func (d *Delivery) ReportSent(sent bool) {
	f := d.onUnsent
	d.onUnsent = nil
	if !sent && f != nil {
		f()
	}
}

// acquire returns the request to deliver, and whether it belongs to the Delivery.
func (d *Delivery) acquire() (r *Request, reused bool) {
	if r = d.request; r != nil && d.Message == &r.Message {
		r.clear()
		return r, true
	}
	r = requests.Get().(*Request)
	r.clear()
	r.Message = *d.Message // on its own line, or it is copied twice
	return r, false
}

// NewDetached returns a connection without a framer, for a transport such as HTTP that delivers
// each message separately and has a way back for messages that belong to it. The transport passes
// messages to [Conn.Deliver], [Conn.DeliverNotification] and [Conn.DeliverResponse]. Messages that
// belong to no request go to out.
//
// The connection is not run and starts no reader. It lasts until [Conn.Close], which cancels
// requests but waits only for notifications. The transport limits the number of requests.
// Options.Goroutines has no effect.
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

// A Sender sends messages to the peer. Each message is JSON text on one line, valid until Send
// returns. Send is not called concurrently. If it fails, the message is lost, and so is the call
// or the notification that it belongs to.
type Sender interface {
	Send(message []byte) error
}

// A senderFramer adapts a Sender to the writer of a Conn. A lost message does not end the
// connection: the next one may get through.
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
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, f.conn.opts.MaxDepth) == nil && m.Kind == jsonrpc.KindRequest {
		f.conn.calls.fail(m.ID, &sendError{err})
	}
	return nil
}

// A sendError is the error of a Sender. It does not end the connection.
type sendError struct{ err error }

func (e *sendError) Error() string { return "send: " + e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

// closeDetached is Close for a detached connection, which has no Run to wait for.
func (c *Conn) closeDetached() {
	if c.stopping.Swap(true) {
		return
	}
	c.stop(nil)
	close(c.draining)
	c.inFlight.cancelAll(jsonrpc.ErrShutdown)
	c.calls.failAll(jsonrpc.ErrClosed)
	c.w.close()
	c.waitTimeout(c.opts.DrainTimeout)
	close(c.done)
}

// errNotDetached is the panic value of the Deliver methods on other connections.
var errNotDetached = errors.New("rpc: Deliver on a connection that reads for itself")

// Deliver handles a request on the calling goroutine and appends the response to dst, without
// framing. err is the handler's error; the response holds it as [jsonrpc.ErrorOf] maps it. If a
// notification canceled the request, Deliver appends no response and returns
// [jsonrpc.ErrRequestEnded]. The request's context has the values of ctx and ends with it, or with
// Delivery.Lifetime. Many goroutines may call Deliver at once.
func (c *Conn) Deliver(ctx context.Context, d *Delivery, dst []byte) (response []byte, err error) {
	c.traceDelivered(d.Message)
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
		response = jsonrpc.AppendError(dst, d.Message.ID, rejection, true)
		c.trace(jsonrpc.Outgoing, response[start:])
		return response, rejection
	}
	deferred := false
	defer func() { // also runs after runtime.Goexit
		d.onUnsent = r.onUnsent
		if !deferred && !c.finishRequest(r, d.Untracked) {
			response, err = dst[:start], jsonrpc.ErrRequestEnded
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
	c.trace(jsonrpc.Outgoing, response[start:])
	return response, err
}

// deliveredBatch marks requests whose batch the transport handles.
var deliveredBatch = new(batch)

// trace passes a message to Options.Trace.
func (c *Conn) trace(dir jsonrpc.Direction, message []byte) {
	if c.opts.Trace != nil {
		c.opts.Trace(dir, message)
	}
}

// traceDelivered is trace for a message that is delivered.
func (c *Conn) traceDelivered(m *jsonrpc.Message) {
	if !c.detached {
		panic(errNotDetached)
	}
	c.trace(jsonrpc.Incoming, m.Raw())
}

// admit adds the request to those in flight.
func (c *Conn) admit(r *Request, untracked bool) *jsonrpc.Error {
	t := &c.inFlight
	if untracked {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.stopping.Load() {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "the connection is closed")
	}
	if t.requests.get(r.ID) != nil {
		return errDuplicateID
	}
	t.trackLocked(r)
	return nil
}

// finishRequest ends an admitted request, and reports whether it may be answered.
func (c *Conn) finishRequest(r *Request, untracked bool) (mayRespond bool) {
	if ctx := r.ctx.Load(); ctx != nil {
		ctx.close()
	}
	if untracked {
		return true
	}
	return c.inFlight.untrack(r)
}

// serve runs the handler and appends the response.
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
	e := jsonrpc.ErrorOf(err)
	if e.Code == jsonrpc.CodeInternalError && !r.canceled.Load() && r.lifetime.Err() == nil {
		c.logError(r, err)
	}
	return jsonrpc.AppendError(dst[:start], r.ID, e, true), err
}

// startTime returns the current time if errors are logged, and otherwise the zero time.
func (c *Conn) startTime() time.Time {
	if c.log.Enabled(context.Background(), slog.LevelError) {
		return time.Now()
	}
	return time.Time{}
}

// DeliverNotification handles a notification or a cancellation. Notifications that are not
// Immediate are copied and handled in order on another goroutine. A notification beyond
// Options.MaxQueueBytes is dropped with a warning. The handler's context has the values of ctx, but
// does not end with it.
func (c *Conn) DeliverNotification(ctx context.Context, m *jsonrpc.Message) {
	c.traceDelivered(m)
	if c.stopping.Load() || c.inFlight.handleCancel(m) {
		return
	}
	c.inFlight.handleNotification(&Request{Message: *m, conn: c, base: context.WithoutCancel(ctx)}, false)
}

// DeliverResponse passes a response to the pending call it belongs to, and reports whether there
// was one.
func (c *Conn) DeliverResponse(m *jsonrpc.Message) bool {
	c.traceDelivered(m)
	return c.resolve(m)
}

// Issued reports whether this connection has sent a request with the id.
func (c *Conn) Issued(id jsonrpc.ID) bool {
	n, ok := c.calls.numberOf(id)
	return ok && n > 0 && n <= c.calls.ids.Load()
}

// requestOf returns the context of this connection's request that ctx derives from, or nil.
func (c *Conn) requestOf(ctx context.Context) *Context {
	if !c.detached {
		return nil
	}
	if r := RequestContext(ctx); r != nil && r.conn == c {
		return r
	}
	return nil
}

// send sends a message by the request's sender. sent is false, without an error, if the request has
// no sender or has ended.
func (c *Context) send(message []byte) (sent bool, err error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.sender == nil || !c.active() {
		return false, nil
	}
	c.conn.trace(jsonrpc.Outgoing, message)
	if err := c.sender.Send(message); err != nil {
		return false, &sendError{err}
	}
	return true, nil
}

// notifyDirect is Notify for a request with a sender.
func (c *Context) notifyDirect(method string, params []byte) error {
	sent, err := c.send(jsonrpc.AppendNotification(nil, method, params))
	switch {
	case err != nil:
		return fmt.Errorf("notify %s: %w", method, err)
	case !sent:
		return fmt.Errorf("notify %s: %w", method, jsonrpc.ErrRequestEnded)
	}
	return nil
}

// sendCall sends the request p by the sender of the request that ctx derives from, if there is one.
func (p *Pending) sendCall(ctx context.Context, message []byte) (sent bool, err error) {
	r := p.conn.requestOf(ctx)
	if r == nil {
		return false, nil
	}
	// The response takes another path, and may arrive before send returns.
	if sent, err = r.send(message); sent {
		p.sentVia.Store(r)
	}
	return sent, err
}

// cancel sends the cancellation of the call by the sender that took the call, if it is still there.
func (call *sentCall) cancel(method string, params []byte) (sent bool) {
	if call.via != nil {
		sent, _ = call.via.send(jsonrpc.AppendNotification(nil, method, params))
	}
	return sent
}

// A Deferred is an error that a [Handler] may return, if [Request.MayDefer] allows it, for a
// request that lasts as long as the peer listens. The request has no response yet, its context goes
// on, and no goroutine waits. The transport that delivered the request ends it with
// [Deferred.Finish].
type Deferred struct {
	// Result releases the request's resources and appends the result to dst. It is called once.
	Result func(dst []byte) []byte

	conn *Conn
	id   jsonrpc.ID
	ctx  *Context
}

func (*Deferred) Error() string { return "the request is still valid" }

// bind takes from r what outlives Deliver.
func (d *Deferred) bind(r *Request) {
	d.conn, d.id, d.ctx = r.conn, r.ID.Clone(), r.ctx.Load()
}

// Finish ends the request and appends the response to dst, for a peer that is still there. It must
// be called once. After it returns, the request's sender is not used.
func (d *Deferred) Finish(dst []byte) []byte {
	start := len(dst)
	dst = append(d.Result(appendResultHead(dst, d.id)), '}')
	if d.ctx != nil {
		d.ctx.close()
	}
	d.conn.trace(jsonrpc.Outgoing, dst[start:])
	return dst
}

// MayDefer reports whether the handler may return a [Deferred].
func (r *Request) MayDefer() bool { return r.mayDefer }

// close ends the context after a running send.
func (c *Context) close() {
	c.end(nil)
	c.sending.Lock()
	c.sender = nil
	c.sending.Unlock()
}

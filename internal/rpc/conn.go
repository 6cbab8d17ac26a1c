package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

// Options are the options of NewConn. Nil means the zero value, which is ready to use.
type Options struct {
	// Handler handles the peer's requests and notifications. Nil answers "method not found".
	Handler Handler
	// Cancellation encodes and decodes cancellations. Nil means CancelRequest.
	Cancellation Cancellation
	// Policy is the initial policy.
	Policy Policy

	// MaxDepth limits the levels of nesting in a frame. Zero means 512.
	MaxDepth int
	// MaxInFlight limits the requests that are handled at once. Zero means 256. Further requests
	// are queued, where they can be canceled.
	MaxInFlight int
	// MaxInFlightBytes limits the bytes of these requests: their frames, and 512 for each. Zero
	// means 256 MiB. One request is handled whatever its size.
	MaxInFlightBytes int
	// MaxQueueBytes limits the bytes of queued requests in the same way. Zero means 16 MiB. Further
	// requests are rejected, so that responses and cancellations still get through.
	MaxQueueBytes int
	// MaxPendingBytes limits the output that the peer has not read, in bytes. Zero means 8 MiB.
	// Above it senders wait; at twice the limit reading stops.
	MaxPendingBytes int

	// DrainTimeout limits how long handlers run after the end of input. Zero means 10 seconds.
	DrainTimeout time.Duration
	// CallTimeout is the timeout of calls whose context has no deadline. Zero means none.
	CallTimeout time.Duration

	// IDs holds the last id of this side's calls. Connections that share it never use an id twice,
	// so that a response for one of them matches no call of another. Nil starts at 1.
	IDs *atomic.Int64

	// CallPrefix turns the ids of this side's calls into strings: CallPrefix, a dot, and the
	// number. With a prefix that no other connection uses, a response that reaches the wrong
	// connection, in any process, matches no call. Empty means integer ids.
	CallPrefix string

	// Goroutines runs each request that is not Immediate on its own goroutine, whatever its
	// CostEstimate: simpler, and several times slower for quick handlers.
	Goroutines bool

	// OnGap is called by the reading goroutine when the Framer returns [jsonrpc.ErrGap]. It must
	// not block. It may be nil.
	OnGap func()

	// Logger receives the connection's log. Nil discards it.
	Logger *slog.Logger
	// Trace sees each message. It must not keep the slice. Many goroutines may call it at once. It
	// may be nil.
	Trace func(dir jsonrpc.Direction, message []byte)
}

// A Conn is a connection on which both sides send requests, responses and notifications, with many
// requests in flight in both directions. Make one with [NewConn] and start it with [Conn.Run]. Many
// goroutines may call its methods at once.
type Conn struct {
	// Hot fields first: with many detached connections, each request should touch few cache lines.
	// The end of opts is the part that is used most.
	opts    Options
	handler Handler
	log     *slog.Logger
	// base is the parent of the requests' contexts. Run replaces it.
	base context.Context
	// detached is set by NewDetached.
	detached bool
	stopping atomic.Bool
	inFlight inFlight

	src    Source
	policy atomic.Pointer[Policy]
	w      writer
	leader leader
	calls  callTable

	wg sync.WaitGroup

	// inputEnd receives the reason why reading ended. Run makes it, with room for one.
	inputEnd chan error
	// draining is closed when stopping is set.
	draining chan struct{}
	// closing is nil if the connection is detached.
	closing   chan struct{}
	closeOnce sync.Once
	// closeErr is the reason why closing was closed.
	closeErr error
	started  atomic.Bool
	// callsCanceled reports that cancelCalls has run.
	callsCanceled atomic.Bool
	done          chan struct{}
	// err is the result of Run, set before done is closed.
	err error
}

// NewConn returns a connection over f. The connection closes f when it ends. It reads nothing
// before [Conn.Run].
func NewConn(f jsonrpc.Framer, opts *Options) *Conn {
	c := new(Conn)
	c.init(sourceOf(f), opts)
	c.closing = make(chan struct{})
	if transport, ok := f.(MessageTransport); ok {
		transport.OnResponse(c.handleResponse)
	}
	return c
}

// init initializes a connection with or without a framer. HTTP servers have many idle connections:
// memory that only some need is allocated on first use.
func (c *Conn) init(src Source, opts *Options) {
	c.inFlight.c, c.leader.c = c, c
	c.src, c.draining, c.done = src, make(chan struct{}), make(chan struct{})
	if opts != nil {
		c.opts = *opts
	}
	o := &c.opts
	defaults.IfNotPositive(&o.MaxInFlight, 256)
	defaults.IfNotPositive(&o.MaxInFlightBytes, 256<<20)
	defaults.IfNotPositive(&o.MaxQueueBytes, 16<<20)
	defaults.IfNotPositive(&o.MaxPendingBytes, 8<<20)
	defaults.IfNotPositive(&o.DrainTimeout, 10*time.Second)
	if c.handler = o.Handler; c.handler == nil {
		c.handler = noHandler{}
	}
	if o.Cancellation == nil {
		o.Cancellation = CancelRequest{}
	}
	if c.log = o.Logger; c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.base = context.Background()
	c.policy.Store(&o.Policy)
	c.calls.init(o.IDs)
	c.SetCallPrefix(o.CallPrefix)
	c.w.init(c.src, o.MaxPendingBytes, c, &c.wg, &c.calls.count)
}

// Done returns a channel that is closed when Run has returned, or when the connection was closed
// before it ran.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Draining returns a channel that is closed when no more input is read and the remaining requests
// are drained. Requests that last as long as the peer listens should end then.
func (c *Conn) Draining() <-chan struct{} { return c.draining }

// Err returns the result of Run once Done is closed, and nil before.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection at once. It cancels incoming requests and pending calls, which fail
// with [jsonrpc.ErrClosed], closes the framer, and waits for Run, which waits for handlers until
// the drain timeout. It may be called more than once. A handler that calls Close waits for itself
// until the drain timeout.
func (c *Conn) Close() error {
	if c.detached {
		c.closeDetached()
		return nil
	}
	c.cancelCalls()
	c.stop(nil)
	if !c.started.Swap(true) {
		c.calls.failAll(jsonrpc.ErrClosed)
		c.err = c.src.Close()
		close(c.draining)
		close(c.done)
	}
	<-c.done
	return nil
}

// stop makes Run end without draining. Only the first cause counts.
func (c *Conn) stop(cause error) {
	c.closeOnce.Do(func() {
		c.closeErr = cause
		if c.closing != nil {
			close(c.closing)
		}
	})
}

// Run reads and answers until the input ends, ctx ends or Close is called. At the end of input, and
// when ctx ends, Run finishes and answers accepted requests until the drain timeout. Then it
// cancels the others, answers them with the error [ShuttingDown], and closes everything. Pending
// calls of this side fail at once, since no response can arrive.
//
// After a write error, Run reads for up to 100 ms what the peer may have written before; Close
// waits for that.
//
// Run returns nil at the end of input and after Close, the context's cause when ctx ended, and
// otherwise the read or write error. If requests were cut off, the error is a
// *[jsonrpc.DrainError]. Run must be called once.
func (c *Conn) Run(ctx context.Context) error {
	if c.started.Swap(true) {
		<-c.done
		return c.err
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	c.base = base
	c.inputEnd = make(chan error, 1)
	c.leader.timer = time.AfterFunc(time.Hour, c.leader.watchdogTick)
	c.leader.timer.Stop()
	c.leader.running.Store(true)
	c.wg.Go(func() { c.leader.lead(0, false) })

	var cause error
	drain, canceled := true, jsonrpc.ErrShutdown
	select {
	case cause = <-c.inputEnd:
		canceled = jsonrpc.ErrDisconnected
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-c.closing:
		cause, drain = c.closeErr, false
		if cause != nil {
			canceled = jsonrpc.ErrDisconnected
			c.drainInput(ctx)
		}
	}
	c.stopping.Store(true)
	close(c.draining)
	if !errors.Is(cause, io.EOF) {
		c.leader.quiesce()
	}
	defer c.leader.timer.Stop()
	closedErr := jsonrpc.ErrClosed
	if cause != nil && !errors.Is(cause, io.EOF) {
		closedErr = fmt.Errorf("%w: %w", jsonrpc.ErrClosed, cause)
	}
	if !drain {
		// Handlers must not report the errors of the calls below.
		c.inFlight.cancelAll(canceled)
	}
	c.calls.failAll(closedErr)
	if errors.Is(cause, io.EOF) {
		cause = nil
	}
	if drainErr := c.shutdown(drain, canceled); drainErr != nil {
		drainErr.Cause = cause
		cause = drainErr
	}
	c.err = cause
	close(c.done)
	return cause
}

// drainInputTimeout limits how long reading goes on after a write error.
const drainInputTimeout = 100 * time.Millisecond

// drainInput waits a moment for the end of input: a peer that stopped reading has often ended, and
// its last output may say why.
func (c *Conn) drainInput(ctx context.Context) {
	select {
	case <-c.inputEnd:
	case <-ctx.Done():
	case <-time.After(drainInputTimeout):
	}
}

// shutdown ends the connection after the last request was accepted. canceled is the cause for
// requests that are cut off.
func (c *Conn) shutdown(drain bool, canceled error) (drainErr *jsonrpc.DrainError) {
	idle := c.inFlight.whenIdle()
	if drain {
		select {
		case <-idle:
		case <-time.After(c.opts.DrainTimeout):
			drainErr = &jsonrpc.DrainError{Requests: c.abortRequests(canceled), After: c.opts.DrainTimeout}
			c.log.Warn("drain timeout", "error", drainErr)
		case <-c.closing:
		}
	}
	c.inFlight.cancelAll(canceled)
	switch {
	case drainErr != nil:
		c.flushFor(abortFlushTimeout)
	case drain:
		c.flushFor(c.opts.DrainTimeout)
	}
	if err := c.src.Close(); err != nil && !drain {
		c.log.Debug("close", "error", err)
	}
	c.w.close()
	c.waitTimeout(c.opts.DrainTimeout)
	return drainErr
}

// abortFlushTimeout limits how long the peer may take to read that its requests were cut off, after
// the drain timeout.
const abortFlushTimeout = time.Second

// flushFor waits at most d until the output is written.
func (c *Conn) flushFor(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	c.Flush(ctx)
}

// waitTimeout waits at most d for the connection's goroutines. It abandons handlers that ignore the
// end of their context for longer.
func (c *Conn) waitTimeout(d time.Duration) {
	if wait.Timeout(d, c.wg.Wait) {
		return
	}
	if c.leader.running.Load() {
		c.log.Error("the transport was closed, but its reader did not return: its goroutine leaks")
	}
	if methods := c.inFlight.methods(); len(methods) > 0 {
		c.log.Error("handlers ignore the end of their context: their goroutines leak", "methods", methods)
	}
}

func (c *Conn) logError(r *Request, err error) {
	var p *jsonrpc.PanicError
	attrs := []any{"id", clip.String(r.ID, 100), "method", clip.String(r.Method, 100)}
	if d, ok := c.handler.(Describer); ok {
		attrs = append(attrs, d.Describe(r)...)
	}
	if !r.began.IsZero() {
		attrs = append(attrs, "duration", time.Since(r.began))
	}
	attrs = append(attrs, "error", err)
	if errors.As(err, &p) {
		attrs = append(attrs, "stack", string(p.Stack))
	}
	c.log.Error("request failed", attrs...)
}

// A Policy holds the settings that the two sides of a connection may negotiate while it runs. The
// zero Policy is plain JSON-RPC 2.0.
type Policy struct {
	// NoBatches answers an array with one "invalid request" error.
	NoBatches bool
	// OmitNullID omits "id":null in errors that belong to no readable id.
	OmitNullID bool
	// NoErrorsWithoutID logs errors that belong to no readable id instead of sending them.
	NoErrorsWithoutID bool
	// DropRequests logs and drops requests. In MCP since 2026-07-28, only servers answer requests.
	DropRequests bool
}

// SetPolicy changes the policy for all messages from now on.
func (c *Conn) SetPolicy(p Policy) { c.policy.Store(&p) }

// mayRespond reports whether an error may be sent for id, which is empty or null if it is not
// readable.
func (c *Conn) mayRespond(id jsonrpc.ID) bool {
	p := c.policy.Load()
	return !p.DropRequests && (!p.NoErrorsWithoutID || len(id) > 0 && !id.IsNull())
}

// A Cancellation encodes and decodes the notification that cancels a request.
type Cancellation interface {
	// Target returns the id of the request that n cancels. ok is false if n is not a cancellation.
	// The id may alias n.
	Target(n *jsonrpc.Message) (id jsonrpc.ID, reason string, ok bool)
	// Notice returns the notification that cancels a request of this side. An empty name means that
	// the request must not be canceled.
	Notice(id jsonrpc.ID, method, reason string) (name string, params []byte)
}

// CancelRequest is the Cancellation of plain JSON-RPC peers: $/cancelRequest with {"id": …}.
type CancelRequest struct{}

// Target implements [Cancellation].
func (CancelRequest) Target(n *jsonrpc.Message) (jsonrpc.ID, string, bool) {
	if string(n.Method) != "$/cancelRequest" {
		return nil, "", false
	}
	id, ok := n.Param("id")
	return id, "", ok
}

// Notice implements [Cancellation].
func (CancelRequest) Notice(id jsonrpc.ID, _, _ string) (string, []byte) {
	return "$/cancelRequest", append(append([]byte(`{"id":`), id...), '}')
}

// CancelReason decodes the member of a cancellation that holds the reason. It returns "" if the
// member is absent or not a string.
func CancelReason(n *jsonrpc.Message, member string) string {
	text, _ := n.Param(member)
	return clip.String(jsonwire.Text(text), 100)
}

// ShuttingDown returns the error for a request that was not finished within d of a shutdown. The
// request may have taken effect.
func ShuttingDown(d time.Duration) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInternalError, "shutting down: the request did not finish within %v", d)
}

// An abortedRequest is a request that was cut off.
type abortedRequest struct {
	id    jsonrpc.ID
	batch *batch
}

// abortRequests cancels and answers all running and queued requests, and returns their number. It
// does not wait for the peer to read the responses.
func (c *Conn) abortRequests(cause error) int {
	aborted := c.inFlight.abortRequests(cause)
	e := ShuttingDown(c.opts.DrainTimeout)
	for _, a := range aborted {
		switch {
		case !c.mayRespond(a.id):
		case a.batch != nil:
			if a.batch.add(c, jsonrpc.AppendError(nil, a.id, e, true), true) {
				c.postResponse(a.batch.reply)
			}
		default:
			c.postResponse(c.errorFrame(a.id, e, true))
		}
	}
	for _, a := range aborted {
		if a.batch != nil && a.batch.complete(c) {
			c.postResponse(a.batch.reply)
		}
	}
	return len(aborted)
}

func (c *Conn) postResponse(frame []byte) {
	if err := c.w.post(&frame); err != nil {
		c.log.Debug("response not sent", "error", err)
	}
}

// abortRequests is like cancelAll, but returns the requests that need a response.
func (f *inFlight) abortRequests(cause error) (aborted []abortedRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.requests.all() {
		r.aborted = true
		aborted = append(aborted, abortedRequest{r.ID.Clone(), r.batch})
	}
	f.cancelAllLocked(cause)
	return aborted
}

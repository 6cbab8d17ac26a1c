package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/json/jsonwire"
)

// Options are the options of NewConn. The zero value is ready to use, and what nil means.
type Options struct {
	Handler      Handler      // of what the peer sends; nil answers method not found
	Cancellation Cancellation // nil is CancelRequest
	Policy       Policy       // to begin with

	MaxDepth         int // levels of nesting in a frame; 0 is 512
	MaxInFlight      int // requests being handled at once; 0 is 256. Further ones are queued, and can be cancelled there
	MaxInFlightBytes int // frames of these requests, and 512 for each; 0 is 256 MiB. One is handled however large it is
	MaxQueueBytes    int // the same of queued requests; 0 is 16 MiB. Requests beyond it are refused, so that responses and cancellations still get through
	MaxPendingBytes  int // output that the peer has not taken; 0 is 8 MiB. Senders wait beyond it, and at twice that much reading stops

	DrainTimeout   time.Duration // how long handlers may go on after the end of input; 0 is 10 s
	RequestTimeout time.Duration // after which a handler's context expires; 0 is never
	CallTimeout    time.Duration // for calls whose context has no deadline; 0 is none

	// IDs counts the ids of this side's calls: it holds the last one used. Connections that share it never use an id twice, so that an answer meant for
	// one of them fits no call of another. nil starts at 1.
	IDs *atomic.Int64

	// CallPrefix makes strings of the ids of this side's calls: CallPrefix, a dot, and the number.
	// With one that no other connection has, an answer that reaches the wrong connection, in
	// whichever process, fits no call of it. "" leaves the ids integers.
	CallPrefix string

	// Goroutines runs each request that is not Immediate on a goroutine of its own, whatever its CostEstimate has learnt: simpler, and several times slower
	// for quick handlers.
	Goroutines bool

	OnGap func() // is called when the Framer says [ErrGap], by who reads: it must not wait

	Logger *slog.Logger                        // nil discards
	Trace  func(dir Direction, message []byte) // sees each message, may be nil; must not keep the slice. May be called by many goroutines at once
}

// Direction tells which way a message went.
type Direction uint8

// The directions.
const (
	Incoming Direction = iota
	Outgoing
)

// A Conn is a connection on which either side calls, answers and notifies, with many requests in flight in both directions. Make one with
// [NewConn] and start it with [Conn.Run]. Its methods may be called by many goroutines at once.
type Conn struct {
	// What each request of a detached connection looks at comes first, so that it lies together: of such connections, there are too many for the processor to have
	// them all at hand.
	opts     Options // of which the last are what is needed most
	handler  Handler
	log      *slog.Logger
	base     context.Context // of the requests; set by Run
	detached bool            // see NewDetached
	stopping atomic.Bool
	inFlight

	src    source
	policy atomic.Uint32
	w      writer
	leaderState
	calls callTable

	wg sync.WaitGroup

	inputEnd      chan error    // why reading ended; has room for one; made by Run
	draining      chan struct{} // closed when stopping is set
	closing       chan struct{} // nil if it is detached
	closeOnce     sync.Once
	closeErr      error // why closing was closed
	started       atomic.Bool
	callsCanceled atomic.Bool // the peer was told that this side does not wait any more
	done          chan struct{}
	err           error // of Run; set before done is closed
}

// NewConn returns a connection over f, which it closes in the end. Nothing is read before [Conn.Run].
func NewConn(f Framer, opts *Options) *Conn {
	c := new(Conn)
	c.init(sourceOf(f), opts)
	c.closing = make(chan struct{})
	if transport, ok := f.(MessageTransport); ok {
		transport.OnResponse(c.handleResponse)
	}
	return c
}

// init is what connections with and without a transport of their own have in common. Servers over HTTP have many that rest: what only some need is made when it is
// needed.
func (c *Conn) init(src source, opts *Options) {
	c.src, c.draining, c.done = src, make(chan struct{}), make(chan struct{})
	if opts != nil {
		c.opts = *opts
	}
	o := &c.opts
	setDefault(&o.MaxInFlight, 256)
	setDefault(&o.MaxInFlightBytes, 256<<20)
	setDefault(&o.MaxQueueBytes, 16<<20)
	setDefault(&o.MaxPendingBytes, 8<<20)
	setDefault(&o.DrainTimeout, 10*time.Second)
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
	c.SetPolicy(o.Policy)
	c.calls.init(o.IDs)
	c.SetCallPrefix(o.CallPrefix)
	c.w.init(c.src, o.MaxPendingBytes, c, &c.wg)
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Done is closed when Run has returned, or when the connection was closed before it ran.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Draining is closed when nothing more will be read: what still goes on is being drained. Requests that would go on for as long as the peer
// listens should end then.
func (c *Conn) Draining() <-chan struct{} { return c.draining }

// Err returns what Run returned, once Done is closed.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection at once: it cancels the requests being handled and the calls under way, which fail with [ErrClosed], closes the framer, and
// waits for Run to return, which waits for handlers no longer than the drain timeout. It may be called more than once. A handler that calls it
// waits for itself until then.
func (c *Conn) Close() error {
	if c.detached {
		c.closeDetached()
		return nil
	}
	c.cancelCalls()
	c.stop(nil)
	if !c.started.Swap(true) {
		c.calls.failAll(ErrClosed)
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
// when ctx ends, requests that were accepted are still finished and answered, for as long as the
// drain timeout lets them; then the others are cancelled and answered with the error [ShuttingDown], and
// everything is closed. Calls of this side that are under way fail at once, since no answer can
// come any more.
//
// When writing has failed, what the peer may have written before it went is read for up to 100 ms, which Close then waits for.
//
// It returns nil at the end of input and after Close, the context's cause when ctx ended, and otherwise the error that reading or writing
// met; in a *[DrainError] if requests were cut off. It must be called once.
func (c *Conn) Run(ctx context.Context) error {
	if c.started.Swap(true) {
		<-c.done
		return c.err
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	c.base = base
	c.inputEnd = make(chan error, 1)
	c.timer = time.AfterFunc(time.Hour, c.watchdogTick)
	c.timer.Stop()
	c.hasLeader.Store(true)
	c.wg.Go(func() { c.lead(0, false) })

	var cause error
	drain := true
	select {
	case cause = <-c.inputEnd:
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-c.closing:
		cause, drain = c.closeErr, false
		if cause != nil {
			c.drainInput(ctx)
		}
	}
	c.stopping.Store(true)
	close(c.draining)
	if !errors.Is(cause, io.EOF) {
		c.quiesce()
	}
	defer c.timer.Stop()
	closedErr := ErrClosed
	if cause != nil && !errors.Is(cause, io.EOF) {
		closedErr = fmt.Errorf("%w: %w", ErrClosed, cause)
	}
	if !drain {
		c.inFlight.cancelAll() // first, so that nobody is told of what the calls below fail with
	}
	c.calls.failAll(closedErr)
	if errors.Is(cause, io.EOF) {
		cause = nil
	}
	if drainErr := c.shutdown(drain); drainErr != nil {
		drainErr.Cause = cause
		cause = drainErr
	}
	c.err = cause
	close(c.done)
	return cause
}

// drainInputTimeout is how long reading goes on when nothing can be written any more.
const drainInputTimeout = 100 * time.Millisecond

// drainInput waits for the end of the input, for a moment: a peer that does not read any more has often ended, and what it wrote before may say why.
func (c *Conn) drainInput(ctx context.Context) {
	timer := time.NewTimer(drainInputTimeout)
	defer timer.Stop()
	select {
	case <-c.inputEnd:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// shutdown brings the connection to its end once nothing new is accepted.
func (c *Conn) shutdown(drain bool) (drainErr *DrainError) {
	timer := time.NewTimer(c.opts.DrainTimeout)
	defer timer.Stop()
	idle := c.inFlight.whenIdle()
	if drain {
		select {
		case <-idle:
		case <-timer.C:
			drainErr = &DrainError{Requests: c.abortRequests(), After: c.opts.DrainTimeout}
			c.log.Warn("drain timeout", "error", drainErr)
		case <-c.closing:
		}
	}
	c.inFlight.cancelAll()
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

// abortFlushTimeout is how long a peer may take to read that its requests were cut off. The time to drain
// is over by then.
const abortFlushTimeout = time.Second

// flushFor waits until the peer has taken what was written, but no longer than d.
func (c *Conn) flushFor(d time.Duration) {
	var late atomic.Bool
	t := time.AfterFunc(d, func() {
		late.Store(true)
		c.w.wake()
	})
	defer t.Stop()
	c.w.start()
	c.w.wait(late.Load)
}

// waitTimeout waits for the connection's goroutines. Handlers that ignore the end of their context for longer than d are left behind.
func (c *Conn) waitTimeout(d time.Duration) {
	finished := make(chan struct{})
	go func() {
		c.wg.Wait()
		close(finished)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
		if c.hasLeader.Load() {
			c.log.Error("the transport was closed but its reader does not return, and is left behind")
		}
		if methods := c.inFlight.methods(); len(methods) > 0 {
			c.log.Error("handlers ignore that their context has ended, and are left behind", "methods", methods)
		}
	}
}

func (c *Conn) logError(r *Request, err error) {
	var p *PanicError
	attrs := []any{"id", clip(r.ID), "method", clip(r.Method)}
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

// A Policy is what the two sides of a connection may agree on while it runs. The zero Policy is plain JSON-RPC 2.0.
type Policy struct {
	NoBatches         bool // an array is answered with one invalid request instead of being taken as a batch
	OmitNullID        bool // an error that belongs to no readable id has no id, instead of "id":null
	NoErrorsWithoutID bool // what would be an error that belongs to no readable id is logged only
	DropRequests      bool // nothing is answered: requests are logged and dropped. In MCP since 2026-07-28, only servers answer
}

const (
	policyNoBatches = 1 << iota
	policyOmitNullID
	policyNoErrorsWithoutID
	policyDropRequests
)

// SetPolicy changes the policy for what is read and written from now on.
func (c *Conn) SetPolicy(p Policy) {
	bits := uint32(0)
	if p.NoBatches {
		bits |= policyNoBatches
	}
	if p.OmitNullID {
		bits |= policyOmitNullID
	}
	if p.NoErrorsWithoutID {
		bits |= policyNoErrorsWithoutID
	}
	if p.DropRequests {
		bits |= policyDropRequests
	}
	c.policy.Store(bits)
}

func (c *Conn) has(bit uint32) bool { return c.policy.Load()&bit != 0 }

// mayRespond reports whether something may be answered under the id, which is empty or null if nobody could read it.
func (c *Conn) mayRespond(id ID) bool {
	bits := c.policy.Load()
	return bits&(policyNoErrorsWithoutID|policyDropRequests) == 0 || bits&policyDropRequests == 0 && len(id) > 0 && !id.IsNull()
}

// A Cancellation is the notification by which one side gives up a request it sent.
type Cancellation interface {
	// Target returns the id of the request that n cancels; ok is false if n is no cancellation. The id may alias n.
	Target(n *Message) (id ID, reason string, ok bool)
	// Notice makes the notification that cancels the request this side sent. An empty name means that it must not be cancelled.
	Notice(id ID, method, reason string) (name string, params []byte)
}

// CancelRequest is the Cancellation of the Language Server Protocol and of plain JSON-RPC peers: $/cancelRequest with {"id": …}.
type CancelRequest struct{}

// Target implements [Cancellation].
func (CancelRequest) Target(n *Message) (ID, string, bool) {
	if string(n.Method) != "$/cancelRequest" {
		return nil, "", false
	}
	id, ok := n.Param("id")
	return id, "", ok
}

// Notice implements [Cancellation].
func (CancelRequest) Notice(id ID, _, _ string) (string, []byte) {
	return "$/cancelRequest", append(append([]byte(`{"id":`), id...), '}')
}

// CancelReason decodes the member of a cancellation that says why, if there is one.
func CancelReason(n *Message, member string) string {
	text, ok := n.Param(member)
	if !ok || text[0] != '"' {
		return ""
	}
	return clip(jsonwire.UnquoteString(text[1 : len(text)-1]))
}

// A DrainError is what [Conn.Run] returns if requests were still being handled, or were queued,
// when the time to drain was over.
type DrainError struct {
	// Requests is how many were cut off. Each was answered with the error ShuttingDown, if the peer
	// still reads.
	Requests int
	// After is the time that they had.
	After time.Duration
	// Cause says why the connection ended. It is nil at the end of input.
	Cause error
}

func (e *DrainError) Error() string {
	text := fmt.Sprintf("%d requests were cut off %v after the end of input", e.Requests, e.After)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *DrainError) Unwrap() error { return e.Cause }

// ShuttingDown is the error for a request that was not finished when its server had had the time d to
// shut down. It may have taken effect.
func ShuttingDown(d time.Duration) *Error {
	return Errorf(CodeInternalError, "shutting down: the request was not finished within %v", d)
}

// An abandoned request is one that was cut off.
type abortedRequest struct {
	id    ID
	batch *batch
}

// abortRequests cancels all requests that are running or queued, answers them, and returns how many there
// were. Nobody waits for the peer to read the answers.
func (c *Conn) abortRequests() int {
	aborted := c.inFlight.abortRequests()
	e := ShuttingDown(c.opts.DrainTimeout)
	for _, a := range aborted {
		switch {
		case !c.mayRespond(a.id):
		case a.batch != nil:
			if a.batch.add(c, AppendError(nil, a.id, e, true), true) {
				c.postResponse(a.batch.reply)
			}
		default:
			buf := c.src.begin(nil)
			start := len(buf)
			buf = c.traceOutgoing(AppendError(buf, a.id, e, true), start)
			c.postResponse(c.src.finish(buf, 0))
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
		c.log.Debug("answer not sent", "error", err)
	}
}

// abortRequests does what cancelAll does, and returns the requests that are owed an answer.
func (f *inFlight) abortRequests() (aborted []abortedRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.requests.all() {
		r.aborted = true
		aborted = append(aborted, abortedRequest{r.ID.Clone(), r.batch})
	}
	f.cancelAllLocked()
	return aborted
}

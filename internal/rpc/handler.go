package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
)

// A Handler answers a connection's incoming requests and handles its notifications.
type Handler interface {
	// Prepare is called for each request and notification in the order of arrival, on the reading
	// goroutine. It must not block and must not keep slices of r. Its result says how to run
	// Handle: [Immediate] at once on the reading goroutine, nil on a new goroutine, another
	// CostEstimate as its measurements suggest. Prepare may set r.Route for Handle.
	Prepare(r *Request) *CostEstimate
	// Handle answers a request. It appends the result's JSON text, without raw line breaks, to dst
	// and returns it, or returns an error, which [jsonrpc.ErrorOf] maps to the wire. For a
	// notification, the result is ignored and the error is logged. Handle may run for many requests
	// at once. r and its slices are valid until it returns. A panic fails only this request.
	Handle(r *Request, dst []byte) ([]byte, error)
}

// A BatchHandler is a Handler that may reject a whole batch. PrepareBatch is called with the
// members before the first of them is prepared, on the reading goroutine, and must not block. An
// error rejects all members: it is answered once, without an id.
type BatchHandler interface {
	PrepareBatch(members []rpcbatch.Entry) error
}

// A Describer is a Handler that adds attributes of package slog to the log entries of a request.
type Describer interface {
	Describe(r *Request) []any
}

// Immediate marks requests that take microseconds and never wait. They run on the reading
// goroutine, and no watchdog watches them.
var Immediate = new(CostEstimate)

// LongRunning marks requests that last as long as the peer listens. Each has its own goroutine,
// which does not count toward Options.MaxInFlight: the handler limits their number, and ends them
// when [Conn.Draining] is closed.
var LongRunning = new(CostEstimate)

// HandlerFunc is a Handler that runs each request on its own goroutine. The result is JSON text;
// nil is answered as null.
type HandlerFunc func(ctx context.Context, r *Request) (result []byte, err error)

// Prepare implements [Handler].
func (f HandlerFunc) Prepare(*Request) *CostEstimate { return nil }

// Handle implements [Handler].
func (f HandlerFunc) Handle(r *Request, dst []byte) ([]byte, error) {
	ctx := new(Context)
	r.InitContext(ctx, TraceOf(r.Params))
	result, err := f(ctx, r)
	if err != nil {
		return dst, err
	}
	return AppendResult(dst, result)
}

// AppendResult appends a result from outside this module for [Handler].Handle: it checks that it is
// JSON, and puts it on one line. Nil becomes null.
func AppendResult(dst, result []byte) ([]byte, error) {
	if len(result) == 0 {
		return append(dst, "null"...), nil
	}
	if err := jsonwire.Valid(result, 0); err != nil {
		return dst, err
	}
	return append(dst, jsonwire.OneLine(result)...), nil
}

// noHandler answers every request with method not found.
type noHandler struct{}

func (noHandler) Prepare(*Request) *CostEstimate { return Immediate }

func (noHandler) Handle(r *Request, dst []byte) ([]byte, error) {
	return dst, jsonrpc.MethodNotFound(string(r.Method))
}

// A Request is an incoming request or notification. It and its slices are valid until Handle
// returns.
type Request struct {
	jsonrpc.Message
	// Route is set by Prepare for Handle. It must not alias the frame.
	Route any

	// State is set by Prepare to preserve state of the peer for Handle, which later messages may
	// change meanwhile. It must not alias the frame.
	State any

	conn *Conn
	cost *CostEstimate

	// base, lifetime and sender are set by Deliver. base supplies the values of the request's
	// context in place of the connection's base.
	base       context.Context
	lifetime   context.Context
	sender     Sender
	mayDefer   bool
	onPrepared func()
	// onUnsent is mostly nil; see OnUnsent.
	onUnsent func()

	batch *batch
	// turn is the turn of Context.
	turn uint64
	// size is the size of the frame in the queue.
	size int
	// began is when the handler started. The leader does not set it, to save time.
	began time.Time
	// frame is memory of this request that Message aliases, if not the reader's buffer.
	frame []byte
	// reply is the framed response, and memory for the next one.
	reply []byte
	// readBuf is a reader's buffer that this request took over.
	readBuf []byte

	ctx      atomic.Pointer[Context]
	canceled atomic.Bool
	// cause is why the request was canceled. It does not change once canceled is set.
	cause error
	// failure is a panic in Prepare, or the end of the goroutine in Handle.
	failure error
	// key is the key in a requestSet. inFlight.mu guards it and the fields below.
	key string
	// counted reports that the request is, or will be, counted in inFlight.running.
	counted bool
	// done reports that Handle has returned.
	done bool
	// responded reports that the response was also sent.
	responded bool
	// aborted reports that abortRequests answers the request. It does not change after the request
	// has left the requestSet.
	aborted bool
}

var requests = sync.Pool{New: func() any { return new(Request) }}

// Conn returns the connection that the request came in on.
func (r *Request) Conn() *Conn { return r.conn }

// Sender returns the Sender of the request's [Delivery]. It is nil on connections that read for
// themselves.
func (r *Request) Sender() Sender { return r.sender }

// InBatch reports whether the request came in a batch.
func (r *Request) InBatch() bool { return r.batch != nil }

// OnUnsent sets a function that is called if the result of Handle is not sent, because the peer
// canceled the request or the connection ended. The function can release something that only the
// result names. A result that is about to be written counts as sent. Handle must call OnUnsent on
// its own request, not on a copy; the last call counts. f is called at most once, after Handle has
// returned, and must not block.
func (r *Request) OnUnsent(f func()) { r.onUnsent = f }

// WithParams returns a copy of r with other params, for a Handler that changes what it forwards.
// The connection does not know the copy: call InitContext on r. params is JSON text or nil, and is
// copied.
func (r *Request) WithParams(params []byte) (*Request, error) {
	params, err := checkParams(params)
	if err != nil {
		return nil, err
	}
	var text []byte
	if r.Kind == jsonrpc.KindNotification {
		text = jsonrpc.AppendNotification(nil, string(r.Method), params)
	} else {
		text = jsonrpc.AppendRequest(nil, r.ID, string(r.Method), params)
	}
	n := &Request{State: r.State, conn: r.conn, batch: r.batch, turn: r.turn, sender: r.sender, mayDefer: r.mayDefer}
	if err := jsonrpc.Parse(text, &n.Message, r.conn.opts.MaxDepth); err != nil {
		return nil, fmt.Errorf("params: %v", err) // without its code, which blames the peer
	}
	return n, nil
}

// InitContext makes ctx, which must be new, the context of the request. Calls and notifications
// with ctx carry trace; see [TraceOf].
func (r *Request) InitContext(ctx *Context, trace Trace) {
	ctx.conn, ctx.base, ctx.turn = r.conn, r.conn.base, r.turn
	if trace != (Trace{}) {
		t := trace // without the copy, each trace would move to the heap
		ctx.trace = &t
	}
	if r.base != nil {
		ctx.base, ctx.lifetime = r.base, r.lifetime
	}
	if r.sender != nil {
		ctx.hasSender, ctx.sender = true, r.sender
	}
	r.ctx.Store(ctx)
	if r.canceled.Load() { // the cancellation may have come before the context
		ctx.end(r.cause)
	}
}

// cancel ends the request's context, so that nothing more is sent for it. It needs inFlight.mu.
func (r *Request) cancel(cause error) {
	if !r.canceled.Load() {
		r.cause = cause
		r.canceled.Store(true)
	}
	if ctx := r.ctx.Load(); ctx != nil {
		ctx.end(cause)
	}
}

// clear resets the request for another message. It keeps the memory.
func (r *Request) clear() {
	r.Route, r.State, r.cost, r.batch, r.turn, r.size, r.began = nil, nil, nil, nil, 0, 0, time.Time{}
	r.failure, r.key, r.counted, r.done, r.responded, r.aborted = nil, "", false, false, false, false
	r.base, r.lifetime, r.sender, r.mayDefer, r.onPrepared, r.onUnsent = nil, nil, nil, false, nil, nil
	r.reply = r.reply[:0]
	if r.ctx.Load() != nil {
		r.ctx.Store(nil)
	}
	if r.canceled.Load() {
		r.canceled.Store(false)
		r.cause = nil
	}
}

// appendResultHead appends a response up to its result.
func appendResultHead(dst []byte, id jsonrpc.ID) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	return append(dst, `,"result":`...)
}

// respond runs the handler and leaves the framed response in r.reply. For a notification r.reply
// stays empty.
func (r *Request) respond() {
	c := r.conn
	dst := r.reply[:0]
	if r.batch == nil {
		dst = c.src.BeginFrame(dst)
	}
	start := len(dst)
	dst = appendResultHead(dst, r.ID)
	head := len(dst)
	out, err := r.invoke(dst)
	if ctx := r.ctx.Load(); ctx != nil {
		ctx.end(nil)
	}
	if r.Kind != jsonrpc.KindRequest {
		if err != nil {
			c.logError(r, err)
		}
		r.reply = dst[:0]
		return
	}
	switch {
	case err != nil:
		e := jsonrpc.ErrorOf(err)
		if e.Code == jsonrpc.CodeInternalError && !r.canceled.Load() {
			c.logError(r, err)
		}
		dst = jsonrpc.AppendError(dst[:start], r.ID, e, true)
	case len(out) <= head: // nothing was appended, or nil returned
		dst = append(dst, "null}"...)
	default:
		dst = append(out, '}')
	}
	r.reply = dst
	if r.batch != nil {
		return // it becomes part of the batch
	}
	c.trace(jsonrpc.Outgoing, dst[start:])
	r.reply = c.src.FinishFrame(dst, 0)
}

// invoke calls the handler and turns a panic into an error.
func (r *Request) invoke(dst []byte) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &jsonrpc.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	if r.failure != nil {
		return nil, r.failure
	}
	return r.conn.handler.Handle(r, dst)
}

// errExited is the failure of a request whose handler ended its goroutine with runtime.Goexit, as
// testing's FailNow does.
var errExited = errors.New("handler ended its goroutine")

// handlerExited answers a request whose handler ended the goroutine. It runs in the goroutine's
// last deferred call.
func (c *Conn) handlerExited(r *Request) {
	r.failure = errExited
	r.respond()
	if next := c.inFlight.complete(r); next != nil {
		c.wg.Go(func() { c.inFlight.run(next) })
	}
}

// prepare asks the handler how to run the request. A panic fails the request like one in Handle.
func (r *Request) prepare() (cost *CostEstimate) {
	defer func() {
		if v := recover(); v != nil {
			r.failure = &jsonrpc.PanicError{Value: v, Stack: debug.Stack()}
			cost = Immediate
		}
	}()
	return r.conn.handler.Prepare(r)
}

// A CostEstimate learns how long one kind of request takes, for example a tool, so that quick
// requests are answered on the reading goroutine and slow ones do not delay it. Passing a quick
// request to another goroutine costs several times what its handler does. The zero CostEstimate is
// unknown: its first requests run on their own goroutines. Many goroutines may use it at once.
type CostEstimate struct {
	// mean is an exponentially weighted mean, in nanoseconds.
	mean atomic.Int64
	// probation counts the observations that are needed before the reader may run it.
	probation atomic.Int64
	// overruns counts how often the watchdog took the lead from it.
	overruns atomic.Int32
	// runs counts the runs on the reader, to time some of them.
	runs atomic.Uint32
}

const (
	maxInlineCost = 30 * time.Microsecond // above this, a goroutine costs less
	trialRuns     = 4
	bytesPerNano  = 2  // lower bound for decoding and encoding
	sampleMask    = 15 // the reader times one run in 16
)

// Seed sets the estimate of a CostEstimate that is not in use yet to d.
func (e *CostEstimate) Seed(d time.Duration) { e.mean.Store(max(int64(d), 1)) }

// fast reports whether the reader may run requests of this kind.
func (e *CostEstimate) fast() bool {
	mean := e.mean.Load()
	return mean > 0 && mean <= int64(maxInlineCost) && e.probation.Load() <= 0
}

// sample reports whether this run on the reader should be timed.
func (e *CostEstimate) sample() bool { return e.runs.Add(1)&sampleMask == 0 }

// observe records a run of d for a message of size bytes. It subtracts the time that any handler
// takes for a message of that size, since reading the message costs the reader as much again.
func (e *CostEstimate) observe(d time.Duration, size int) {
	n := max(int64(d)-int64(size)/bytesPerNano, 1)
	switch mean := e.mean.Load(); {
	case mean == 0:
		e.probation.Store(trialRuns - 1)
		e.mean.Store(n)
		return
	default:
		e.mean.Store(mean + (n-mean)/4)
	}
	if n <= int64(maxInlineCost) {
		e.probation.Add(-1)
	}
}

// recordOverrun records that a request blocked the reader. The first time may be the machine's
// fault; after that the probation grows each time.
func (e *CostEstimate) recordOverrun() {
	n := e.overruns.Add(1)
	if n > 1 {
		e.probation.Store(16 << min(n, 12))
	}
}

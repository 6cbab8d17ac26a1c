package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/json/jsonwire"
)

// A Handler answers a connection's incoming requests and takes its notifications.
type Handler interface {
	// Prepare is called for each request and notification in the order of arrival, on the goroutine that reads. It must not block, and must not
	// keep slices of r. It says how to run Handle: [Immediate] at once where it stands, nil on a goroutine of its own, a *Pace as that pace has
	// learnt. What it leaves in r.Route is there in Handle.
	Prepare(r *Request) *CostEstimate
	// Handle answers a request: it appends the result's JSON text, without raw line breaks, to dst and returns it, or returns an error, which
	// [ErrorOf] maps to the wire. For a notification both are ignored but for the log. Handle may run at the same time for many requests;
	// r and its slices are valid until it returns. A panic fails this request alone.
	Handle(r *Request, dst []byte) ([]byte, error)
}

// A BatchHandler is a Handler that may refuse a batch as a whole. PrepareBatch is called with its
// members before the first of them is prepared, on the goroutine that reads, and must not block. An
// error refuses them all: it is answered once, under no id.
type BatchHandler interface {
	PrepareBatch(members []Entry) error
}

// A Describer is a Handler that names a request in the log by more than its id and its method: the attributes are those of package slog.
type Describer interface {
	Describe(r *Request) []any
}

// Immediate is the pace of what takes microseconds and never waits. It runs on the reading goroutine, unwatched.
var Immediate = new(CostEstimate)

// LongRunning is the pace of requests that go on for as long as the peer listens. Each has a goroutine of its own, which is none of
// Options.MaxInFlight: the handler bounds their number, and ends them when [Conn.Draining] is closed.
var LongRunning = new(CostEstimate)

// HandlerFunc is a Handler that runs on a goroutine for each request. The result is JSON text; nil is answered as null.
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
	if len(result) == 0 {
		return append(dst, "null"...), nil
	}
	if err := jsonwire.Valid(result, 0); err != nil {
		return dst, err
	}
	return append(dst, OneLine(result)...), nil
}

// noHandler answers every request with method not found.
type noHandler struct{}

func (noHandler) Prepare(*Request) *CostEstimate { return Immediate }

func (noHandler) Handle(r *Request, dst []byte) ([]byte, error) {
	return dst, MethodNotFound(string(r.Method))
}

// MethodNotFound is the error for a method that does not exist here.
func MethodNotFound(method string) *Error {
	return &Error{Code: CodeMethodNotFound, Message: "method not found: " + clip(method)}
}

// clip keeps a peer's text short enough to be repeated in a message.
func clip[T ~string | ~[]byte](s T) string {
	if len(s) > 100 {
		return string(s[:100]) + "…"
	}
	return string(s)
}

// A Request is an incoming request or notification on its way through a Handler. It and its slices are valid until Handle returns.
type Request struct {
	Message
	Route any // what Prepare found, for Handle; must not alias the frame

	// State is for Prepare to keep what the peer had said before the request, whatever later
	// messages change until Handle runs. It must not alias the frame.
	State any

	conn *Conn
	cost *CostEstimate

	base       context.Context // has the values of its context, instead of the connection's; this, until and outlet are for Deliver
	lifetime   context.Context // that it ends with
	sender     Sender
	mayDefer   bool
	onPrepared func()
	onUnsent   func() // see OnUnsent; nil for most

	batch   *batch
	turn    uint64    // see Context
	size    int       // of the frame, as queued
	began   time.Time // of the handler, on a goroutine of its own; the leader does not spend time on it
	frame   []byte    // memory of its own that Message aliases, when it is not the reader's
	reply   []byte    // the framed answer, and memory for the next one
	readBuf []byte    // a reader's buffer that was given to this request

	ctx       atomic.Pointer[Context]
	canceled  atomic.Bool
	failure   error  // a panic in Prepare, or the end of the goroutine in Handle
	key       string // in a listing; guarded by table.mu, as are these:
	counted   bool   // is, or will be, one of table.running
	done      bool   // Handle has returned
	responded bool   // and the answer is sent
	aborted   bool   // abortRequests answers it; does not change once it is no longer listed
}

var requests = sync.Pool{New: func() any { return new(Request) }}

// Conn returns the connection that the request came in on.
func (r *Request) Conn() *Conn { return r.conn }

// Sender returns what the request was delivered with, nil on connections that read for themselves.
func (r *Request) Sender() Sender { return r.sender }

// InBatch reports whether the request came in a batch.
func (r *Request) InBatch() bool { return r.batch != nil }

// OnUnsent has f called if the result that Handle is about to return is not sent, because the peer
// has cancelled the request or the connection has ended: then something that only the result names
// can be released. A result that is about to be written counts as sent. Handle calls OnUnsent on the
// request that it was given, not on a copy; the last call counts. f is called once at most, when
// Handle has returned, and must not block.
func (r *Request) OnUnsent(f func()) { r.onUnsent = f }

// WithParams returns a request that is r but for its params, for a Handler that changes what it passes on. The connection does not know of it: InitContext
// is for r. params is JSON text, or nil; it is copied.
func (r *Request) WithParams(params []byte) (*Request, error) {
	params, err := checkParams(params)
	if err != nil {
		return nil, err
	}
	var text []byte
	if r.Kind == KindNotification {
		text = AppendNotification(nil, string(r.Method), params)
	} else {
		text = AppendRequest(nil, r.ID, string(r.Method), params)
	}
	n := &Request{State: r.State, conn: r.conn, batch: r.batch, turn: r.turn, sender: r.sender, mayDefer: r.mayDefer}
	if err := Parse(text, &n.Message, r.conn.opts.MaxDepth); err != nil {
		return nil, fmt.Errorf("params: %v", err) // its code would be for a message of the peer's
	}
	return n, nil
}

// InitContext makes ctx, which must be new, the context of the request. trace is what calls and notifications made with it carry on; see [TraceOf].
func (r *Request) InitContext(ctx *Context, trace Trace) {
	ctx.conn, ctx.base, ctx.turn = r.conn, r.conn.base, r.turn
	if trace != (Trace{}) {
		t := trace // or each would be moved to the heap
		ctx.trace = &t
	}
	if r.base != nil {
		ctx.base, ctx.lifetime = r.base, r.lifetime
	}
	if r.sender != nil {
		ctx.hasSender, ctx.sender = true, r.sender
	}
	if d := r.conn.opts.RequestTimeout; d > 0 {
		ctx.mu.Lock() // against expire
		ctx.timeout = &timeout{deadline: time.Now().Add(d)}
		ctx.timeout.timer = time.AfterFunc(d, ctx.expire)
		ctx.mu.Unlock()
	}
	r.ctx.Store(ctx)
	if r.canceled.Load() { // the cancellation may have come before there was a context to end
		ctx.end()
	}
}

// cancel ends the request's context and sees to it that nothing more is sent for it.
func (r *Request) cancel() {
	r.canceled.Store(true)
	if ctx := r.ctx.Load(); ctx != nil {
		ctx.end()
	}
}

// clear makes the request ready for another message. It keeps the memory.
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
	}
}

// respond runs the handler and leaves the framed answer in r.reply, which stays empty for a notification.
func (r *Request) respond() {
	c := r.conn
	dst := r.reply[:0]
	if r.batch == nil {
		dst = c.src.begin(dst)
	}
	start := len(dst)
	dst = appendResultHead(dst, r.ID)
	head := len(dst)
	out, err := r.invoke(dst)
	if ctx := r.ctx.Load(); ctx != nil {
		ctx.end()
	}
	if r.Kind != KindRequest {
		if err != nil {
			c.logError(r, err)
		}
		r.reply = dst[:0]
		return
	}
	switch {
	case err != nil:
		e := ErrorOf(err)
		if e.Code == CodeInternalError && !r.canceled.Load() {
			c.logError(r, err)
		}
		dst = AppendError(dst[:start], r.ID, e, true)
	case len(out) <= head: // nothing was appended, or nil returned
		dst = append(dst, "null}"...)
	default:
		dst = append(out, '}')
	}
	r.reply = dst
	if r.batch != nil {
		return // it becomes part of another message
	}
	if c.opts.Trace != nil {
		c.opts.Trace(Outgoing, dst[start:])
	}
	r.reply = c.src.finish(dst, 0)
}

// invoke calls the handler and turns a panic into an error.
func (r *Request) invoke(dst []byte) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	if r.failure != nil {
		return nil, r.failure
	}
	return r.conn.handler.Handle(r, dst)
}

// errExited is what becomes of a request whose handler ended its goroutine with runtime.Goexit, as testing's FailNow does.
var errExited = errors.New("handler ended its goroutine")

// handlerExited answers a request whose handler took the goroutine with it. It runs in the goroutine's last deferred call.
func (c *Conn) handlerExited(r *Request) {
	r.failure = errExited
	r.respond()
	if next := c.complete(r); next != nil {
		c.wg.Go(func() { c.runRequests(next) })
	}
}

// prepare asks the handler how to run the request. A panic there fails the request like one in Handle.
func (r *Request) prepare() (cost *CostEstimate) {
	defer func() {
		if v := recover(); v != nil {
			r.failure = &PanicError{Value: v, Stack: debug.Stack()}
			cost = Immediate
		}
	}()
	return r.conn.handler.Prepare(r)
}

// A CostEstimate learns how long one kind of request takes, a tool for example, so that quick ones are answered on the goroutine that reads (a hop to
// another costs several times what they do) and slow ones never hold it up. The zero CostEstimate knows nothing: its first requests run on goroutines
// of their own. It may be used by many goroutines at once.
type CostEstimate struct {
	mean      atomic.Int64  // nanoseconds, exponentially weighted
	probation atomic.Int64  // observations still wanted before the reader runs it
	overruns  atomic.Int32  // how often a watchdog had to take over from it
	runs      atomic.Uint32 // on the reader, to take the time of some of them
}

const (
	maxInlineCost = 30 * time.Microsecond // above this, a goroutine costs less than the wait of those behind
	trialRuns     = 4
	bytesPerNano  = 2  // what is decoded and encoded, at the least
	sampleMask    = 15 // the reader takes the time of one run in 16
)

// Seed makes a CostEstimate that is not in use yet take for granted that a run takes d, until it learns better.
func (e *CostEstimate) Seed(d time.Duration) { e.mean.Store(max(int64(d), 1)) }

// fast reports whether the reader may run it.
func (e *CostEstimate) fast() bool {
	mean := e.mean.Load()
	return mean > 0 && mean <= int64(maxInlineCost) && e.probation.Load() <= 0
}

// sample reports whether this run on the reader should be timed.
func (e *CostEstimate) sample() bool { return e.runs.Add(1)&sampleMask == 0 }

// observe takes note of a run of d for a message of size bytes. The part of it that any handler of so large a message takes does not count: the
// reader spends as long again on reading it.
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

// recordOverrun is called when the reader was stuck in it. Once may be the machine's fault; after that it must prove itself for longer each time.
func (e *CostEstimate) recordOverrun() {
	n := e.overruns.Add(1)
	if n > 1 {
		e.probation.Store(16 << min(n, 12))
	}
}

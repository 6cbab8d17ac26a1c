package conn

import (
	"context"
	"log/slog"
	"time"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
)

// A Handler answers the peer's requests and handles its notifications, which [jsonrpc.Message.Kind]
// tells apart. c is the connection that m came in on.
//
// The result is JSON text; nil is answered as null. For a notification, the result is ignored and
// the error is logged. ctx ends when the peer cancels the request, when the request times out, when
// the connection ends, and when the handler has returned. A panic fails only this request.
type Handler func(ctx context.Context, c *Conn, m *jsonrpc.Message) (result []byte, err error)

// Options are the options of New. Nil means the zero value, which is ready to use.
type Options struct {
	// CancelMethod is the method of the notification that cancels a request, in both directions.
	// Its params are an object that has the id of the request as member CancelMember. Empty means
	// "$/cancelRequest", as in the Language Server Protocol.
	CancelMethod string
	// CancelMember is the name of that member. Empty means "id".
	CancelMember string
	// NoBatches answers an array with one "invalid request" error, for protocols without batches.
	NoBatches bool

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
	// RequestTimeout is the timeout of a handler's context. Zero means none.
	RequestTimeout time.Duration
	// CallTimeout is the timeout of calls whose context has no deadline. Zero means none.
	CallTimeout time.Duration

	// Goroutines runs each request on its own goroutine. Otherwise the goroutine that reads runs
	// the requests of methods that were quick until now, which is several times faster, and passes
	// the reading on if one of them takes longer.
	Goroutines bool

	// Logger receives the connection's log. Nil discards it.
	Logger *slog.Logger
	// Trace sees each message. It must not keep the slice. Many goroutines may call it at once. It
	// may be nil.
	Trace func(dir jsonrpc.Direction, message []byte)
}

// A Conn is a connection on which both sides send requests, responses and notifications, with many
// requests in flight in both directions. Make one with [New] and start it with [Conn.Run]. Many
// goroutines may call its methods at once.
type Conn struct {
	rpc    *rpc.Conn
	handle Handler
	// costs are the estimates of the methods that the peer has used, at most maxMethods. Only the
	// reading goroutine uses the map.
	costs map[string]*rpc.CostEstimate
}

// maxMethods limits the methods whose cost a connection knows.
const maxMethods = 256

// New returns a connection over f. Nil h answers all requests with "method not found". The
// connection closes f when it ends. It reads nothing before [Conn.Run].
func New(f jsonrpc.Framer, h Handler, opts *Options) *Conn {
	if opts == nil {
		opts = new(Options)
	}
	c := &Conn{handle: h, costs: make(map[string]*rpc.CostEstimate)}
	o := &rpc.Options{
		Cancellation:     rpc.CancelRequest{Method: opts.CancelMethod, Member: opts.CancelMember},
		Policy:           rpc.Policy{NoBatches: opts.NoBatches},
		MaxDepth:         opts.MaxDepth,
		MaxInFlight:      opts.MaxInFlight,
		MaxInFlightBytes: opts.MaxInFlightBytes,
		MaxQueueBytes:    opts.MaxQueueBytes,
		MaxPendingBytes:  opts.MaxPendingBytes,
		DrainTimeout:     opts.DrainTimeout,
		RequestTimeout:   opts.RequestTimeout,
		CallTimeout:      opts.CallTimeout,
		Goroutines:       opts.Goroutines,
		Logger:           opts.Logger,
		Trace:            opts.Trace,
	}
	if h != nil {
		o.Handler = (*handler)(c)
	}
	c.rpc = rpc.NewConn(f, o)
	return c
}

// Run reads and answers until the input ends, ctx ends or Close is called. At the end of input, and
// when ctx ends, Run finishes and answers accepted requests until the drain timeout. Then it
// cancels the others, answers them with an error, and closes everything. Pending calls of this side
// fail at once, since no response can arrive.
//
// Run returns nil at the end of input and after Close, the context's cause when ctx ended, and
// otherwise the read or write error. If requests were cut off, the error is a
// *[jsonrpc.DrainError]. Run must be called once.
func (c *Conn) Run(ctx context.Context) error { return c.rpc.Run(ctx) }

// Call sends a request and waits for its response. params is JSON text, an object or an array, or
// nil. The result is JSON text and belongs to the caller.
//
// The error is a *[jsonrpc.Error] if the peer answered with one. It wraps [jsonrpc.ErrClosed] and
// the cause if the connection ended first. When ctx ends, Call sends a cancellation and returns the
// context's error; a late response is dropped.
func (c *Conn) Call(ctx context.Context, method string, params []byte) (result []byte, err error) {
	return c.rpc.Call(ctx, method, params)
}

// Notify sends a notification. params is JSON text, an object or an array, or nil.
//
// With the context of a [Handler]'s request, the peer gets the notification before the response,
// and Notify fails with [jsonrpc.ErrRequestEnded] once the request has been answered or canceled.
// With another context that can end, Notify waits for a slow peer until then, and another goroutine
// writes the message: see [Conn.Flush].
func (c *Conn) Notify(ctx context.Context, method string, params []byte) error {
	if r := rpc.RequestContext(ctx); r != nil && rpc.ConnOf(r) == c.rpc {
		return r.Notify(method, params)
	}
	return c.rpc.Notify(ctx, method, params)
}

// Flush waits until all queued messages are written, or ctx ends.
func (c *Conn) Flush(ctx context.Context) { c.rpc.Flush(ctx) }

// Close ends the connection at once. It cancels incoming requests and pending calls, which fail
// with [jsonrpc.ErrClosed], closes the framer, and waits for Run, which waits for handlers until
// the drain timeout. It may be called more than once. A handler that calls Close waits for itself
// until the drain timeout.
func (c *Conn) Close() error { return c.rpc.Close() }

// Done returns a channel that is closed when Run has returned, or when the connection was closed
// before it ran.
func (c *Conn) Done() <-chan struct{} { return c.rpc.Done() }

// Err returns the result of Run once Done is closed, and nil before.
func (c *Conn) Err() error { return c.rpc.Err() }

// A handler is a Conn as the Handler of its engine.
type handler Conn

// Prepare implements [rpc.Handler].
func (h *handler) Prepare(r *rpc.Request) *rpc.CostEstimate {
	if r.Kind != jsonrpc.KindRequest {
		return nil
	}
	e := h.costs[string(r.Method)]
	if e == nil {
		if len(h.costs) == maxMethods {
			clear(h.costs) // a peer that invents methods only makes the others be measured again
		}
		e = new(rpc.CostEstimate)
		h.costs[string(r.Method)] = e
	}
	return e
}

// Handle implements [rpc.Handler].
func (h *handler) Handle(r *rpc.Request, dst []byte) ([]byte, error) {
	ctx := new(rpc.Context)
	r.InitContext(ctx, rpc.Trace{})
	result, err := h.handle(ctx, (*Conn)(h), &r.Message)
	if err != nil {
		return dst, err
	}
	return rpc.AppendResult(dst, result)
}

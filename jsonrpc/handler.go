package jsonrpc

import (
	"context"

	"mcpwire/internal/jsonwire"
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

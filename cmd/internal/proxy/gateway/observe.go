package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"mcpwire/internal/json/jsonedit"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An Operation is a request of a client, or one of the requests to upstreams that it becomes.
type Operation struct {
	// Upstream is the name of the upstream. It is "" for the request of a client.
	Upstream string
	Method   string
	// ID is that of a client's request, or nil.
	ID jsonrpc.ID
	// Revision is that of a client's request. It is RevisionNone before the handshake and for
	// upstreams, because their bridges translate.
	Revision mcp.Revision
	// Params is the text of the params object, or nil.
	Params json.RawMessage
}

// An ObserveFunc observes an operation. It calls next once, in the same goroutine, and gets the
// result or the error of the operation, which it cannot change. It may call next with a context
// that has more values, and for an upstream with other params, such as with a traceparent in _meta.
// It may be called by many goroutines at once.
type ObserveFunc func(ctx context.Context, op *Operation, next func(ctx context.Context, params json.RawMessage) (json.RawMessage, error))

var errNotObserved = errors.New("gateway: Options.Observe has not called next")

// observeClient observes the request m of a client. next appends the response to dst.
func (observe ObserveFunc) observeClient(ctx context.Context, revision mcp.Revision, m *jsonrpc.Message, dst []byte, next func(context.Context) ([]byte, error)) ([]byte, error) {
	response, err := dst, errNotObserved
	op := Operation{Method: string(m.Method), ID: m.ID, Revision: revision, Params: m.Params}
	observe(ctx, &op, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		response, err = next(ctx)
		return resultOf(response[min(len(dst), len(response)):], err)
	})
	return response, err
}

// observeUpstream observes the request frame to the upstream of s, which send sends. send appends
// the response to n bytes.
func (observe ObserveFunc) observeUpstream(ctx context.Context, s *scope, method string, frame []byte, n int, send forwardFunc) ([]byte, error) {
	at := jsonedit.Locate(frame, "params")
	op := Operation{Upstream: s.be.u.name, Method: method}
	if at.Found() {
		op.Params = at.Of(frame)
	}
	var response []byte
	err := errNotObserved
	observe(ctx, &op, func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
		if at.Found() && string(params) != string(op.Params) {
			frame = jsonedit.Splice(frame, at, params)
		}
		response, err = send(ctx, s, frame)
		return resultOf(response[min(n, len(response)):], err)
	})
	return response, err
}

// resultOf returns the result in a response, or its error or err.
func resultOf(response []byte, err error) (json.RawMessage, error) {
	if err != nil || len(response) == 0 {
		return nil, err
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(response, &m, 0); err != nil {
		return nil, err
	}
	if m.Kind == jsonrpc.KindError {
		return nil, m.Err()
	}
	return m.Result, nil
}

package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Message is a request or a notification that passes through the middleware. Its slices are valid
// until its [HandlerFunc] returns.
type Message struct {
	Direction jsonrpc.Direction
	// Notification is set for a message without an answer. Its result is ignored.
	Notification bool
	// Method is the method. Changes have no effect.
	Method string
	// ID is the id of an incoming request. It is nil for all other messages.
	ID jsonrpc.ID

	// Params is the text of the params object, or nil. A middleware may replace it but must not
	// write into it. In an outgoing message, _meta holds only the caller's members; the Client adds
	// those of the revision and the progress token afterwards.
	Params json.RawMessage

	Client *Client
	// Revision is the revision in use, or RevisionNone during the negotiation.
	Revision mcp.Revision

	// deliver handles the message at the end of the chain.
	deliver HandlerFunc
}

// A HandlerFunc handles a message and returns its result, the text of an object, or nil for a
// notification. The caller must not write into it. An error that wraps a *[jsonrpc.Error] is the
// peer's answer to an outgoing request, or the answer to an incoming one.
type HandlerFunc func(ctx context.Context, m *Message) (result json.RawMessage, err error)

// A Middleware returns a HandlerFunc that runs before, after or instead of next: see
// [Options.Middleware]. It may change the context, the params and the result, return a result
// without calling next, and call next several times in sequence. If it returns before next does,
// the Client waits for next, so the context of next should end. It may be called concurrently.
type Middleware func(next HandlerFunc) HandlerFunc

// newChain returns the chain of the middleware, or nil without any.
func newChain(middleware []Middleware) HandlerFunc {
	if len(middleware) == 0 {
		return nil
	}
	chain := HandlerFunc(func(ctx context.Context, m *Message) (json.RawMessage, error) {
		if m.deliver == nil {
			return nil, errUnknownMessage
		}
		return m.deliver(ctx, m)
	})
	for i := len(middleware) - 1; i >= 0; i-- {
		chain = middleware[i](chain)
	}
	return chain
}

var (
	errUnknownMessage  = errors.New("a middleware passed a new Message to next; it must pass the one it got, or a copy")
	errNextAfterReturn = errors.New("a middleware called next after returning")
	errNotObject       = errors.New("it must be a JSON object")
)

// runChain sends m through the chain. The result is an object, or nil for a notification. A
// middleware may return before the end of the chain does. runChain waits for that, because the
// memory of incoming messages is reused.
func (c *Client) runChain(ctx context.Context, m *Message) ([]byte, error) {
	m.Client = c
	if neg := c.negotiated.Load(); neg != nil {
		m.Revision = neg.Revision
	}
	var delivered json.RawMessage
	deliver, params := m.deliver, m.Params
	slot, returned := make(chan struct{}, 1), make(chan struct{})
	end := sync.OnceFunc(func() {
		slot <- struct{}{}
		close(returned)
	})
	defer end() // also if the middleware panics
	m.deliver = func(ctx context.Context, m *Message) (result json.RawMessage, err error) {
		select {
		case slot <- struct{}{}:
			defer func() { <-slot }()
		case <-returned:
			return nil, fmt.Errorf("%s: %w", m.Method, errNextAfterReturn)
		}
		if err := checkObject(m.Params); m.Params != nil && !sameMemory(m.Params, params) && err != nil {
			return nil, fmt.Errorf("%s: params of a middleware: %w", m.Method, err)
		}
		delivered, err = deliver(ctx, m)
		return delivered, err
	}
	result, err := c.chain(ctx, m)
	end()
	if err != nil || m.Notification || sameMemory(result, delivered) {
		return result, err
	}
	if err := checkObject(result); err != nil {
		return nil, fmt.Errorf("%s: result of a middleware: %w", m.Method, err)
	}
	return jsonwire.AppendCompact(nil, result), nil
}

// sameMemory reports whether a and b share the same memory.
func sameMemory(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func checkObject(text []byte) error {
	if err := jsonwire.Valid(text, 0); err != nil {
		return err
	}
	if bytes.TrimSpace(text)[0] != '{' {
		return errNotObject
	}
	return nil
}

// roundTripChain sends a request through the chain.
func (c *Client) roundTripChain(ctx context.Context, r *request) ([]byte, error) {
	return c.runChain(ctx, &Message{
		Direction: jsonrpc.Outgoing, Method: r.method, Params: joinMeta(r.params, r.opts.meta),
		deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) {
			q := *r
			var meta []byte
			q.params, meta = splitMeta(m.Params)
			q.opts.meta = bytes.Clone(objectBody(meta))
			result, err := c.roundTripDirect(ctx, &q)
			r.inputRounds = q.inputRounds
			return result, err
		},
	})
}

// joinMeta is the inverse of splitMeta. meta has the members of _meta.
func joinMeta(params, meta []byte) []byte {
	if len(meta) == 0 {
		return params
	}
	out := append(append([]byte(`{"_meta":{`), meta...), '}')
	if members := objectBody(params); len(members) > 0 {
		out = append(append(out, ','), members...)
	}
	return append(out, '}')
}

// usesChain reports whether an incoming message goes through the chain. Unknown notifications do
// only if OnNotification is set.
func (c *Client) usesChain(r *rpc.Request) bool {
	if c.chain == nil {
		return false
	}
	switch string(r.Method) {
	case mcp.MethodPing, mcp.MethodElicit, mcp.MethodCreateMessage, mcp.MethodRootsList:
		return r.Kind == jsonrpc.KindRequest
	case mcp.NotificationProgress, mcp.NotificationMessage, mcp.NotificationCancelled, mcp.NotificationToolsChanged, mcp.NotificationPromptsChanged,
		mcp.NotificationResourcesChanged, mcp.NotificationResourceUpdated, mcp.NotificationAcknowledged, mcp.NotificationElicitationComplete,
		mcp.NotificationTaskStatus, mcp.NotificationTasks:
		return r.Kind == jsonrpc.KindNotification
	}
	return c.opts.OnNotification != nil && r.Kind == jsonrpc.KindNotification
}

// runIncomingChain sends an incoming message through the chain to deliver.
func (c *Client) runIncomingChain(ctx context.Context, r *rpc.Request, deliver func(ctx context.Context, params []byte) ([]byte, error)) ([]byte, error) {
	return c.runChain(ctx, &Message{
		Notification: r.Kind == jsonrpc.KindNotification, Method: string(r.Method), ID: r.ID, Params: r.Params,
		deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) { return deliver(ctx, m.Params) },
	})
}

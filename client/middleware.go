package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Message is a request or a notification on its way through the middleware. Its slices are valid until the [HandlerFunc] it was given to returns.
type Message struct {
	Direction    jsonrpc.Direction
	Notification bool       // nothing answers it, and no result matters
	Method       string     // to change it has no effect
	ID           jsonrpc.ID // of an incoming request; nil for all else

	// Params is the text of the params object, or nil if there are none. A middleware may put others in its place, but must not write into the slice. What
	// goes out has no more _meta yet than its caller gave it: what the revision wants there, and a token for progress, are added.
	Params json.RawMessage

	Client   *Client
	Revision mcp.Revision // that is spoken; RevisionNone until that is agreed on

	deliver HandlerFunc // what the end of the chain does with it
}

// A HandlerFunc takes a message on and returns what became of it. result is the text of the whole result object; for a notification it is nil. It must
// not be written to. An error that wraps a *[jsonrpc.Error] is what the peer answered, or is answered with.
type HandlerFunc func(ctx context.Context, m *Message) (result json.RawMessage, err error)

// A Middleware returns a HandlerFunc that does something before, after or instead of next: see [Options.Middleware]. It may change the context, the
// params and the result, return a result of its own without calling next, and call next more than once, but not at the same time. One that gives up on next
// and returns is waited for: the context that next was given should end. It is called by many goroutines at once.
type Middleware func(next HandlerFunc) HandlerFunc

// newChain makes the chain of the middleware; nil if there is none.
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
	errUnknownMessage  = errors.New("a middleware passed on a Message that it made itself; it must pass on the one it was given, or a copy")
	errNextAfterReturn = errors.New("a middleware called next after it had returned")
	errNotObject       = errors.New("it must be a JSON object")
)

// runChain sends m by way of the chain. The result is an object, or nil if m is a notification. It returns when what is at the end of the chain has: a
// middleware may give up on next, but the memory of what came in is used again.
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

// sameMemory reports whether a and b are the same piece of memory.
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

// roundTripChain sends a request by way of the chain.
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

// joinMeta is the reverse of splitMeta; meta are the members of _meta.
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

// usesChain reports whether a server's message goes through the chain: it is one that the protocol has.
func (c *Client) usesChain(r *jsonrpc.Request) bool {
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

// runIncomingChain takes what the server sends by way of the chain, at whose end deliver gets it.
func (c *Client) runIncomingChain(ctx context.Context, r *jsonrpc.Request, deliver func(ctx context.Context, params []byte) ([]byte, error)) ([]byte, error) {
	return c.runChain(ctx, &Message{
		Notification: r.Kind == jsonrpc.KindNotification, Method: string(r.Method), ID: r.ID, Params: r.Params,
		deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) { return deliver(ctx, m.Params) },
	})
}

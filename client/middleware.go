package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
)

var errNotObject = errors.New("it must be a JSON object")

// runChain sends m through the chain, if there is one, and then to end. The result is an object, or
// nil for a notification.
func (c *Client) runChain(ctx context.Context, m middleware.Message, end middleware.Handler) ([]byte, error) {
	if c.chain == nil {
		return end(ctx, &m)
	}
	m.ClientSide = true
	if neg := c.conns.negotiated.Load(); neg != nil {
		m.Revision = neg.Revision
	}
	if FromContext(ctx) != c {
		ctx = context.WithValue(ctx, clientKey{}, c)
	}
	var delivered json.RawMessage
	method, params := m.Method, m.Params
	result, err := c.chain.Run(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		if err := checkObject(m.Params); m.Params != nil && !sameMemory(m.Params, params) && err != nil {
			return nil, fmt.Errorf("%s: params of a middleware: %w", method, err)
		}
		result, err := end(ctx, m)
		delivered = result
		return result, err
	})
	if err != nil || m.Notification || sameMemory(result, delivered) {
		return result, err
	}
	if err := checkObject(result); err != nil {
		return nil, fmt.Errorf("%s: result of a middleware: %w", method, err)
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
	m := middleware.Message{Direction: jsonrpc.Outgoing, Method: r.method, Params: joinMeta(r.params, r.opts.meta)}
	return c.runChain(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		q := *r
		var meta []byte
		q.params, meta = splitMeta(m.Params)
		q.opts.meta = bytes.Clone(objectBody(meta))
		result, err := c.roundTripDirect(ctx, &q)
		r.inputRounds = q.inputRounds
		return result, err
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

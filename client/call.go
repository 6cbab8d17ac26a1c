package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Call sends a request of any method. params is nil, a [json.RawMessage], something with an AppendJSON method as package mcp's types have, or what
// encoding/json can marshal to an object. result is nil, a *json.RawMessage, or what encoding/json can unmarshal into. Unless [WithRetry] says so, it is not
// repeated when the connection is lost.
//
// The error wraps a *[jsonrpc.Error] if, and only if, the server answered one; a *[NotConnectedError], a *[TimeoutError], a *[ProtocolError],
// [jsonrpc.ErrClosed] or the context's error otherwise.
func (c *Client) Call(ctx context.Context, method string, params, result any, opts ...CallOption) error {
	text, err := encodeParams(params)
	if err != nil {
		return fmt.Errorf("call %s: params: %w", method, err)
	}
	r := &request{method: method, opts: newCallOptions(opts)}
	var meta []byte
	if r.params, meta = splitMeta(text); meta != nil {
		r.opts.addMeta(meta)
	}
	text, err = c.roundTrip(ctx, r)
	if err != nil {
		return err
	}
	return decodeCallResult(method, text, result)
}

// Notify sends a notification of any method. params is as for [Client.Call]. Without a connection it waits for one, as calls do: see
// [ReconnectPolicy.MaxWait].
func (c *Client) Notify(ctx context.Context, method string, params any) error {
	text, err := encodeParams(params)
	if err != nil {
		return fmt.Errorf("notify %s: params: %w", method, err)
	}
	if c.chain != nil {
		_, err := c.runChain(ctx, &Message{
			Direction: jsonrpc.Outgoing, Notification: true, Method: method, Params: text,
			deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) {
				return nil, c.notifyDirect(ctx, method, m.Params)
			},
		})
		return err
	}
	return c.notifyDirect(ctx, method, text)
}

// notifyDirect is Notify without the middleware.
func (c *Client) notifyDirect(ctx context.Context, method string, text []byte) error {
	for {
		conn, err := c.waitConnection(ctx, method, nil)
		if err != nil {
			return fmt.Errorf("notify %s: %w", method, err)
		}
		if err := conn.rpc.Notify(ctx, method, conn.negotiated.Load().notificationParams(text)); !isConnectionLost(err) {
			return err
		}
		c.dropConnection(conn)
	}
}

// notificationParams returns the params of a notification with what the terms want in its _meta.
func (n *negotiated) notificationParams(text []byte) []byte {
	rest, meta := splitMeta(text)
	if !n.Modern || bytes.Contains(meta, []byte(mcp.MetaProtocolVersion)) {
		return text
	}
	dst := append([]byte{'{'}, n.meta...)
	if members := objectBody(meta); len(members) > 0 {
		dst = append(append(dst, ','), members...)
	}
	dst = append(dst, '}')
	if members := objectBody(rest); len(members) > 0 {
		dst = append(append(dst, ','), members...)
	}
	return append(dst, '}')
}

// encodeParams returns the JSON text of params, which is an object, or nil.
func encodeParams(params any) ([]byte, error) {
	text, err := encodeValue(params)
	if err != nil || text == nil {
		return nil, err
	}
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
		return nil, errNotObject
	}
	return text, nil
}

// encodeValue returns the JSON text of any value; nil of nil.
func encodeValue(v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		if v == nil {
			return nil, nil
		}
		return v, jsonwire.Valid(v, 0)
	case interface{ AppendJSON([]byte) []byte }:
		return v.AppendJSON(nil), nil
	}
	return json.Marshal(v)
}

// decodeCallResult reads a result into what the caller gave.
func decodeCallResult(method string, text []byte, result any) error {
	var err error
	switch v := result.(type) {
	case nil:
	case *json.RawMessage:
		*v = text
	case json.Unmarshaler:
		err = v.UnmarshalJSON(text)
	default:
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return &ProtocolError{Method: method, Reason: "the result is not as expected", Err: err}
	}
	return nil
}

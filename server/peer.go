package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/middleware"
)

// A peer is the client of a session. Requests and notifications to it pass through the middleware.
type peer struct {
	conn *rpc.Conn
	// chain runs all middleware. It is nil without middleware.
	chain *middleware.Chain
	// values supplies the values of contexts that belong to no request. See sessionContext.
	values context.Context
	log    *slog.Logger
}

// notify sends a notification that belongs to no request.
func (p *peer) notify(method string, params []byte) {
	p.logDropped(method, p.sendNotification(p.context(), nil, method, params))
}

// sendNotification sends a notification that no response waits for. c is its Call or nil. It blocks
// while the peer does not read, so that later changes are merged.
func (p *peer) sendNotification(ctx context.Context, c *Call, method string, params []byte) error {
	if p.chain == nil {
		return p.conn.Notify(context.WithoutCancel(ctx), method, params)
	}
	return p.outboundNotification(ctx, c, method, params, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		return nil, p.conn.Notify(context.WithoutCancel(ctx), method, m.Params)
	})
}

// call sends a request to a legacy client. c is the Call of the handler that asks.
func (p *peer) call(ctx context.Context, c *Call, method string, params []byte) ([]byte, error) {
	if p.chain == nil {
		return p.conn.Call(ctx, method, params)
	}
	var reply json.RawMessage
	m := middleware.Message{Method: method, Params: params}
	result, err := p.outbound(ctx, c, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		var err error
		reply, err = p.conn.Call(ctx, method, m.Params)
		return reply, err
	})
	if err != nil || sameSlice(result, reply) {
		return result, err
	}
	if err := checkObject(result); err != nil {
		return nil, fmt.Errorf("%s: result of a middleware: %w", method, err)
	}
	return result, nil
}

// outboundNotification sends a notification through the chain.
func (p *peer) outboundNotification(ctx context.Context, c *Call, method string, params []byte, send middleware.Handler) error {
	_, err := p.outbound(ctx, c, middleware.Message{Method: method, Notification: true, Params: params}, send)
	return err
}

// outbound sends a message through the chain. c is the Call that it belongs to or nil. outbound
// converts a panic to an error, since the goroutine may belong to no request.
func (p *peer) outbound(ctx context.Context, c *Call, m middleware.Message, send middleware.Handler) (result json.RawMessage, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &jsonrpc.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	m.Direction = jsonrpc.Outgoing
	if c != nil {
		m.Revision = c.Revision()
	}
	if CallOf(ctx) != c {
		ctx = context.WithValue(ctx, callKey{}, c)
	}
	return p.chain.Run(ctx, m, send)
}

// logDropped logs that a notification was not sent, unless err is nil.
func (p *peer) logDropped(method string, err error) {
	if err != nil {
		p.log.Debug("notification not sent", "method", method, "error", err)
	}
}

// context returns the context of messages that belong to no request.
func (p *peer) context() context.Context {
	return &sessionContext{context.WithoutCancel(p.values), p.conn}
}

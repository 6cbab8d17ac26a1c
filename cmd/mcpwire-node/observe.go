package main

import (
	"context"
	"encoding/json"

	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/jsonrpc"
	"mcpwire/mcpotel"
	"mcpwire/middleware"
)

// observeGateway returns the function that measures the operations of a gateway.
func observeGateway(t *mcpotel.Telemetry) gateway.ObserveFunc {
	chain := middleware.NewChain(t.Middleware)
	return func(ctx context.Context, op *gateway.Operation, next func(context.Context, json.RawMessage) (json.RawMessage, error)) {
		m := middleware.Message{Direction: jsonrpc.Incoming, Method: op.Method, ID: op.ID, Revision: op.Revision, Params: op.Params}
		if op.Upstream != "" {
			m.ClientSide, m.Direction = true, jsonrpc.Outgoing
		}
		// The operation keeps its result.
		chain.Run(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) { return next(ctx, m.Params) })
	}
}

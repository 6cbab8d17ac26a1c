package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/middleware"
)

// limit gives each tool call of a client or a server a timeout of one minute.
func limit(next middleware.Handler) middleware.Handler {
	return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		if m.Method != "tools/call" {
			return next(ctx, m)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return next(ctx, m)
	}
}

// A test of middleware runs a message through its own Chain.
func ExampleChain_Run() {
	end := func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		_, limited := ctx.Deadline()
		fmt.Println(m.Method, limited)
		return json.RawMessage("{}"), nil
	}
	chain := middleware.NewChain(limit)
	for _, method := range []string{"tools/call", "ping"} {
		m := middleware.Message{Direction: jsonrpc.Incoming, Method: method}
		if _, err := chain.Run(context.Background(), m, end); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// tools/call true
	// ping false
}

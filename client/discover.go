package client

import (
	"context"
	"errors"
	"fmt"

	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// Ping asks the server for a sign of life: by ping if it is a legacy one, by server/discover if it is a modern one.
func (c *Client) Ping(ctx context.Context, opts ...CallOption) error {
	r := &request{method: mcp.MethodPing, repeatable: true, opts: newCallOptions(opts)}
	if !era.Of(c.Revision()).HasMethod([]byte(mcp.MethodPing)) {
		r.method = mcp.MethodDiscover
	}
	_, err := c.roundTrip(ctx, r)
	return err
}

// Discover asks a modern server what it is and what it can do. Legacy servers say so in the handshake, see [Client.ServerInfo], [Client.ServerCapabilities]
// and [Client.Instructions]; for them the error wraps [errors.ErrUnsupported].
func (c *Client) Discover(ctx context.Context, opts ...CallOption) (*mcp.DiscoverResult, error) {
	if !c.Modern() {
		return nil, fmt.Errorf("discover: revision %v: %w", c.Revision(), errors.ErrUnsupported)
	}
	return getCacheable[mcp.DiscoverResult](ctx, c, mcp.MethodDiscover, nil, opts)
}

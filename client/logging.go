package client

import (
	"context"
	"errors"
	"fmt"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// SetLevel tells a legacy server from which level on to send log messages; they go to [Options.OnNotification]. Modern servers know no such state: they send
// the messages of one request, at the level that the request itself asks for, so give the calls [WithLog] instead. For them the error
// wraps [errors.ErrUnsupported]. When the connection is lost, the server of the next one is told again.
func (c *Client) SetLevel(ctx context.Context, level mcp.LoggingLevel, opts ...CallOption) error {
	if c.Modern() {
		return fmt.Errorf("set level: revision %v has levels for each request: use WithLog: %w", c.Revision(), errors.ErrUnsupported)
	}
	name, err := level.MarshalText()
	if err != nil {
		return fmt.Errorf("set level: %w", err)
	}
	c.trackChanges()
	params := append(jsonwire.AppendQuote([]byte(`{"level":`), name), '}')
	_, err = c.roundTrip(ctx, &request{method: mcp.MethodSetLevel, params: params, repeatable: true, opts: newCallOptions(opts)})
	if err == nil {
		c.logLevel.Store(uint32(level))
	}
	return err
}

// restoreLogLevel tells the server of a new connection from which level on to send log messages, if anybody has wanted to.
func (c *Client) restoreLogLevel() {
	level := mcp.LoggingLevel(c.logLevel.Load())
	if level == mcp.LevelNone || c.Modern() {
		return
	}
	c.goroutines.start(func() {
		if err := c.SetLevel(context.Background(), level); err != nil {
			c.log.Info("level of log messages not set again", "error", err)
		}
	})
}

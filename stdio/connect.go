package stdio

import (
	"context"

	"mcpwire/jsonrpc"
)

// Connect starts the child and returns a framer over its standard input and output, which is what package client wants of a transport. Each call starts a
// fresh process. Closing the framer closes the process, see [Process.Close]. When the process ends by itself, reading the framer returns the *ExitError.
func (c *Cmd) Connect(ctx context.Context) (jsonrpc.Framer, error) {
	p, err := c.Start(ctx)
	if err != nil {
		return nil, err
	}
	framing := c.Framing
	if framing == jsonrpc.FramingAuto {
		framing = jsonrpc.FramingLine // a client speaks first, so there is nothing to find it out from
	}
	return jsonrpc.NewFramer(p, &jsonrpc.FramerOptions{Framing: framing, MaxFrame: c.MaxFrame}), nil
}

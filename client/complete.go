package client

import (
	"context"

	"mcpwire/mcp"
)

// Complete returns what the value of an argument could go on as, at most 100 values
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion). ref says whose argument it is: an [mcp.PromptReference] or an
// [mcp.ResourceTemplateReference]. known are the values of other arguments that the user has settled on, which servers take into account since
// 2025-06-18; it may be nil.
func (c *Client) Complete(ctx context.Context, ref mcp.Reference, argument mcp.CompleteArgument, known map[string]string, opts ...CallOption) (*mcp.Completion, error) {
	p := mcp.CompleteRequestParams{Ref: ref, Argument: argument}
	if len(known) > 0 {
		p.Context = &mcp.CompleteContext{Arguments: known}
	}
	r := &request{method: mcp.MethodComplete, params: p.AppendRevision(nil, c.Revision()), repeatable: true, opts: newCallOptions(opts)}
	result := new(mcp.CompleteResult)
	if err := c.get(ctx, r, result); err != nil {
		return nil, err
	}
	return &result.Completion, nil
}

package client

import (
	"context"
	"iter"
	"maps"
	"slices"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// ListPrompts returns one page of the server's prompts: the first if cursor is nil, else the one behind the page whose NextCursor it is. [Client.Prompts]
// walks all pages.
func (c *Client) ListPrompts(ctx context.Context, cursor *string, opts ...CallOption) (*mcp.ListPromptsResult, error) {
	return getCacheable[mcp.ListPromptsResult](ctx, c, mcp.MethodPromptsList, cursorParams(cursor), opts)
}

// Prompts yields the server's prompts, page by page. An error ends the loop; see [Client.Tools].
func (c *Client) Prompts(ctx context.Context, opts ...CallOption) iter.Seq2[mcp.Prompt, error] {
	return listAll(ctx, c, mcp.MethodPromptsList,
		func(ctx context.Context, cursor *string) ([]mcp.Prompt, *string, error) {
			page, err := c.ListPrompts(ctx, cursor, opts...)
			if err != nil {
				return nil, nil, err
			}
			return page.Prompts, page.NextCursor, nil
		},
		func(p *mcp.Prompt) string { return p.Name })
}

// Prompt fills in a prompt: it returns its messages. args may be nil.
func (c *Client) Prompt(ctx context.Context, name string, args map[string]string, opts ...CallOption) (*mcp.GetPromptResult, error) {
	params := jsonwire.AppendQuote([]byte(`{"name":`), name)
	if len(args) > 0 {
		params = appendStringMap(append(params, `,"arguments":`...), args)
	}
	r := &request{method: mcp.MethodPromptsGet, params: append(params, '}'), repeatable: true, opts: newCallOptions(opts)}
	result := new(mcp.GetPromptResult)
	if err := c.get(ctx, r, result); err != nil {
		return nil, err
	}
	return result, nil
}

// appendStringMap appends an object, its members in the order of their names.
func appendStringMap(dst []byte, m map[string]string) []byte {
	dst = append(dst, '{')
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonwire.AppendQuote(dst, key), ':')
		dst = jsonwire.AppendQuote(dst, m[key])
	}
	return append(dst, '}')
}

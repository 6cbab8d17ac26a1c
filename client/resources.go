package client

import (
	"context"
	"iter"

	"mcpwire/mcp"
)

// ListResources returns one page of the server's resources: the first if cursor is nil, else the one behind the page whose NextCursor it is.
// [Client.Resources] walks all pages.
func (c *Client) ListResources(ctx context.Context, cursor *string, opts ...CallOption) (*mcp.ListResourcesResult, error) {
	return getCacheable[mcp.ListResourcesResult](ctx, c, mcp.MethodResourcesList, cursorParams(cursor), opts)
}

// Resources yields the server's resources, page by page. An error ends the loop; see [Client.Tools].
func (c *Client) Resources(ctx context.Context, opts ...CallOption) iter.Seq2[mcp.Resource, error] {
	return listAll(ctx, c, mcp.MethodResourcesList,
		func(ctx context.Context, cursor *string) ([]mcp.Resource, *string, error) {
			page, err := c.ListResources(ctx, cursor, opts...)
			if err != nil {
				return nil, nil, err
			}
			return page.Resources, page.NextCursor, nil
		},
		func(r *mcp.Resource) string { return r.URI })
}

// ListResourceTemplates returns one page of the templates of the server's resources, as [Client.ListResources] does.
func (c *Client) ListResourceTemplates(ctx context.Context, cursor *string, opts ...CallOption) (*mcp.ListResourceTemplatesResult, error) {
	return getCacheable[mcp.ListResourceTemplatesResult](ctx, c, mcp.MethodResourceTemplatesList, cursorParams(cursor), opts)
}

// ResourceTemplates yields the templates of the server's resources, page by page. An error ends the loop; see [Client.Tools].
func (c *Client) ResourceTemplates(ctx context.Context, opts ...CallOption) iter.Seq2[mcp.ResourceTemplate, error] {
	return listAll(ctx, c, mcp.MethodResourceTemplatesList,
		func(ctx context.Context, cursor *string) ([]mcp.ResourceTemplate, *string, error) {
			page, err := c.ListResourceTemplates(ctx, cursor, opts...)
			if err != nil {
				return nil, nil, err
			}
			return page.ResourceTemplates, page.NextCursor, nil
		},
		func(t *mcp.ResourceTemplate) string { return t.URITemplate })
}

// ReadResource reads a resource, which may have several parts. A modern server may say for how long the answer stays good; it is cached until then, and
// [WithFresh] asks anew. The error for a resource that does not exist makes [IsNotFound] true.
func (c *Client) ReadResource(ctx context.Context, uri string, opts ...CallOption) (*mcp.ReadResourceResult, error) {
	return getCacheable[mcp.ReadResourceResult](ctx, c, mcp.MethodResourcesRead, uriParams(uri), opts)
}

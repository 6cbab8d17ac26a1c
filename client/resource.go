package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

// ErrEndlessList is wrapped by the error that ends an iteration when the list has more than
// [Limits.MaxPages] pages.
var ErrEndlessList = errors.New("the list does not end")

const defaultMaxPages = 10_000

// A pager iterates over one of the server's lists, page by page
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination).
type pager[T any] struct {
	maxPages int
	fetch    func(ctx context.Context, cursor *string) (items []T, next *string, err error)
	// key returns the identity of an item.
	key func(*T) string
	// invalidate drops the cached pages.
	invalidate func()
	// repeated is called when the server repeats a cursor, which ends the list.
	repeated func(cursor string)
}

// items yields the items in the server's order, each key once, and fetches pages as needed.
//
// A cursor becomes invalid when the server restarts or the list changes. items then drops all
// cached pages and starts again, once.
func (p *pager[T]) items(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var cursor *string
		var pages era.Pages
		restarted := false
		for n := 1; ; n++ {
			items, next, err := p.fetch(ctx, cursor)
			if err != nil {
				if restarted || cursor == nil || pages.Full() || !isInvalidParams(err) {
					yield(none, err)
					return
				}
				restarted, cursor, n = true, nil, 0
				pages.Restart()
				p.invalidate()
				continue
			}
			for i := range items {
				if pages.IsNew(p.key(&items[i])) && !yield(items[i], nil) {
					return
				}
			}
			switch {
			case next == nil:
				return
			case pages.Repeats(*next):
				p.repeated(*next)
				return
			case n >= p.maxPages:
				yield(none, fmt.Errorf("page %d: %w: Options.Limits.MaxPages is %d", n, ErrEndlessList, p.maxPages))
				return
			}
			cursor = next
		}
	}
}

// listPages yields the items of a list of which page returns one page.
func listPages[T, R any](
	ctx context.Context, c *Client, method string, page func(context.Context, *string, ...CallOption) (*R, error), opts []CallOption,
	read func(*R) ([]T, *string), key func(*T) string,
) iter.Seq2[T, error] {
	return listAll(ctx, c, method, func(ctx context.Context, cursor *string) (items []T, next *string, err error) {
		result, err := page(ctx, cursor, opts...)
		if err == nil {
			items, next = read(result)
		}
		return items, next, err
	}, key)
}

// listAll yields the items of a list within the client's limits.
func listAll[T any](ctx context.Context, c *Client, method string, fetch func(context.Context, *string) ([]T, *string, error), key func(*T) string) iter.Seq2[T, error] {
	p := &pager[T]{maxPages: c.opts.Limits.MaxPages, fetch: fetch, key: key, invalidate: func() {
		for _, cache := range c.caches.all() {
			cache.invalidate(method, nil)
		}
	}, repeated: func(cursor string) {
		c.log.Warn("the list ends here, because the server repeats a cursor", "method", method, "cursor", clip.String(cursor, 60))
	}}
	defaults.IfNotPositive(&p.maxPages, defaultMaxPages)
	return p.items(ctx)
}

// ListResources returns one page of the server's resources: the first if cursor is nil, or else the
// page after the one with that NextCursor. [Client.Resources] iterates over all pages.
func (c *Client) ListResources(ctx context.Context, cursor *string, opts ...CallOption) (*mcp.ListResourcesResult, error) {
	return getCacheable[mcp.ListResourcesResult](ctx, c, mcp.MethodResourcesList, cursorParams(cursor), opts)
}

// Resources yields the server's resources, page by page. An error ends the loop; see
// [Client.Tools].
func (c *Client) Resources(ctx context.Context, opts ...CallOption) iter.Seq2[mcp.Resource, error] {
	return listPages(ctx, c, mcp.MethodResourcesList, c.ListResources, opts,
		func(r *mcp.ListResourcesResult) ([]mcp.Resource, *string) { return r.Resources, r.NextCursor },
		func(r *mcp.Resource) string { return r.URI })
}

// ListResourceTemplates returns one page of the server's resource templates, as
// [Client.ListResources] does.
func (c *Client) ListResourceTemplates(ctx context.Context, cursor *string, opts ...CallOption) (*mcp.ListResourceTemplatesResult, error) {
	return getCacheable[mcp.ListResourceTemplatesResult](ctx, c, mcp.MethodResourceTemplatesList, cursorParams(cursor), opts)
}

// ResourceTemplates yields the server's resource templates, page by page. An error ends the loop;
// see [Client.Tools].
func (c *Client) ResourceTemplates(ctx context.Context, opts ...CallOption) iter.Seq2[mcp.ResourceTemplate, error] {
	return listPages(ctx, c, mcp.MethodResourceTemplatesList, c.ListResourceTemplates, opts,
		func(r *mcp.ListResourceTemplatesResult) ([]mcp.ResourceTemplate, *string) {
			return r.ResourceTemplates, r.NextCursor
		},
		func(t *mcp.ResourceTemplate) string { return t.URITemplate })
}

// ReadResource reads a resource, which may have several parts. A modern server may allow the client
// to cache the response; [WithoutCache] bypasses the cache. For a resource that does not exist,
// [IsNotFound] is true for the error.
func (c *Client) ReadResource(ctx context.Context, uri string, opts ...CallOption) (*mcp.ReadResourceResult, error) {
	return getCacheable[mcp.ReadResourceResult](ctx, c, mcp.MethodResourcesRead, uriParams(uri), opts)
}

// ListPrompts returns one page of the server's prompts: the first if cursor is nil, or else the
// page after the one with that NextCursor. [Client.Prompts] iterates over all pages.
func (c *Client) ListPrompts(ctx context.Context, cursor *string, opts ...CallOption) (*mcp.ListPromptsResult, error) {
	return getCacheable[mcp.ListPromptsResult](ctx, c, mcp.MethodPromptsList, cursorParams(cursor), opts)
}

// Prompts yields the server's prompts, page by page. An error ends the loop; see [Client.Tools].
func (c *Client) Prompts(ctx context.Context, opts ...CallOption) iter.Seq2[mcp.Prompt, error] {
	return listPages(ctx, c, mcp.MethodPromptsList, c.ListPrompts, opts,
		func(r *mcp.ListPromptsResult) ([]mcp.Prompt, *string) { return r.Prompts, r.NextCursor },
		func(p *mcp.Prompt) string { return p.Name })
}

// GetPrompt returns the messages of a prompt, with the arguments filled in. args may be nil.
func (c *Client) GetPrompt(ctx context.Context, name string, args map[string]string, opts ...CallOption) (*mcp.GetPromptResult, error) {
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

// appendStringMap appends m as an object, sorted by name.
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

// Complete returns up to 100 completions for the value of an argument
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion). ref is
// the [mcp.PromptReference] or [mcp.ResourceTemplateReference] that has the argument. known has the
// values of other arguments, which servers use since 2025-06-18. It may be nil.
func (c *Client) Complete(ctx context.Context, ref mcp.Reference, argument mcp.CompleteArgument, known map[string]string, opts ...CallOption) (*mcp.Completion, error) {
	p := mcp.CompleteRequestParams{Ref: ref, Argument: argument}
	if len(known) > 0 {
		p.Context = &mcp.CompleteContext{Arguments: known}
	}
	r := &request{method: mcp.MethodComplete, params: mcp.Append(nil, &p, c.Revision()), repeatable: true, opts: newCallOptions(opts)}
	result := new(mcp.CompleteResult)
	if err := c.get(ctx, r, result); err != nil {
		return nil, err
	}
	return &result.Completion, nil
}

package server

import (
	"context"

	"mcpwire/mcp"
)

// Roots asks the client for the folders that it works in (https://modelcontextprotocol.io/specification/2026-07-28/client/roots). They say what the client
// would like the server to keep to; what it may do is for the operating system to say. The URIs are the client's and not checked.
//
// In modern revisions the handler is RUN AGAIN FROM ITS BEGINNING to get the answer, see [InputRequests.Wait] for that and for the errors. Roots are
// deprecated by the specification since 2026-07-28.
func (c *Call) Roots(ctx context.Context, key string) ([]mcp.Root, error) {
	return askOne(ctx, c, func(q *InputRequests) *Reply[[]mcp.Root] { return q.Roots(key) })
}

// Roots adds what [Call.Roots] asks.
func (rs *InputRequests) Roots(key string) *Reply[[]mcp.Root] {
	r := new(Reply[[]mcp.Root])
	rs.add(&inputRequest{key: key, method: mcp.MethodRootsList, feature: Roots, decode: func(text []byte) error {
		var res mcp.ListRootsResult
		if err := res.UnmarshalJSON(text); err != nil {
			return err
		}
		r.value = res.Roots
		return nil
	}}, nil)
	return r
}

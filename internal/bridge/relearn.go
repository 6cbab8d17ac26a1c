package bridge

import (
	"context"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxToolPages is how many pages of a server's tools are read to find one.
const maxToolPages = 64

// headerMismatchLocked reports whether a call was refused because it lacked headers that the tool's schema asks for, which the transport knows only of tools that it has seen in a
// list (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http). It does so once for each call.
func (p *passthrough) headerMismatchLocked(c *call, m *jsonrpc.Message) bool {
	return c.retryFrame != nil && m.Kind == jsonrpc.KindError && m.Err().Code == mcp.CodeHeaderMismatch
}

// retryWithHeaders has the transport see the tool that a call is about, and makes the call again. refused is the answer that it had.
func (p *passthrough) retryWithHeaders(c *call, refused []byte, event uint64) {
	p.mu.Lock()
	frame := c.retryFrame
	c.retryFrame = nil
	p.mu.Unlock()
	if findTool(c.ctx, p.b, frame, p.roundTrip) && p.isPending(c) {
		p.upstream.rec.note("a call is made again, since the server asks for headers that its list of tools tells of")
		if p.upstream.send(c.ctx, queuedMessage{frame: frame, id: c.serverID, from: provenance{rec: c.rec, event: c.event, rule: "sent again"}}) == nil {
			return
		}
	}
	if !p.removeCall(c) {
		return
	}
	if c.rewritten() {
		refused = restoreIDs(refused, c)
	}
	c.finish(refused, p.provenance(event))
}

// isPending reports whether a call is still open.
func (p *passthrough) isPending(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[idKey(c.serverID)] == c
}

// An asker sends the server a request of the bridge's own and waits for the answer.
type roundTripFunc func(ctx context.Context, text func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error)

// findTool reads the server's list of tools as far as the one that a call is about, and reports whether it is there.
func findTool(ctx context.Context, b *Bridge, call []byte, roundTrip roundTripFunc) bool {
	ctx, cancel := b.withTimeout(ctx, b.opts.ConnectTimeout)
	defer cancel()
	meta, name := locate(call, "params", "_meta"), stringOf(locate(call, "params", "name").slice(call))
	if !meta.found() {
		return false
	}
	params := append(append([]byte(`{"_meta":`), meta.slice(call)...), '}')
	for range maxToolPages {
		answer, err := roundTrip(ctx, func(id jsonrpc.ID) []byte { return jsonrpc.AppendRequest(nil, id, mcp.MethodToolsList, params) })
		if err != nil || answer.Kind != jsonrpc.KindResponse {
			return false
		}
		if hasTool(answer.Result, name) {
			return true
		}
		next := locate(answer.Result, "nextCursor")
		if !next.found() {
			return false
		}
		params = append(append(append(append([]byte(`{"_meta":`), meta.slice(call)...), `,"cursor":`...), next.slice(answer.Result)...), '}')
	}
	return false
}

// hasTool reports whether a page of a list of tools has one of that name.
func hasTool(result []byte, name string) bool {
	at := locate(result, "tools")
	if !at.found() || result[at.start] != '[' {
		return false
	}
	for tools := jsonwire.ArrayElements(at.slice(result)); tools.Next(); {
		if tool := tools.Value(); stringOf(locate(tool, "name").slice(tool)) == name {
			return true
		}
	}
	return false
}

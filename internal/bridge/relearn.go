package bridge

import (
	"context"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxListed is how many pages of a server's tools are read to find one.
const maxListed = 64

// mismatchedLocked reports whether a call was refused because it lacked headers that the tool's schema asks for, which the carrier knows only of tools that it has seen in a
// list (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http). It does so once for each call.
func (p *plain) mismatchedLocked(c *call, m *jsonrpc.Message) bool {
	return c.frame != nil && m.Kind == jsonrpc.KindError && m.Err().Code == mcp.CodeHeaderMismatch
}

// relearn has the carrier see the tool that a call is about, and makes the call again. refused is the answer that it had.
func (p *plain) relearn(c *call, refused []byte, event uint64) {
	p.mu.Lock()
	frame := c.frame
	c.frame = nil
	p.mu.Unlock()
	if listed(c.ctx, p.b, frame, p.ask) && p.wants(c) {
		p.line.lane.note("a call is made again, since the server asks for headers that its list of tools tells of")
		if p.line.send(c.ctx, item{frame: frame, id: c.far, from: made{lane: c.lane, of: c.event, rule: "sent again"}}) == nil {
			return
		}
	}
	if !p.forget(c) {
		return
	}
	if c.renamed() {
		refused = restored(refused, c)
	}
	c.finish(refused, p.made(event))
}

// wants reports whether a call is still open.
func (p *plain) wants(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[idKey(c.far)] == c
}

// An asker sends the server a request of the bridge's own and waits for the answer.
type asker func(ctx context.Context, text func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error)

// listed reads the server's list of tools as far as the one that a call is about, and reports whether it is there.
func listed(ctx context.Context, b *Bridge, call []byte, ask asker) bool {
	ctx, cancel := b.within(ctx, b.opts.ConnectTimeout)
	defer cancel()
	meta, name := locate(call, "params", "_meta"), text(locate(call, "params", "name").of(call))
	if !meta.found() {
		return false
	}
	params := append(append([]byte(`{"_meta":`), meta.of(call)...), '}')
	for range maxListed {
		answer, err := ask(ctx, func(id jsonrpc.ID) []byte { return jsonrpc.AppendRequest(nil, id, mcp.MethodToolsList, params) })
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
		params = append(append(append(append([]byte(`{"_meta":`), meta.of(call)...), `,"cursor":`...), next.of(answer.Result)...), '}')
	}
	return false
}

// hasTool reports whether a page of a list of tools has one of that name.
func hasTool(result []byte, name string) bool {
	at := locate(result, "tools")
	if !at.found() || result[at.start] != '[' {
		return false
	}
	for tools := jsonwire.ArrayElements(at.of(result)); tools.Next(); {
		if tool := tools.Value(); text(locate(tool, "name").of(tool)) == name {
			return true
		}
	}
	return false
}

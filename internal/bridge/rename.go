package bridge

import (
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// rule is what is done to messages, in a capture.
func (p *plain) rule() string {
	if p.rename {
		return "id"
	}
	return "same"
}

// made says that a message was made of one of the server's.
func (p *plain) made(event uint64) made { return made{lane: p.line.lane, of: event, rule: p.rule()} }

// renamedLocked gives a request ids that no other has.
func (p *plain) renamedLocked(c *call, frame []byte, m *jsonrpc.Message) []byte {
	c.far = jsonrpc.IntID(p.ids.Add(1))
	frame = withID(frame, c.far)
	if token, ok := tokenOf(m); ok {
		c.token, c.heard = token, idKey(c.far)
		frame = splice(frame, locate(frame, "params", "_meta", mcp.MetaProgressToken), c.far)
	}
	return frame
}

// tokenOf returns the progress token of a request.
func tokenOf(m *jsonrpc.Message) (jsonrpc.ID, bool) {
	meta, ok := m.Param("_meta")
	if !ok {
		return nil, false
	}
	at := locate(meta, mcp.MetaProgressToken)
	return jsonrpc.ID(at.of(meta)), at.found()
}

// restored puts the client's ids back into an answer.
func restored(frame []byte, c *call) []byte {
	if c.method == mcp.MethodSubscriptionsListen {
		if at := locate(frame, "result", "_meta", mcp.MetaSubscriptionID); at.found() {
			frame = splice(frame, at, c.id)
		}
	}
	return withID(frame, c.id)
}

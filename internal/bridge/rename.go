package bridge

import (
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// rule is what is done to messages, in a capture.
func (p *passthrough) rule() string {
	if p.rewriteIDs {
		return "id"
	}
	return "same"
}

// provenance says that a message was made of one of the server's.
func (p *passthrough) provenance(event uint64) provenance {
	return provenance{rec: p.upstream.rec, event: event, rule: p.rule()}
}

// rewriteLocked gives a request ids that no other has.
func (p *passthrough) rewriteLocked(c *call, frame []byte, m *jsonrpc.Message) []byte {
	c.serverID = jsonrpc.IntID(p.lastID.Add(1))
	frame = withID(frame, c.serverID)
	if token, ok := tokenOf(m); ok {
		c.clientToken, c.tokenKey = token, idKey(c.serverID)
		frame = splice(frame, locate(frame, "params", "_meta", mcp.MetaProgressToken), c.serverID)
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
	return jsonrpc.ID(at.slice(meta)), at.found()
}

// restoreIDs puts the client's ids back into an answer.
func restoreIDs(frame []byte, c *call) []byte {
	if c.method == mcp.MethodSubscriptionsListen {
		if at := locate(frame, "result", "_meta", mcp.MetaSubscriptionID); at.found() {
			frame = splice(frame, at, c.id)
		}
	}
	return withID(frame, c.id)
}

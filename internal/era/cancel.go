package era

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Cancellation is how requests are cancelled in MCP, in all revisions
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation).
type Cancellation struct{}

// Target implements [jsonrpc.Cancellation].
func (Cancellation) Target(n *jsonrpc.Message) (jsonrpc.ID, string, bool) {
	if string(n.Method) != mcp.NotificationCancelled {
		return nil, "", false
	}
	id, ok := n.Param("requestId")
	if !ok || !jsonrpc.ID(id).Valid() {
		return nil, "", true // malformed cancellations are ignored
	}
	return id, jsonrpc.CancelReason(n, "reason"), true
}

// Notice implements [jsonrpc.Cancellation]. The handshake must not be cancelled.
func (Cancellation) Notice(id jsonrpc.ID, method, reason string) (string, []byte) {
	if method == mcp.MethodInitialize {
		return "", nil
	}
	params := append(append([]byte(`{"requestId":`), id...), `,"reason":`...)
	return mcp.NotificationCancelled, append(jsonwire.AppendQuote(params, reason), '}')
}

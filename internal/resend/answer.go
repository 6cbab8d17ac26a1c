package resend

import (
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// codeRejected is what a client answers for a user who does not want a model to be asked
// (https://modelcontextprotocol.io/specification/2025-11-25/client/sampling#error-handling).
const codeRejected jsonrpc.Code = -1

// Decline returns what a client answers to a request of the server when there is no user to ask: pings with an empty result, elicitations with decline, requests to ask
// a model with an error that says it was rejected, and everything else with -32601. The answer is the caller's.
func Decline(m *jsonrpc.Message) []byte {
	switch string(m.Method) {
	case mcp.MethodPing:
		return jsonrpc.AppendResult(nil, m.ID, []byte(`{}`))
	case mcp.MethodElicit:
		return jsonrpc.AppendResult(nil, m.ID, []byte(`{"action":"decline"}`))
	case mcp.MethodCreateMessage:
		return jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(codeRejected, "rejected: a recorded message was sent again, and nobody is there to approve"), false)
	}
	return jsonrpc.AppendError(nil, m.ID, jsonrpc.MethodNotFound(string(m.Method)), false)
}

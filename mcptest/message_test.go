package mcptest_test

import (
	"testing"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

func TestLines(t *testing.T) {
	const (
		legacy = mcp.Revision20250618
		modern = mcp.Revision20260728
		meta   = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	)
	tests := []struct{ name, got, want string }{
		{"handshake", mcptest.Initialize(legacy),
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"mcptest","version":"1"}}}`},
		{"end of the handshake", mcptest.Initialized, `{"jsonrpc":"2.0","method":"notifications/initialized"}`},
		{"legacy", mcptest.Request(legacy, 1, "tools/call", `{"name":"echo"}`), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`},
		{"legacy, no params", mcptest.Request(legacy, "a\"b", "ping", ""), `{"jsonrpc":"2.0","id":"a\"b","method":"ping"}`},
		{"modern", mcptest.Request(modern, 1, "tools/call", `{ "name": "a b", "arguments": {"n": 1e400} }`),
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{` + meta + `},"name":"a b","arguments":{"n":1e400}}}`},
		{"modern, no params", mcptest.Request(modern, 1, "server/discover", ""), `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{` + meta + `}}}`},
		{"modern, with metadata", mcptest.Request(modern, 1, "x", `{"a":1,"_meta":{"progressToken":"t","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}`),
			`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":"t","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}}`},
		{"modern, invalid params", mcptest.Request(modern, 1, "x", `[1]`), `{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}`},
		{"modern, invalid metadata", mcptest.Request(modern, 1, "x", `{"_meta":"$modern"}`), `{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":"$modern"}}`},
		{"notification", mcptest.Notification("notifications/cancelled", `{"requestId":1}`), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`},
		{"result", mcptest.Result("$id", `{"a":"$any"}`), `{"jsonrpc":"2.0","id":"$id","result":{"a":"$any"}}`},
		{"error", mcptest.Error(3, jsonrpc.CodeInvalidParams, "no such \"tool\""), `{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"no such \"tool\""}}`},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, tt.got, tt.want)
		}
		var m jsonrpc.Message
		if err := jsonrpc.Parse([]byte(tt.got), &m, 0); err != nil {
			t.Errorf("%s: invalid message: %v", tt.name, err)
		}
	}
}

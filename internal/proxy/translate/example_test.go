package translate_test

import (
	"fmt"
	"time"

	"mcpwire/internal/proxy/translate"
)

// show prints what a driver would send.
func show(outs []translate.Out) {
	for _, o := range outs {
		switch o.To {
		case translate.Downstream:
			fmt.Printf("to the client on stream %d: %s\n", o.Stream, o.Message)
		case translate.Upstream:
			fmt.Printf("to the server: %s\n", o.Message)
		}
	}
}

// A legacy client sends a ping, and lists the primitives of a modern server that is still unknown.
func ExampleNewLegacyToModern() {
	now := time.Unix(0, 0)
	t := translate.NewLegacyToModern(nil)
	show(t.FromDownstream(now, []byte(`{"jsonrpc":"2.0","id":"p","method":"ping"}`), 0))
	show(t.FromDownstream(now, []byte(`{"jsonrpc":"2.0","id":"l","method":"prompts/list"}`), 0))
	show(t.FromUpstream(now, []byte(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","prompts":[],"ttlMs":0,"cacheScope":"public"}}`), 0))
	// Output:
	// to the client on stream 0: {"jsonrpc":"2.0","id":"p","result":{}}
	// to the server: {"jsonrpc":"2.0","id":1,"method":"prompts/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}
	// to the client on stream 0: {"jsonrpc":"2.0","id":"l","result":{"prompts":[]}}
}

// The first request of a modern client is queued until the handshake with the legacy server.
func ExampleNewModernToLegacy() {
	now := time.Unix(0, 0)
	t := translate.NewModernToLegacy(nil)
	show(t.FromDownstream(now, []byte(`{"jsonrpc":"2.0","id":7,"method":"prompts/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`), 1))
	show(t.FromUpstream(now, []byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"prompts":{}},"serverInfo":{"name":"s","version":"1"}}}`), 1))
	fmt.Println(t.Legacy())
	show(t.FromUpstream(now, []byte(`{"jsonrpc":"2.0","id":2,"result":{"prompts":[]}}`), 2))
	// Output:
	// to the server: {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"unnamed","version":"0"}}}
	// to the server: {"jsonrpc":"2.0","method":"notifications/initialized"}
	// to the server: {"jsonrpc":"2.0","id":2,"method":"prompts/list"}
	// 2025-06-18
	// to the client on stream 1: {"jsonrpc":"2.0","id":7,"result":{"prompts":[],"ttlMs":0,"cacheScope":"private","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}}
}

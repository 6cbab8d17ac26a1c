package jsonrpc_test

import (
	"testing"

	"mcpwire/jsonrpc"
)

// BenchmarkParse parses a tools/call request of each era.
func BenchmarkParse(b *testing.B) {
	for _, bm := range []struct{ name, text string }{
		{"modern", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"0123456789012345678901234567890123456789012345678901234567890123"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{}}}}`},
		{"legacy", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"0123456789012345678901234567890123456789012345678901234567890123"}}}`},
	} {
		b.Run(bm.name, func(b *testing.B) {
			text := []byte(bm.text)
			var m jsonrpc.Message
			b.ReportAllocs()
			for b.Loop() {
				if err := jsonrpc.Parse(text, &m, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

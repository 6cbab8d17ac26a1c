//go:build unix

package main

import "testing"

func TestAnswer(t *testing.T) {
	for _, tt := range []struct{ name, line, want string }{
		{"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"rawpipe","version":"1.0.0"}}}` + "\n"},
		{"legacy call", `{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`,
			`{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"hi"}]}}` + "\n"},
		{"modern call", `{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"_meta":{},"name":"echo","arguments":{"text":"hi"}}}`,
			`{"jsonrpc":"2.0","id":12,"result":{"resultType":"complete","content":[{"type":"text","text":"hi"}]}}` + "\n"},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
	} {
		if got := string(answer(nil, []byte(tt.line))); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

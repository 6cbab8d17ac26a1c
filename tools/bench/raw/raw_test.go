package raw

import (
	"encoding/json"
	"testing"
)

func TestResponse(t *testing.T) {
	for _, tt := range []struct{ name, line, want string }{
		{"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1.0.0"}}}` + "\n"},
		{"discover", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{}}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}` + "\n"},
		{"legacy list", `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`,
			`{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}}` + "\n"},
		{"legacy call", `{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`,
			`{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"hi"}]}}` + "\n"},
		{"modern call", `{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"_meta":{},"name":"echo","arguments":{"text":"hi"}}}`,
			`{"jsonrpc":"2.0","id":12,"result":{"resultType":"complete","content":[{"type":"text","text":"hi"}]}}` + "\n"},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
	} {
		got := string(Answer(nil, []byte(tt.line)))
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
		if got != "" && !json.Valid([]byte(got)) {
			t.Errorf("%s: not JSON: %s", tt.name, got)
		}
	}
}

package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"mcpwire/mcp"
	"mcpwire/server"
)

// Spec: S137 S138 S139 S140 S141 S142 S143
func TestToolHeaders(t *testing.T) {
	for _, tt := range []struct{ name, a, want string }{
		{"good", `{"type":"string","x-mcp-header":"Region"}`, ""},
		{"nested", `{"type":"object","properties":{"b":{"type":"integer","x-mcp-header":"B"}}}`, ""},
		{"empty", `{"type":"string","x-mcp-header":""}`, "x-mcp-header at /properties/a/x-mcp-header is empty"},
		{"no token", `{"type":"string","x-mcp-header":"a b"}`, `x-mcp-header at /properties/a/x-mcp-header is "a b"`},
		{"control", `{"type":"string","x-mcp-header":"a\u0000"}`, `x-mcp-header at /properties/a/x-mcp-header is "a\x00"`},
		{"twice", `{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"X"},"c":{"type":"string","x-mcp-header":"x"}}}`, `x-mcp-header at /properties/a/properties/c/x-mcp-header is "x", like that of a.b`},
		{"number", `{"type":"number","x-mcp-header":"A"}`, `x-mcp-header at /properties/a/x-mcp-header needs "type"`},
		{"large integer", `{"type":"integer","x-mcp-header":"A","enum":[9007199254740993]}`, "x-mcp-header at /properties/a/x-mcp-header is not allowed here: 9007199254740993"},
		{"in a list", `{"type":"array","items":{"type":"string","x-mcp-header":"A"}}`, "x-mcp-header at /properties/a/items/x-mcp-header is not allowed here"},
		{"in a choice", `{"anyOf":[{"type":"string","x-mcp-header":"A"},{"type":"null"}]}`, "x-mcp-header at /properties/a/anyOf/0/x-mcp-header is not allowed here"},
	} {
		srv := server.MustNew("test", "1", nil)
		def := mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":` + tt.a + `}}`)}
		raw := srv.AddRawTool(def, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) { return nil, nil })
		srv.RemoveTools("t")
		typed := server.AddToolWith(srv, def, func(context.Context, map[string]any) (string, error) { return "", nil })
		for _, err := range []error{raw, typed} {
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("%s: %v", tt.name, err)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), `tool "t": input schema: `+tt.want)):
				t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
			}
		}
	}
}

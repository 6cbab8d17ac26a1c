package bridge

import "testing"

// TestRelearn: a call whose headers the carrier could not know is made again when it has seen the list of tools; once.
func TestRelearn(t *testing.T) {
	for _, tt := range []struct{ name, tools, want string }{
		{"the tool is there", `{"tools":[{"name":"t"}],"nextCursor":"n"}`, ""},
		{"on the second page", `{"tools":[{"name":"u"}],"nextCursor":"n"}`, ""},
		{"nowhere", `{"tools":[{"name":"u"}]}`, "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFarm(t)
			near, _ := client0(t, f.bridge(&Options{Near: EraModern, Far: EraModern, HTTP: true}))
			meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta + `}}`
			near.send(call)
			far := f.next()
			far.wants(call)
			refusal := `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"Mcp-Param-X is missing"}}`
			far.send(refusal)
			far.send(answering(far.request("tools/list", meta), tt.tools))
			if tt.want != "" {
				near.wants(refusal)
				return
			}
			if tt.name == "on the second page" {
				far.send(answering(far.request("tools/list", `"cursor":"n"`), `{"tools":[{"name":"t"}]}`))
			}
			far.wants(call)
			far.send(refusal)
			near.wants(refusal) // it is not tried for ever
		})
	}
}

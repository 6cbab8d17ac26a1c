package bridge

import (
	"strings"
	"testing"
	"testing/synctest"
)

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

// TestRelearnTranslated is TestRelearn for a legacy client, which knows nothing of headers.
func TestRelearnTranslated(t *testing.T) {
	for _, tt := range []struct{ name, tools string }{
		{"the tool is there", `{"resultType":"complete","tools":[{"name":"t"}]}`},
		{"nowhere", `{"resultType":"complete","tools":[]}`},
		{"given up", `{"resultType":"complete","tools":[{"name":"t"}]}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
			near, _ := client0(t, f.bridge(&Options{Far: EraModern, HTTP: true}))
			near.send(hello)
			far := f.next()
			far.send(answering(far.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`))
			near.reads(`"protocolVersion":"2025-11-25"`)
			near.send(confirmed, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
			call := far.reads(`"tools/call"`)
			id := string(locate([]byte(call), "id").of([]byte(call)))
			refusal := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32020,"message":"Mcp-Param-X is missing"}}`
			far.send(refusal)
			list := far.reads("tools/list")
			listID := string(locate([]byte(list), "id").of([]byte(list)))
			if !strings.HasPrefix(listID, `"mcpwire-`) {
				t.Fatalf("the bridge asks with the id %s", listID)
			}
			switch tt.name {
			case "the tool is there":
				far.send(answering(listID, tt.tools))
				far.wants(call)
				far.send(refusal)
				near.reads(`"id":7`, `-32020`) // it is not tried for ever
			case "nowhere":
				far.send(answering(listID, tt.tools))
				near.reads(`"id":7`, `-32020`)
			default:
				near.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
				far.reads("notifications/cancelled")
				far.send(answering(listID, tt.tools))
				synctest.Wait()
				near.send(`{"jsonrpc":"2.0","id":8,"method":"prompts/list"}`)
				far.request("prompts/list")
			}
		})
	}
}

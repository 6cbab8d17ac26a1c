package bridge

import (
	"strings"
	"testing"
	"testing/synctest"
)

// TestRelearn: a call whose headers the transport could not know is made again when it has seen the list of tools; once.
func TestRelearn(t *testing.T) {
	for _, tt := range []struct{ name, tools, want string }{
		{"the tool is there", `{"tools":[{"name":"t"}],"nextCursor":"n"}`, ""},
		{"on the second page", `{"tools":[{"name":"u"}],"nextCursor":"n"}`, ""},
		{"nowhere", `{"tools":[{"name":"u"}]}`, "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFarm(t)
			client, _ := client0(t, f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern, HTTP: true}))
			meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta + `}}`
			client.send(call)
			srv := f.next()
			srv.wants(call)
			refusal := `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"Mcp-Param-X is missing"}}`
			srv.send(refusal)
			srv.send(answering(srv.request("tools/list", meta), tt.tools))
			if tt.want != "" {
				client.wants(refusal)
				return
			}
			if tt.name == "on the second page" {
				srv.send(answering(srv.request("tools/list", `"cursor":"n"`), `{"tools":[{"name":"t"}]}`))
			}
			srv.wants(call)
			srv.send(refusal)
			client.wants(refusal) // it is not tried for ever
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
			client, _ := client0(t, f.bridge(&Options{ServerEra: EraModern, HTTP: true}))
			client.send(hello)
			srv := f.next()
			srv.send(answering(srv.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`))
			client.reads(`"protocolVersion":"2025-11-25"`)
			client.send(confirmed, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
			call := srv.reads(`"tools/call"`)
			id := string(locate([]byte(call), "id").slice([]byte(call)))
			refusal := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32020,"message":"Mcp-Param-X is missing"}}`
			srv.send(refusal)
			list := srv.reads("tools/list")
			listID := string(locate([]byte(list), "id").slice([]byte(list)))
			if !strings.HasPrefix(listID, `"mcpwire-`) {
				t.Fatalf("the bridge asks with the id %s", listID)
			}
			switch tt.name {
			case "the tool is there":
				srv.send(answering(listID, tt.tools))
				srv.wants(call)
				srv.send(refusal)
				client.reads(`"id":7`, `-32020`) // it is not tried for ever
			case "nowhere":
				srv.send(answering(listID, tt.tools))
				client.reads(`"id":7`, `-32020`)
			default:
				client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
				srv.reads("notifications/cancelled")
				srv.send(answering(listID, tt.tools))
				synctest.Wait()
				client.send(`{"jsonrpc":"2.0","id":8,"method":"prompts/list"}`)
				srv.request("prompts/list")
			}
		})
	}
}

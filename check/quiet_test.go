package check

import (
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/mcp"
)

// TestQuiet checks that valid or undecidable traffic has no findings.
func TestQuiet(t *testing.T) {
	const (
		probe    = `> {"jsonrpc":"2.0","id":"p","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"
		notFound = `,"error":{"code":-32601,"message":"method not found"}}` + "\n"
		ping     = `> {"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
		pong     = `< {"jsonrpc":"2.0","id":1,"result":{}}` + "\n"
		postPing = `post {"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
		okPing   = `reply 200 {"jsonrpc":"2.0","id":1,"result":{}}` + "\n"
	)
	for _, tt := range []struct {
		name string
		rev  mcp.Revision
		text string
	}{
		{"a legacy server is probed for its era", rev20251125, probe + `< {"jsonrpc":"2.0","id":"p"` + notFound + "init\n" + ping + pong},
		{"a legacy server answers the probe with another code", rev20251125, probe + `< {"jsonrpc":"2.0","id":"p","error":{"code":-32000,"message":"not initialized"}}` + "\ninit\n" + ping + pong},
		{"a legacy server exits at the probe", rev20251125, "start server\n" + probe + "eof >\nexit 0\nstart server\ninit\n" + ping + pong},
		{"the bridge's probe ends a legacy server", rev20251125, "start server\n" + strings.Replace(probe, `"id":"p"`, `"id":"mcpwire-discover"`, 1) + "exit 1\nstart server\ninit\n" + ping + pong},
		{"the bridge's probe and ping end a legacy server", rev20251125, "start server\n" + strings.Replace(probe, `"id":"p"`, `"id":"mcpwire-discover"`, 1) + `> {"jsonrpc":"2.0","id":"mcpwire-ping","method":"ping"}` + "\nexit 1\nstart server\ninit\n" + ping + pong},
		{"a command's probe ends a legacy server", rev20251125, "start server\n" + strings.Replace(probe, `{}}}`, `{},"io.modelcontextprotocol/clientInfo":{"name":"mcpwire","version":"1"}}}`, 1) + "exit 1\nstart server\ninit\n" + ping + pong},
		{"a program ends a server that does not respond", rev20251125, "start server\n" + probe + "wait 5s\neof >\nexit signal terminated"},
		{"a legacy server does not respond to the probe", rev20251125, probe + "wait 5s\ninit\n" + ping + pong},
		{"a modern server gets initialize", rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}` +
			"\n" + `< {"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no handshake","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}}` + "\n" + discovered},
		{"a legacy server handles a modern call", rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{$meta}}}` + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"content":[]}}`},
		{"both eras on one pipe", rev20251125, "init\n" + probe + `< {"jsonrpc":"2.0","id":"p","result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"public"}}` +
			"\n" + ping + pong},

		{"a request is lost in a gap", rev20251125, "init\ngap 1\n" + pong},
		{"a response is lost in a gap", rev20251125, "init\n" + ping + "gap 1\nwait 1h\n> {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"},
		{"the handshake is lost in a gap", rev20251125, "gap 3\n" + ping + pong + "> {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"tools\":[]}}"},
		{"a message is cut", rev20251125, "init\n>(cut) {\"jsonrpc\":\"2.0\",\"id\":1,\"met\n" + pong},
		{"arguments are redacted", rev20251125, toolsList(`{"tools":[{"name":"add","inputSchema":{"type":"object","properties":{"token":{"type":"string","maxLength":5}}}}]}`) +
			"\n>(red=/msg/params/arguments/token) " + `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"token":"~redacted:token:9c0d11aa34ef:32~"}}}` + "\n< {\"jsonrpc\":\"2.0\",\"id\":2," + exDone + "}"},
		{"a number is redacted", rev20251125, "init\n>(red=/msg/params/_meta/-x) " + `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"-x":0}}}` + "\n" + pong},
		{"a server is restarted", rev20251125, "start server\ninit\n" + ping + pong + "exit signal killed\nstart server\ninit\n> {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"},

		{"clients without sessions use the same ids", rev20250618, "http\n" + postPing + postPing + "reply(x=2) 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nreply(x=1) 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n" + postPing + okPing},
		{"a session that began before the tap", rev20251125, "http\nsession S9\n" + postPing + okPing + "post {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"roots\":[]}}\nreply 202"},
		{"two sessions use the same ids", rev20251125, "http\ninit\n" + postPing + okPing + `post {"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}` + "\n" +
			"  -MCP-Protocol-Version\n  -Mcp-Session-Id\n" + `reply 200 {"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"$rev","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}` +
			"\n  Mcp-Session-Id: S2\nsession S2\npost {\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\nreply 202\n" + postPing + okPing},
		{"a session is deleted while a stream is open", rev20251125, "http\ninit\n" + postPing + "stream\ndelete\nreply(x=4) 200\nend(x=3)"},
		{"HTTP+SSE", rev20241105, "sse-transport\nget\n  :path: /sse\nstream\nsse(event=endpoint) /messages?sessionId=1\n" +
			`post {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}` + "\n  :path: /messages?sessionId=1\nreply(x=2) 202\n" +
			`<(x=1,event=message) {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"$rev","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}` + "\n" +
			`post {"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n  :path: /messages?sessionId=1\nreply 202\npost {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n  :path: /messages?sessionId=1\nreply 202\n" +
			`<(x=1,event=message) {"jsonrpc":"2.0","id":2,"result":{}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if found := find(t, Example{tt.rev, tt.text}, nil); len(found) > 0 {
				t.Errorf("findings:\n%s", brief(found))
			}
		})
	}
}

// TestVerboseServer checks findings outside the rules' own examples.
func TestVerboseServer(t *testing.T) {
	for _, tt := range []struct {
		name string
		rev  mcp.Revision
		text string
		want string
		at   uint64
	}{
		{"a stray line that begins like JSON", rev20251125, "init\n< {not json", "stdio/stray-output", 4},
		{"an incomplete message", rev20251125, "init\n< {\n< \"a\": 1,", "stdio/stray-output", 4},
		{"a stray response of the client", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}", "jsonrpc/unknown-id", 4},
		{"a nested session", rev20251125, "init\n>(s=2) {\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/list\"}", "lifecycle/no-handshake", 4},
		{"the whole line in a batch", rev20250326, "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", "jsonrpc/id-reused", 4},
		{"a form in a result", rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","_meta":{$version,$client:{"elicitation":{}}}}}` + "\n" +
			`< {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"api_key":{"type":"string"}}}}}}}}`,
			"elicitation/secret", 4},
		{"a root in a request", rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","inputResponses":{"k":{"roots":[{"uri":"https://a/"}]}},"_meta":{$version,$client:{"roots":{}}}}}`,
			"roots/uri", 3},
		{"a message whose sender ends within it", rev20251125, "init\n<(eof) {\"jsonrpc\":\"2.0\",\"id\"", "stdio/unterminated", 4},
		{"another client's probe ends a server", rev20251125, "start server\n" + `> {"jsonrpc":"2.0","id":"p","method":"server/discover","params":{"_meta":{$meta}}}` + "\nexit 1", "stdio/exit-pending", 3},
		{"a later server/discover of a command ends a server", rev20260728, discovered + `> {"jsonrpc":"2.0","id":"mcpwire-discover","method":"server/discover","params":{"_meta":{$meta}}}` + "\nexit 1", "stdio/exit-pending", 4},
		{"an id over HTTP", rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":\"init\",\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":\"init\",\"result\":{}}", "jsonrpc/id-reused", 11},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := find(t, Example{tt.rev, tt.text}, nil)
			for _, f := range found {
				if f.Rule.ID == tt.want && f.Event == tt.at {
					return
				}
			}
			t.Errorf("no %s at event %d, but\n%s", tt.want, tt.at, brief(found))
		})
	}
}

// TestTwoSides checks that the two sides of a tap that forwards messages unchanged are separate
// sessions, although they have the same session id, or the same endpoint.
func TestTwoSides(t *testing.T) {
	for _, x := range []Example{
		{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		{rev20241105, "sse-transport\nget\n  :path: /sse\nstream\nsse(event=endpoint) /messages?sessionId=1\n" +
			`post {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}` + "\n  :path: /messages?sessionId=1\nreply(x=2) 202\n" +
			`<(x=1,event=message) {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"$rev","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`},
	} {
		head, events, err := x.Events()
		if err != nil {
			t.Fatal(err)
		}
		k := New(nil)
		var found []Finding
		for _, e := range events {
			for i, side := range []capture.Side{capture.Downstream, capture.Upstream} {
				own := *e
				own.N, own.Side = 2*e.N-1+uint64(i), side
				own.Session, own.Exchange = 2*e.Session+uint64(i), 2*e.Exchange-1+uint64(i)
				found = append(found, k.Add(head, &own)...)
			}
		}
		if found = append(found, k.Close()...); len(found) > 0 {
			t.Errorf("%v: findings:\n%s", x.Revision, brief(found))
		}
	}
}

package check

import (
	"strings"
	"testing"

	"mcpwire/mcp"
)

// The pieces of the odd sessions.
const (
	oddProbe   = `> {"jsonrpc":"2.0","id":"p","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"
	oddHello   = `> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}` + "\n"
	oddWelcome = `< {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"$rev","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}` + "\n"
	oddReady   = `> {"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	oddPrompts = `{"jsonrpc":"2.0","id":1,"method":"prompts/list","params":{"_meta":{$meta}}}`
	oddNone    = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","prompts":[],"ttlMs":0,"cacheScope":"private"}}`
)

// oddCall returns a tools/call and its response.
func oddCall(arguments, result string) string {
	return `> {"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"a","arguments":` + arguments + `}}` + "\n" + `< {"jsonrpc":"2.0","id":"c","result":` + result + `}` + "\n"
}

func oddTools(tools string) string {
	return `> {"jsonrpc":"2.0","id":"l","method":"tools/list"}` + "\n" + `< {"jsonrpc":"2.0","id":"l","result":{"tools":[` + tools + `]}}` + "\n"
}

// modernCall is oddCall since 2026-07-28, with a list before it.
func modernCall(tool, arguments, result string) string {
	return discovered + `> {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{$meta}}}` + "\n" +
		`< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[` + tool + `],"ttlMs":0,"cacheScope":"public"}}` + "\n" +
		`> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a","arguments":` + arguments + `,"_meta":{$meta}}}` + "\n" +
		`< {"jsonrpc":"2.0","id":3,"result":` + result + `}`
}

// oddOverStdio are unusual valid sessions over stdio.
var oddOverStdio = []struct {
	name string
	rev  mcp.Revision
	text string
}{
	{"a probe, a late answer to it and the handshake", rev20251125, oddProbe + "wait 6s\n" + oddHello + `< {"jsonrpc":"2.0","id":"p","error":{"code":-32601,"message":"no"}}` + "\n" + oddWelcome + oddReady},
	{"responses out of order", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n> {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"prompts/list\"}\n" +
		"< {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"prompts\":[]}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}"},
	{"1 and \"1\" are two ids", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n> {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
	{"both sides use the same ids", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
	{"unusual ids", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":-9007199254740993,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":-9007199254740993,\"result\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":\"\",\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":\"\",\"result\":{}}\n" +
		"> {\"jsonrpc\":\"2.0\",\"id\":\"\\u00e9\",\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":\"é\",\"result\":{}}"},
	{"progress in floats, without a total, beyond it", rev20251125, exProgress(`"t"`, exProgressed(`"t"`, "0.1")+exProgressed(`"t"`, "1e-0")+exProgressed(`"t"`, "1.5")+exProgressed(`"t"`, "250"))},
	{"negative progress that grows", rev20251125, exProgress(`"t"`, exProgressed(`"t"`, "-2")+exProgressed(`"t"`, "-1.5"))},
	{"methods, notifications and _meta of a vendor", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"acme/do\",\"params\":{\"_meta\":{\"com.acme/x\":1,\"plain\":null}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"anything\":[]}}\n" +
		"< {\"jsonrpc\":\"2.0\",\"method\":\"acme/news\",\"params\":{\"_meta\":{\"acme.com/\":{}}}}\n> {\"jsonrpc\":\"2.0\",\"method\":\"acme/ack\"}\n< {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"acme/ask\"}\n> {\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":-32601,\"message\":\"no\"}}"},
	{"unknown capabilities", rev20251125, `init client={"experimental":{"x":{}},"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html"]}},"futures":{}} server={"experimental":{"y":{}},"tools":{},"futures":{}}` + "\n" + oddTools("")},
	{"extensions in a modern request", rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"acme/do","params":{"_meta":{$version,$client:{"extensions":{"com.acme/x":{}},"experimental":{}}}}}` + "\n" + `< {"jsonrpc":"2.0","id":2,"result":{"resultType":"acme"}}`},
	{"a server and a client without capabilities", rev20251125, `init client={} server={}` + "\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
	{"a response crosses a cancellation", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n> {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}"},
	{"a cancellation after the response", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}\n> {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1,\"reason\":\"too late\"}}"},
	{"a modern response crosses a cancellation", rev20260728, discovered + "> " + strings.Replace(oddPrompts, `"id":1`, `"id":2`, 1) + "\n> {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":2}}\n< " + strings.Replace(oddNone, `"id":1`, `"id":2`, 1)},
	{"a capture that begins within a session", rev20251125, "gap 100\n< {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"tools\":[]}}\n< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":1}}\n> {\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"tools/call\",\"params\":{\"name\":\"a\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{\"content\":[]}}"},
	{"a server that is restarted twice, with the same ids", rev20251125, "start s\ninit\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n> {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\nexit 0\nstart s\ninit\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\neof >\nexit 0\nstart s\ninit"},
	{"several sessions in one capture", rev20251125, "init\n" + strings.ReplaceAll(strings.ReplaceAll(oddHello+oddWelcome+oddReady, "> ", ">(s=2) "), "< ", "<(s=2) ") + "> {\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}"},
	{"batches both ways", rev20250326, "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"},{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}]\n" +
		"< [{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}]\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n< [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}]\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}},{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}]"},
	{"line ends of Windows, white space, and blank lines", rev20251125, "init\n>(crlf) {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n<(crlf)  { \"jsonrpc\" : \"2.0\" , \"id\" : 1 , \"result\" : { } } \n<"},
	{"a list that changes in the middle", rev20251125, "init\n" + oddTools(`{"name":"b","inputSchema":{"type":"object"}}`) + "< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n" + oddCall(`{"x":1}`, `{"content":[]}`)},
	{"a list that changes while a call runs", rev20251125, "init\n" + oddTools(`{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object","required":["n"]}}`) +
		`> {"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"a"}}` + "\n< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n" + `< {"jsonrpc":"2.0","id":"c","result":{"content":[]}}`},
	{"arguments beyond those in the schema", rev20251125, "init\n" + oddTools(`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"type":"integer"}}}}`) + oddCall(`{"x":1.0,"y":"more"}`, `{"content":[]}`)},
	{"an empty list of tools", rev20251125, "init\n" + oddTools("")},
	{"tool names at the limits", rev20251125, "init\n" + oddTools(`{"name":"A.b-c_d","title":"Übersicht ✓\u202e","inputSchema":{"type":"object"}},{"name":"`+strings.Repeat("x", 128)+`","inputSchema":{"type":"object"}}`)},
	{"pings before notifications/initialized", rev20251125, oddHello + "< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n" + oddWelcome + oddReady},
	{"logs before notifications/initialized", rev20251125, oddHello + strings.Replace(oddWelcome, `"capabilities":{}`, `"capabilities":{"logging":{}}`, 1) + "< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"debug\",\"data\":null}}\n" + oddReady},
	{"structuredContent that is null", rev20260728, modernCall(`{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":["object","null"]}}`, `{}`, `{"resultType":"complete","content":[{"type":"text","text":"null"}],"structuredContent":null}`)},
	{"structuredContent that is a list", rev20260728, modernCall(`{"name":"a","inputSchema":{"type":"object","$schema":"https://json-schema.org/draft/2020-12/schema","if":{"required":["x"]},"then":{"required":["y"]}},"outputSchema":{"type":"array"}}`, `{"x":1,"y":2}`, `{"resultType":"complete","content":[{"type":"text","text":"[]"}],"structuredContent":[]}`)},
	{"a schema with references", rev20251125, "init\n" + oddTools(`{"name":"a","inputSchema":{"type":"object","$defs":{"t":{"type":"object","properties":{"next":{"$ref":"#/$defs/t"}}}},"properties":{"t":{"$ref":"#/$defs/t"}}}}`) + oddCall(`{"t":{"next":{"next":{}}}}`, `{"content":[]}`)},
	{"a call as a task", rev20251125, tasksLegacy("working") + "\n< {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tasks/status\",\"params\":{\"taskId\":\"t\",\"status\":\"completed\",\"createdAt\":\"" + tasksTime + "\",\"lastUpdatedAt\":\"" + tasksTime + "\",\"ttl\":null}}"},
	{"a task that is created while it is requested", rev20260728, tasksCall + "\n" + tasksMade + "\n" + tasksPoll("2", tasksWorking) + "\n" + tasksPoll("3", tasksWorking) + "\n" + tasksPoll("4", tasksDone)},
	{"an empty cursor is a cursor", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[],\"nextCursor\":\"\"}}\n> {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\",\"params\":{\"cursor\":\"\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"tools\":[]}}"},
	{"an error with data and a code of the server's own", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"a\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":429,\"message\":\"\",\"data\":[1,null]}}"},
	{"a resource that is text and one that is empty", rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\",\"params\":{\"uri\":\"custom:x\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"contents\":[{\"uri\":\"custom:x%20y\",\"text\":\"\"},{\"uri\":\"custom:z\",\"blob\":\"\"}]}}"},
	{"elicitation is declined with content, or cancelled", rev20251125, exElicit(`"age":{"type":"integer"}`, `{"action":"cancel"}`) + "\n< {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n> {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"},
	{"a client sends progress", rev20251125, "init\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\",\"params\":{\"_meta\":{\"progressToken\":\"s\"}}}\n> {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"s\",\"progress\":1}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"roots\":[]}}"},
	{"a redacted id, name and arguments", rev20251125, "init\n" + oddTools(`{"name":"a","inputSchema":{"type":"object","required":["x"]}}`) +
		">(red=/msg/params) {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":\"~redacted:params:9c0d11aa34ef:32~\"}\n<(red=/msg/result) {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"~redacted:result:9c0d11aa34ef:32~\"}"},
	{"a completely redacted message", rev20251125, "init\n>(red=/msg) \"~redacted:msg:9c0d11aa34ef:32~\"\n<(red=/msg) \"~redacted:msg:9c0d11aa34ef:32~\""},
}

// oddOverHTTP are unusual valid sessions over HTTP.
var oddOverHTTP = []struct {
	name string
	rev  mcp.Revision
	text string
}{
	{"modern clients in parallel with the same ids", rev20260728, "http\npost " + oddPrompts + "\npost " + oddPrompts + "\nreply(x=2) 200 " + oddNone + "\nreply(x=1) 200 " + oddNone},
	{"a probe of a legacy server, and the handshake", rev20251125, "http\npost " + oddProbe[2:] + "  MCP-Protocol-Version: 2026-07-28\n  Mcp-Method: server/discover\nreply 400 {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,\"message\":\"no session\"}}\ninit\nwait 5m\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
	{"an error that is not JSON", rev20251125, "http\npost " + oddHello[2:] + "  -MCP-Protocol-Version\nreply 502 bad gateway\n  Content-Type: text/plain\nwait 5m\ninit"},
	{"a stream that is resumed, with repeated events", rev20251125, "http\ninit\nget\nstream\nsse(id=1,data)\n<(id=2) {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\nend\nwait 2s\nget\n  Last-Event-ID: 1\nstream\n<(id=2) {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\nend"},
	{"a response on a resumed stream", rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nstream\nsse(id=p1,data,retry=10)\nend\nwait 2s\nget\n  Last-Event-ID: p1\nstream\n<(id=p2) {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nend"},
	{"keep-alives and unknown events", rev20251125, "http\ninit\nget\nstream\nsse(comment=ping)\nsse(event=keepalive) tick\nsse(event=acme) {\"a\":1}\nend"},
	{"a server without sessions", rev20250618, "http\npost " + oddHello[2:] + "  -MCP-Protocol-Version\nreply 200 " + oddWelcome[2:] + "post " + oddReady[2:] + "reply 202\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nget\nreply 405\ndelete\nreply 405"},
	{"a session that ends, and a new one", rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 404\nsession\npost " + oddHello[2:] + "  -MCP-Protocol-Version\nreply 200 " + oddWelcome[2:] + "  Mcp-Session-Id: S2\nsession S2\npost " + oddReady[2:] + "reply 202"},
	{"a client that disconnects before the response", rev20260728, "http\npost " + oddPrompts + "\nend aborted\nwait 5m\npost " + oddPrompts + "\nreply 200 " + oddNone},
	{"header fields of any case, with parameters", rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  -Accept\n  ACCEPT: */*;q=0.8\n  -Content-Type\n  content-type: application/json; charset=UTF-8\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n  Content-Type: Application/JSON;charset=utf-8"},
	{"two Accept fields", rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  Accept: application/json\n  Accept+: text/event-stream\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
	{"batches", rev20250326, "http\ninit\npost [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}]\nstream\n< {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n< [{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}]\nend"},
	{"an older client on a server of several revisions", rev20250326, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
	{"a task whose end is reported before its creation", rev20251125, "http\n" + tasksInit + "\nget\nstream\npost {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"a\",\"task\":{}}}\n" +
		`<(x=3,event=message) {"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"completed","createdAt":"` + tasksTime + `","lastUpdatedAt":"` + tasksTime + `","ttl":null}}` + "\n" +
		`reply 200 {"jsonrpc":"2.0","id":2,"result":{"task":{"taskId":"t","status":"working","createdAt":"` + tasksTime + `","lastUpdatedAt":"` + tasksTime + `","ttl":null}}}`},
	{"both eras in one capture", rev20260728, "http\npost " + oddPrompts + "\nreply 200 " + oddNone + "\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n  -MCP-Protocol-Version\n  -Mcp-Method\n" +
		"reply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}\n  Mcp-Session-Id: S1"},
	{"a number in a header, in another notation", rev20260728, "http\n" + strings.Replace(paramTool, `"type":"string","x-mcp`, `"type":"integer","x-mcp`, 1) + "\n" + strings.Replace(paramCall, `"eu"`, `42`, 1) + "\n  Mcp-Param-Region: 42.0\n" + paramDone},
}

// TestOdd shows that unusual valid sessions have no finding above info.
func TestOdd(t *testing.T) {
	for _, tt := range append(oddOverStdio, oddOverHTTP...) {
		t.Run(tt.name, func(t *testing.T) {
			var bad []Finding
			for _, f := range find(t, Example{tt.rev, tt.text}, nil) {
				if f.Rule.Severity > Info {
					bad = append(bad, f)
				}
			}
			if len(bad) > 0 {
				t.Errorf("findings:\n%s\n%s", brief(bad), Example{tt.rev, tt.text}.Transcript())
			}
		})
	}
}

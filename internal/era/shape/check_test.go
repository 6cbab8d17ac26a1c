package shape_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/era/shape"
	"mcpwire/mcp"
)

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

const (
	r1 = mcp.Revision20241105
	r2 = mcp.Revision20250326
	r3 = mcp.Revision20250618
	r4 = mcp.Revision20251125
	r5 = mcp.Revision20260728
)

func request(method, params string) shape.Message {
	m := shape.Message{Kind: shape.Request, Dir: shape.ToServer, Method: method}
	if params != "" {
		m.Body = []byte(params)
	}
	return m
}

func fromServer(m shape.Message) shape.Message { m.Dir = shape.ToClient; return m }

func notification(method, params string) shape.Message {
	m := request(method, params)
	m.Kind = shape.Notification
	return m
}

func result(method, body string) shape.Message {
	return shape.Message{Kind: shape.Result, Dir: shape.ToClient, Method: method, Body: []byte(body)}
}

func failure(body string) shape.Message {
	return shape.Message{Kind: shape.ErrorObject, Dir: shape.ToClient, Body: []byte(body)}
}

// lines writes problems so that they can be compared.
func lines(problems []shape.Finding) []string {
	var all []string
	for _, p := range problems {
		all = append(all, fmt.Sprintf("%s %s %s: %s", p.Pointer, p.Code, p.Type, p.Message))
	}
	return all
}

// TestClean checks messages that have no problems, though a validator that reads schema.json, or a
// strict reader, might find some.
func TestClean(t *testing.T) {
	for _, tt := range []struct {
		name string
		rev  mcp.Revision
		m    shape.Message
	}{
		{"unknown method", r5, request("vendor/method", `[]`)},
		{"unknown revision", mcp.RevisionNone, request("tools/call", `[]`)},
		{"a revision to come", mcp.Revision(200), request("tools/call", `[]`)},
		{"unknown member", r1, result("tools/list", `{"tools":[{"name":"a","inputSchema":{"type":"object"},"outputSchema":5,"x":null}]}`)},
		{"capabilities null and fractions", r5, request("server/discover", strings.Replace("{"+meta+"}", "Capabilities\":{}", `Capabilities":{"experimental":{"a":{"b":null,"c":1.5}},"extensions":{"a/b":{"c":[null]}},"roots":{"listChanged":true},"vendor":1}`, 1))},
		{"fraction in a form", r5, result("elicitation/create", `{"action":"accept","content":{"a":1.5,"b":"x","c":true,"d":["e"]}}`)},
		{"fraction in a form, legacy", r3, result("elicitation/create", `{"action":"accept","content":{"a":1.5}}`)},
		{"input required", r5, result("tools/call", `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"b":{"type":"string","enum":["c"]}}}}}}}`)},
		{"only a state", r5, result("resources/read", `{"resultType":"input_required","requestState":""}`)},
		{"input request of an extension", r5, result("tools/call", `{"resultType":"input_required","inputRequests":{"a":{"method":"vendor/ask"}}}`)},
		{"task", r5, result("tools/call", `{"resultType":"task","taskId":"t","status":"working","createdAt":"c","lastUpdatedAt":"l","ttlMs":null}`)},
		{"task of another extension", r5, result("prompts/get", `{"resultType":"task"}`)},
		{"unknown kind of result", r5, result("tools/call", `{"resultType":"vendor"}`)},
		{"task, legacy", r4, result("tools/call", `{"task":{"taskId":"t","status":"working","createdAt":"c","lastUpdatedAt":"l","ttl":null}}`)},
		{"get task", r5, result("tasks/get", `{"resultType":"task","taskId":"t","status":"working","createdAt":"c","lastUpdatedAt":"l","ttlMs":5}`)},
		{"task payload", r4, result("tasks/result", `{"content":[]}`)},
		{"empty", r3, result("ping", `{}`)},
		{"empty, modern", r5, result("tasks/cancel", `{"resultType":"complete"}`)},
		{"method unknown", r5, result("", `{"resultType":"complete","tools":5}`)},
		{"no params", r3, request("tools/list", "")},
		{"empty cursor", r3, request("tools/list", `{"cursor":""}`)},
		{"structured null", r5, result("tools/call", `{"resultType":"complete","content":[],"structuredContent":null}`)},
		{"input responses", r5, request("tools/call", `{"name":"a","inputResponses":{"x":{"action":"decline"},"y":{"roots":[]},"z":{"role":"user","model":"m","content":{"type":"text","text":"t"}}},"requestState":"s",`+meta+`}`)},
		{"sampling content in a list", r4, result("sampling/createMessage", `{"role":"assistant","model":"m","content":[{"type":"tool_use","id":"i","name":"n","input":{}}]}`)},
		{"elicit by URL", r4, fromServer(request("elicitation/create", `{"mode":"url","message":"m","url":"https://a/","elicitationId":"e"}`))},
		{"escaped", r3, result("resources/read", `{"contents":[{"uri":"file:\/\/\/a","blob":"\/\/8="}]}`)},
		{"whole number with a point", r3, notification("notifications/progress", `{"progressToken":1.0,"progress":1e2}`)},
		{"base64 in lines", r3, result("tools/call", `{"content":[{"type":"image","mimeType":"image/png","data":"AAAA\nAAAA"}]}`)},
		{"header mismatch", r5, failure(`{"code":-32020,"message":"m"}`)},
		{"code of another revision", r3, failure(`{"code":-32022,"message":"m","data":1}`)},
		{"URL elicitation", r4, failure(`{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","message":"m","url":"https://a/","elicitationId":"e"}],"x":1}}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := lines(shape.Check(tt.rev, tt.m)); got != nil {
				t.Errorf("problems: %q", got)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		name string
		rev  mcp.Revision
		m    shape.Message
		want []string
	}{
		{"missing", r3, request("tools/call", `{}`), []string{` missing CallToolRequestParams: "name" is missing: params of tools/call require it`}},
		{"no params", r5, request("tools/list", ``), []string{` missing PaginatedRequestParams: "params" is missing: tools/list requires it`}},
		{"no metadata", r5, request("tools/list", `{"_meta":{"progressToken":null}}`), []string{
			`/_meta/progressToken wrong-type ProgressToken: "progressToken" is null, but must be a string or an integer`,
			`/_meta missing RequestMetaObject: "io.modelcontextprotocol/protocolVersion" is missing: _meta of every request requires it`,
			`/_meta missing RequestMetaObject: "io.modelcontextprotocol/clientCapabilities" is missing: _meta of every request requires it`}},
		{"params in a list", r3, request("tools/call", `[1]`), []string{` wrong-type CallToolRequestParams: params of tools/call are an array, but must be an object: CallToolRequestParams`}},
		{"params null", r3, request("tools/list", `null`), []string{` wrong-type PaginatedRequestParams: params of tools/list are null, but must be an object: PaginatedRequestParams`}},
		{"deep", r3, result("tools/list", `{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":5,"inputSchema":{"type":"array"}}]}`), []string{
			`/tools/1/name wrong-type Tool: "name" is a number, but must be a string`,
			`/tools/1/inputSchema/type bad-value Tool.inputSchema: "type" is "array", but must be "object"`}},
		{"element", r3, result("completion/complete", `{"completion":{"values":["a",1]}}`), []string{
			`/completion/values/1 wrong-type CompleteResult.completion: element 1 of "values" is a number, but must be a string`}},
		{"fraction", r3, result("resources/list", `{"resources":[{"name":"a","uri":"file:///a","size":1.5}]}`), []string{
			`/resources/0/size wrong-type Resource: "size" is a number with a fraction, but must be an integer`}},
		{"content of a later revision", r1, result("tools/call", `{"content":[{"type":"audio","data":"","mimeType":""}]}`), []string{
			`/content/0/type not-in-revision CallToolResult: "type" is "audio", which is of 2025-03-26, 2025-06-18, 2025-11-25 and 2026-07-28, but must be "text", "image" or "resource" in 2024-11-05`}},
		{"content of none", r4, result("tools/call", `{"content":[{"type":"video"},{"text":"a"},{"type":"tool_use"}]}`), []string{
			`/content/0/type bad-value ContentBlock: "type" is "video", but must be "text", "image", "audio", "resource_link" or "resource"`,
			`/content/1 missing ContentBlock: "type" is missing: it says which of "text", "image", "audio", "resource_link" and "resource" this is`,
			`/content/2/type bad-value ContentBlock: "type" is "tool_use", but must be "text", "image", "audio", "resource_link" or "resource"`}},
		{"no resultType", r5, result("tools/call", `{"content":[]}`), []string{` missing CallToolResult: "resultType" is missing: the result of tools/call requires it`}},
		{"not cacheable", r5, result("tools/list", `{"resultType":"complete","tools":[],"ttlMs":-1}`), []string{
			`/ttlMs bad-value ListToolsResult: "ttlMs" is -1, but must be at least 0`,
			` missing ListToolsResult: "cacheScope" is missing: the result of tools/list requires it`}},
		{"nothing to ask for", r5, result("tools/call", `{"resultType":"input_required"}`), []string{
			` missing InputRequiredResult: "inputRequests" and "requestState" are missing: InputRequiredResult requires one of them`}},
		{"wrong input request", r5, result("tools/call", `{"resultType":"input_required","inputRequests":{"a":{"method":"tools/call"}}}`), []string{
			`/inputRequests/a/method bad-value InputRequest: "method" is "tools/call", but must be "sampling/createMessage", "roots/list" or "elicitation/create"`}},
		{"no such response", r5, request("tools/call", `{"name":"a","inputResponses":{"x":{"error":1}},`+meta+`}`), []string{
			`/inputResponses/x bad-value InputResponse: "x" is none of CreateMessageResult, ListRootsResult and ElicitResult`}},
		{"response", r5, request("tools/call", `{"name":"a","inputResponses":{"x":{"action":"yes"}},`+meta+`}`), []string{
			`/inputResponses/x/action bad-value ElicitResult: "action" is "yes", but must be "accept", "cancel" or "decline"`}},
		{"later method", r3, request("server/discover", `{}`), []string{` not-in-revision : 2025-06-18 has no server/discover: it is of 2026-07-28`}},
		{"earlier method", r5, request("initialize", `{}`), []string{
			` not-in-revision : 2026-07-28 has no initialize: it is of 2024-11-05, 2025-03-26, 2025-06-18 and 2025-11-25`}},
		{"input request as a request", r5, fromServer(request("roots/list", ``)), []string{
			` not-in-revision : roots/list is not a request of 2026-07-28: there it is part of an input_required result`}},
		{"client sends a server's", r3, request("roots/list", ``), []string{` wrong-direction : roots/list is for servers, but a client sent it`}},
		{"server sends a client's", r3, fromServer(request("tools/list", ``)), []string{` wrong-direction : tools/list is for clients, but a server sent it`}},
		{"request without an id", r3, notification("tools/list", ``), []string{` wrong-kind : tools/list is a request, but was sent as a notification, which has no id`}},
		{"twice", r3, request("tools/call", `{"name":"a","name":"b"}`), []string{`/name duplicate CallToolRequestParams: "name" appears twice`}},
		{"format", r3, result("resources/read", `{"contents":[{"uri":"notes","text":"a"},{"uri":"file:///a","blob":"_-8="}]}`), []string{
			`/contents/0/uri bad-format TextResourceContents: "uri" is "notes", but must be a URI: a scheme, a colon, and no spaces`,
			`/contents/1/blob bad-format BlobResourceContents: "blob" must be base64 in the standard alphabet, with padding`}},
		{"mode", r4, fromServer(request("elicitation/create", `{"mode":"url","message":"m"}`)), []string{
			` missing ElicitRequestURLParams: "elicitationId" is missing: params of elicitation/create require it`,
			` missing ElicitRequestURLParams: "url" is missing: params of elicitation/create require it`}},
		{"error", r3, failure(`{"code":1.5,"data":null}`), []string{
			`/code wrong-type Error: "code" is a number with a fraction, but must be an integer`, ` missing Error: "message" is missing: an error requires it`}},
		{"error without data", r5, failure(`{"code":-32021,"message":"m"}`), []string{` missing MissingRequiredClientCapabilityError: "data" is missing: error -32021 requires it`}},
		{"error with a list", r5, failure(`{"code":-32021,"message":"m","data":{"requiredCapabilities":["sampling"]}}`), []string{
			`/data/requiredCapabilities wrong-type ClientCapabilities: "requiredCapabilities" is an array, but must be an object: ClientCapabilities`}},
		{"versions", r5, failure(`{"code":-32022,"message":"m","data":{"supported":[]}}`), []string{
			`/data missing UnsupportedProtocolVersionData: "requested" is missing: UnsupportedProtocolVersionData requires it`}},
		{"related task", r4, request("tools/call", `{"name":"a","_meta":{"io.modelcontextprotocol/related-task":{}}}`), []string{
			`/_meta/io.modelcontextprotocol~1related-task missing RelatedTaskMetadata: "taskId" is missing: RelatedTaskMetadata requires it`}},
		{"no JSON", r3, request("tools/call", `{"name":`), []string{` malformed : params of tools/call: invalid JSON at byte 8: unexpected end`}},
		{"no result", r3, result("ping", ``), []string{` malformed : the result of ping: invalid JSON at byte 0: unexpected end`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := lines(shape.Check(tt.rev, tt.m))
			for i, line := range got {
				if before, _, ok := strings.Cut(line, ": unexpected end"); ok {
					got[i] = before + ": unexpected end"
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNotInRevision checks that a finding names the revisions that have a missing method.
func TestNotInRevision(t *testing.T) {
	problems := shape.Check(r5, request("tasks/list", `{}`))
	if len(problems) != 1 {
		t.Fatalf("got %v", problems)
	}
	want := r5.String() + " has no tasks/list: it is of " + r4.String()
	if got := problems[0].Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBounds checks that hostile input is cheap to check and has few findings.
func TestBounds(t *testing.T) {
	many := result("tools/list", `{"tools":[`+strings.Repeat("1,", 100_000)+`1]}`)
	if got := len(shape.Check(r3, many)); got != shape.MaxFindings {
		t.Errorf("got %d problems", got)
	}
	long := request("prompts/get", `{"name":"a","arguments":{"`+strings.Repeat("é", 100_000)+`":5,"\u001b[31m/~":5}}`)
	problems := shape.Check(r3, long)
	if len(problems) != 2 {
		t.Fatalf("got %v", lines(problems))
	}
	for _, p := range problems {
		if len(p.Pointer) > 200 || len(p.Message) > 300 || strings.ContainsRune(p.Message, 0x1b) {
			t.Errorf("pointer %q, message %q", p.Pointer, p.Message)
		}
	}
	if want := "/arguments/\x1b[31m~1~0"; problems[1].Pointer != want {
		t.Errorf("got %q, want %q", problems[1].Pointer, want)
	}
	deep := request("tools/call", `{"name":"a","arguments":{"a":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}}`)
	if got := shape.Check(r3, deep); len(got) != 1 || got[0].Code != shape.Malformed {
		t.Errorf("got %v", lines(got))
	}
}

// TestSamples shows that samples of all messages of all revisions are clean.
func TestSamples(t *testing.T) {
	count := 0
	for _, rev := range mcp.Revisions() {
		for _, m := range shape.Methods() {
			params, _, ok := m.Params(rev)
			if !ok || m.Input(rev) {
				continue
			}
			for _, all := range []bool{false, true} {
				message := shape.Message{Kind: shape.Request, Method: m.Name, Body: params.AppendSample(nil, all)}
				if m.Notification {
					message.Kind = shape.Notification
				}
				if got := lines(shape.Check(rev, message)); got != nil {
					t.Errorf("%s: %s: %s: %q", rev, m.Name, message.Body, got)
				}
				for _, r := range m.Results(rev) {
					body := r.AppendSample(nil, all || r.Name() == "InputRequiredResult")
					if got := lines(shape.Check(rev, result(m.Name, string(body)))); got != nil {
						t.Errorf("%s: result %s of %s: %s: %q", rev, r.Name(), m.Name, body, got)
					}
					count++
				}
			}
		}
	}
	if count < 150 {
		t.Errorf("only %d results", count)
	}
}

// TestMatrix checks which revision has which method, and who sends it, against the specification's
// pages.
func TestMatrix(t *testing.T) {
	// For each revision: c and s for what clients and servers send, b for both, i for an input
	// request, e for the tasks extension.
	want := map[string]string{
		"initialize": "cccc-", "server/discover": "----c", "ping": "bbbb-", "tools/list": "ccccc", "tools/call": "ccccc", "resources/list": "ccccc",
		"resources/templates/list": "ccccc", "resources/read": "ccccc", "resources/subscribe": "cccc-", "resources/unsubscribe": "cccc-", "prompts/list": "ccccc",
		"prompts/get": "ccccc", "completion/complete": "ccccc", "logging/setLevel": "cccc-", "subscriptions/listen": "----c", "sampling/createMessage": "ssssi",
		"roots/list": "ssssi", "elicitation/create": "--ssi", "tasks/get": "---be", "tasks/result": "---b-", "tasks/list": "---b-", "tasks/cancel": "---be",
		"tasks/update": "----e", "notifications/initialized": "cccc-", "notifications/cancelled": "bbbbb", "notifications/progress": "bbbbs",
		"notifications/message": "sssss", "notifications/resources/list_changed": "sssss", "notifications/resources/updated": "sssss",
		"notifications/tools/list_changed": "sssss", "notifications/prompts/list_changed": "sssss", "notifications/roots/list_changed": "cccc-",
		"notifications/elicitation/complete": "---s-", "notifications/tasks/status": "---b-", "notifications/subscriptions/acknowledged": "----s",
		"notifications/tasks": "----e",
	}
	got := map[string]string{}
	for _, m := range shape.Methods() {
		for _, r := range mcp.Revisions() {
			sign := "-"
			switch {
			case m.Extension(r):
				sign = "e"
			case m.Input(r):
				sign = "i"
			case m.FromClient(r) && m.FromServer(r):
				sign = "b"
			case m.FromClient(r):
				sign = "c"
			case m.FromServer(r):
				sign = "s"
			}
			got[m.Name] += sign
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("methods (-want +got):\n%s", diff)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(uint8(5), uint8(1), "tools/call", []byte(`{"name":"a","inputResponses":{"x":{"action":"accept"}}}`))
	f.Add(uint8(5), uint8(3), "tools/call", []byte(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"form"}}}}`))
	f.Add(uint8(1), uint8(3), "tools/call", []byte(`{"content":[{"type":"audio"}]}`))
	f.Add(uint8(4), uint8(4), "", []byte(`{"code":-32042,"message":"","data":{"elicitations":[{}]}}`))
	f.Fuzz(func(t *testing.T, rev, kind uint8, method string, body []byte) {
		problems := shape.Check(mcp.Revision(rev), shape.Message{Kind: shape.MessageKind(kind), Dir: shape.Direction(rev % 3), Method: method, Body: body})
		if len(problems) > shape.MaxFindings {
			t.Errorf("%d problems", len(problems))
		}
		for _, p := range problems {
			if p.Code.String() == "" || p.Message == "" || strings.ContainsAny(p.Message, "\n\x1b\x00") || len(p.Message) > 2000 {
				t.Errorf("problem %+q", p)
			}
		}
	})
}

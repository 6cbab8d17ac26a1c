package mcp

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exact are texts that are encoded as they were decoded.
var exact = []struct {
	typ, text string
	extra     string // JSON text of Extra: members without a field
}{
	{"ListToolsResult", `{"tools":[],"ttlMs":0,"cacheScope":"public","resultType":"complete"}`, ""},
	{"ListToolsResult", `{"tools":[],"nextCursor":""}`, ""},
	{"ListToolsResult", `{"tools":[],"nextCursor":null,"ttlMs":null}`, `{"nextCursor":null,"ttlMs":null}`},
	{"PaginatedRequestParams", `{"cursor":""}`, ""},
	{"PaginatedRequestParams", `{}`, ""},
	{"CallToolResult", `{"content":[]}`, ""},
	{"CallToolResult", `{"content":[],"structuredContent":null}`, ""},
	{"CallToolResult", `{"content":[],"structuredContent":{"a":[1.50,"x"]},"isError":true}`, ""},
	{"CallToolResult", `{"content":[],"isError":false,"_meta":{}}`, `{"isError":false}`},
	{"CallToolResult", `{"content":[{"type":"hologram","at":[1]},{"type":"text","text":"","x":1}],"y":{"z":null}}`, `{"y":{"z":null}}`},
	// sampling alone has tool_use
	{"CallToolResult", `{"content":[{"type":"tool_use","id":1}]}`, ""},
	{"SamplingMessage", `{"role":"user","content":{"type":"tool_result","toolUseId":"1","content":[{"type":"tool_result"}],"structuredContent":null}}`, ""},
	{"Tool", `{"name":"","title":"","inputSchema":{},"icons":[]}`, `{"title":""}`},
	{"Tool", `{"name":"n","description":null,"inputSchema":{},"annotations":{},"_meta":null}`, `{"description":null,"_meta":null}`},
	{"ToolAnnotations", `{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":null}`, `{"idempotentHint":null}`},
	{"ClientCapabilities", `{"roots":{},"sampling":{"context":{}},"elicitation":{},"experimental":{},"extensions":{"a/b":{}},"future":{}}`, `{"future":{}}`},
	{"ServerCapabilities", `{"logging":{},"completions":{},"prompts":{"listChanged":false},"tools":{"listChanged":true}}`, ""},
	{"CallToolRequestParams", `{"name":"n","arguments":{},"inputResponses":{},"requestState":""}`, ""},
	{"CallToolRequestParams", `{"name":"n","arguments":null}`, `{"arguments":null}`},
	{"GetPromptRequestParams", `{"name":"n","arguments":{}}`, ""},
	{"GetPromptRequestParams", `{"name":"n","arguments":{"b":"","a":"\u00e9"}}`, ""},
	{"ResourceContents", `{"uri":"a:b","text":""}`, ""},
	{"ResourceContents", `{"uri":"a:b","blob":""}`, ""},
	{"ResourceContents", `{"uri":"a:b","blob":"\/\/8=","text":null,"mimeType":""}`, `{"text":null,"mimeType":""}`},
	{"ProgressNotificationParams", `{"progressToken":"\u0061","progress":0,"total":0}`, ""},
	{"ProgressNotificationParams", `{"progressToken":9007199254740993,"progress":0.25}`, ""},
	{"LoggingMessageNotificationParams", `{"level":"error","data":null}`, ""},
	{"SamplingMessage", `{"role":"user","content":{"type":"text","text":"t"}}`, ""},
	{"SamplingMessage", `{"role":"user","content":[{"type":"text","text":"t"}]}`, `{"content":[]}`},
	{"SamplingMessage", `{"role":"user","content":[]}`, ""},
	{"SamplingMessage", `{"role":"user","content":[{"type":"text","text":"t"},{"type":"tool_use","id":"1","name":"n","input":{}}]}`, ""},
	{"Task", `{"taskId":"1","status":"working","createdAt":"c","lastUpdatedAt":"l","ttl":null}`, ""},
	{"Task", `{"taskId":"1","status":"working","createdAt":"c","lastUpdatedAt":"l","ttl":0,"pollInterval":0}`, ""},
	{"GetTaskResult", `{"taskId":"1","status":"failed","statusMessage":"m","createdAt":"c","lastUpdatedAt":"l","ttl":1,"x":1,"_meta":{}}`, `{"x":1}`},
	{"GetTaskPayloadResult", `{"content":[],"isError":true,"_meta":{}}`, `{"content":[],"isError":true}`},
	{"DetailedTask", `{"taskId":"1","status":"failed","createdAt":"c","lastUpdatedAt":"l","ttlMs":null,"error":{"code":-1,"message":"m","data":{}},"resultType":"complete"}`, ""},
	{"ExtensionCreateTaskResult", `{"resultType":"task","taskId":"1","status":"working","createdAt":"c","lastUpdatedAt":"l","ttlMs":60000,"pollIntervalMs":0}`, ""},
	{"InputRequiredResult", `{"resultType":"input_required","requestState":""}`, ""},
	{"InputRequiredResult", `{"resultType":"input_required","inputRequests":{"b":{"method":"roots/list"},"a":{"method":"m","params":{}}}}`, ""},
	{"CompleteRequestParams", `{"ref":{"type":"ref/prompt","name":"n"},"argument":{"name":"","value":""},"context":{"arguments":{}}}`, ""},
	{"CompleteRequestParams", `{"ref":{"uri":"a:{b}","type":"ref/resource","x":1},"argument":{"name":"n","value":"v"},"context":{}}`, ""},
	{"CompleteResult", `{"completion":{"values":[],"total":0,"hasMore":false}}`, ""},
	{"SubscriptionFilter", `{"toolsListChanged":false,"resourceSubscriptions":[],"taskIds":["1"]}`, `{"toolsListChanged":false}`},
}

// TestPresence checks that encoding preserves the members of the decoded text and their form.
func TestPresence(t *testing.T) {
	for _, tt := range exact {
		v := codecs[tt.typ]()
		if err := json.Unmarshal([]byte(tt.text), v); err != nil {
			t.Errorf("%s: %s: %v", tt.typ, tt.text, err)
			continue
		}
		if diff := cmp.Diff(tt.extra, string(reflect.ValueOf(v).Elem().FieldByName("Extra").Bytes())); diff != "" {
			t.Errorf("%s: %s: Extra (-want +got):\n%s", tt.typ, tt.text, diff)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Errorf("%s: %s: %v", tt.typ, tt.text, err)
		}
		equalJSON(t, []byte(tt.text), text)
	}
}

// TestAbsence checks how a zero value is encoded where a member is required.
func TestAbsence(t *testing.T) {
	for typ, want := range map[string]string{
		"ListToolsResult":                  `{"tools":[]}`,
		"CallToolResult":                   `{"content":[]}`,
		"Tool":                             `{"name":"","inputSchema":{"type":"object"}}`,
		"ToolUseContent":                   `{"type":"tool_use","id":"","name":"","input":{}}`,
		"LoggingMessageNotificationParams": `{"data":null}`,
		"InputRequiredResult":              `{"resultType":"input_required"}`,
		"CreateMessageRequestParams":       `{"messages":[],"maxTokens":0}`,
		"SamplingMessage":                  `{"role":"","content":[]}`,
		"PromptMessage":                    `{"role":""}`,
		"CompleteRequestParams":            `{"argument":{"name":"","value":""}}`,
		"Task":                             `{"taskId":"","status":"","createdAt":"","lastUpdatedAt":"","ttl":null}`,
		"GetTaskResult":                    `{"taskId":"","status":"","createdAt":"","lastUpdatedAt":"","ttl":null}`,
		"ImageContent":                     `{"type":"image","data":"","mimeType":""}`,
		"InitializeRequestParams":          `{"protocolVersion":"","capabilities":{},"clientInfo":{"name":"","version":""}}`,
		"UpdateTaskRequestParams":          `{"taskId":"","inputResponses":{}}`,
		"Result":                           `{}`,
	} {
		if diff := cmp.Diff(want, string(codecs[typ]().appendRevision(nil, RevisionNone))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", typ, diff)
		}
	}
}

// TestExtra shows that a field that is set has precedence over a member of Extra.
func TestExtra(t *testing.T) {
	var tool Tool
	if err := tool.UnmarshalJSON([]byte(`{"name":"n","title":"","inputSchema":{},"x":1,"x":2,"\u0074itl\u0065":""}`)); err == nil {
		t.Error("a duplicate title was accepted")
	}
	if err := tool.UnmarshalJSON([]byte("{\"name\":\"n\",\"t\\u0069tle\":\"\",\"inputSchema\":{},\"x\": [1,\n2]}")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"name":"n","inputSchema":{},"t\u0069tle":"","x":[1,2]}`, string(tool.appendRevision(nil, RevisionNone))); diff != "" {
		t.Errorf("as read (-want +got):\n%s", diff)
	}
	tool.Title = "T"
	if diff := cmp.Diff(`y{"name":"n","title":"T","inputSchema":{},"x":[1,2]}`, string(tool.appendRevision([]byte("y"), RevisionNone))); diff != "" {
		t.Errorf("with a title (-want +got):\n%s", diff)
	}
	task := GetTaskResult{Task: Task{TTL: new(int64), Extra: json.RawMessage(`{"ttl":1,"a":1}`)}, Extra: json.RawMessage(`{"a":2,"b":2,"_meta":{}}`), Meta: json.RawMessage(`{"c":3}`)}
	if diff := cmp.Diff(`{"taskId":"","status":"","createdAt":"","lastUpdatedAt":"","ttl":0,"_meta":{"c":3},"a":1,"b":2}`, string(task.appendRevision(nil, RevisionNone))); diff != "" {
		t.Errorf("embedded (-want +got):\n%s", diff)
	}
}

// TestMissingContent shows that the content of a tool's result may be missing or null, as in the
// results of some servers with structured content only.
func TestMissingContent(t *testing.T) {
	for _, text := range []string{`{"structuredContent":{"a":1}}`, `{"content":null,"structuredContent":{"a":1}}`} {
		var v CallToolResult
		if err := v.UnmarshalJSON([]byte(text)); err != nil || len(v.Content) > 0 || string(v.StructuredContent) != `{"a":1}` {
			t.Errorf("%s: got %+v, %v", text, v, err)
		}
		if got, want := string(v.appendRevision(nil, RevisionNone)), `{"content":[],"structuredContent":{"a":1}}`; got != want {
			t.Errorf("%s: written as %s, want %s", text, got, want)
		}
	}
}

// TestRoundTrip shows that a value of each type, with all members, is decoded as it was encoded.
func TestRoundTrip(t *testing.T) {
	for typ := range codecs {
		for variant := range variants(typ) {
			v := filled(t, typ, variant)
			text := v.appendRevision(nil, RevisionNone)
			back := codecs[typ]()
			if err := json.Unmarshal(text, back); err != nil {
				t.Errorf("%s: %v: %s", typ, err, text)
				continue
			}
			if diff := cmp.Diff(v, back); diff != "" {
				t.Errorf("%s (-want +got):\n%s", typ, diff)
			}
			marshaled, err := json.Marshal(reflect.ValueOf(back).Elem().Interface()) // by value
			if err != nil || string(marshaled) != string(text) {
				t.Errorf("%s: Marshal: %s, %v; want %s", typ, marshaled, err, text)
			}
			if err := json.Unmarshal(text, back); err != nil || string(back.appendRevision(nil, RevisionNone)) != string(text) {
				t.Errorf("%s: read over another value: %s, %v", typ, back.appendRevision(nil, RevisionNone), err)
			}
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	for _, tt := range []struct{ typ, text, want string }{
		{"ListToolsResult", `[]`, "expected an object"},
		{"ListToolsResult", `{}`, "tools: missing"},
		{"ListToolsResult", `{"tools":null}`, "tools: expected an array"},
		{"ListToolsResult", `{"tools":[{"name":"a","inputSchema":{}},7]}`, "tools[1]: expected an object"},
		{"ListToolsResult", `{"tools":[{"name":"a","inputSchema":{},"title":7}]}`, "tools[0].title: expected a string"},
		{"ListToolsResult", `{"tools":[{"name":"a","inputSchema":{},"icons":[{"src":"","sizes":["",1]}]}]}`, "tools[0].icons[0].sizes[1]: expected a string"},
		{"ListToolsResult", `{"tools":[{"name":"a"}]}`, "tools[0].inputSchema: missing"},
		{"ListToolsResult", `{"tools":[],"tools":[]}`, "tools: appears twice"},
		{"ListToolsResult", `{"tools":[],"nextCursor":null,"next\u0043ursor":"a"}`, "nextCursor: appears twice"},
		{"ListToolsResult", `{"tools":[],"ttlMs":1.5}`, "ttlMs: expected an integer"},
		{"ListToolsResult", `{"tools":[],"ttlMs":1e99}`, "ttlMs: expected an integer"},
		{"ListToolsResult", `{"tools":[],"ttlMs":"1"}`, "ttlMs: expected an integer"},
		{"ListToolsResult", `{"tools":[],"_meta":[]}`, "_meta: expected an object"},
		{"Tool", `{"name":null,"inputSchema":{}}`, "name: expected a string"},
		{"Tool", `{"name":"n","inputSchema":true}`, "inputSchema: expected an object"},
		{"Tool", `{"name":"n","inputSchema":{},"annotations":{"openWorldHint":"yes"}}`, "annotations.openWorldHint: expected a boolean"},
		{"CallToolResult", `{"content":{}}`, "content: expected an array"},
		{"CallToolResult", `{"content":[null]}`, "content[0]: expected an object"},
		{"CallToolResult", `{"content":[{"text":""}]}`, "content[0].type: missing"},
		{"CallToolResult", `{"content":[{"type":1}]}`, "content[0].type: expected a string"},
		{"CallToolResult", `{"content":[{"type":"text"}]}`, "content[0].text: missing"},
		{"CallToolResult", `{"content":[{"type":"text","type":"text","text":""}]}`, "content[0].type: appears twice"},
		{"CallToolResult", `{"content":[{"type":"image","data":"?","mimeType":""}]}`, "content[0].data: expected base64"},
		{"CallToolResult", `{"content":[{"type":"image","data":"YWJ\nj","mimeType":""}]}`, "content[0].data: expected base64"},
		{"CallToolResult", `{"content":[{"type":"image","data":"YWJ\rj","mimeType":""}]}`, "content[0].data: expected base64"},
		{"CallToolResult", `{"content":[{"type":"image","data":"YWK=","mimeType":""}]}`, "content[0].data: expected base64"},
		{"CallToolResult", `{"content":[{"type":"image","data":[],"mimeType":""}]}`, "content[0].data: expected a string"},
		{"CallToolResult", `{"content":[],"isError":0}`, "isError: expected a boolean"},
		{"ReadResourceResult", `{"contents":[{"uri":"a:b"}]}`, "contents[0].text: missing, like blob"},
		{"ReadResourceResult", `{"contents":[{"uri":"a:b","text":"","blob":""}]}`, "contents[0].blob: text and blob exclude each other"},
		{"GetPromptRequestParams", `{"name":"n","arguments":{"a":1}}`, "arguments.a: expected a string"},
		{"GetPromptRequestParams", `{"name":"n","arguments":{"a":"","\u0061":""}}`, "arguments.a: appears twice"},
		{"GetPromptRequestParams", `{"name":"n","arguments":[]}`, "arguments: expected an object"},
		{"GetPromptResult", `{"messages":[{"role":"user"}]}`, "messages[0].content: missing"},
		{"CallToolRequestParams", `{"name":"n","inputResponses":{"k":1}}`, "inputResponses.k: expected an object"},
		{"CompleteRequestParams", `{"ref":{},"argument":{"name":"","value":""}}`, `ref.type: expected "ref/prompt" or "ref/resource"`},
		{"CompleteRequestParams", `{"ref":7,"argument":{"name":"","value":""}}`, `ref: expected an object`},
		{"CompleteRequestParams", `{"ref":{"type":"ref/prompt"},"argument":{"name":"","value":""}}`, `ref.name: missing`},
		{"CompleteRequestParams", `{"ref":{"type":"ref/prompt","name":""},"argument":{"name":""}}`, `argument.value: missing`},
		{"SetLevelRequestParams", `{"level":"loud"}`, "level: expected one of debug, info, notice, warning, error, critical, alert, emergency"},
		{"ProgressNotificationParams", `{"progressToken":1.5,"progress":1}`, "progressToken: expected a string or an integer"},
		{"ProgressNotificationParams", `{"progressToken":1,"progress":"1"}`, "progress: expected a number"},
		{"ProgressNotificationParams", `{"progressToken":1,"progress":1e999}`, "progress: expected a number"},
		{"TextContent", `{"type":"image","text":""}`, `type: expected "text"`},
		{"InputRequiredResult", `{"inputRequests":{"k":{}}}`, "inputRequests.k.method: missing"},
		{"InputRequiredResult", `{"inputRequests":{"k":{"method":"m","params":[]}}}`, "inputRequests.k.params: expected an object"},
		{"DetailedTask", `{"taskId":"1","status":"failed","createdAt":"c","lastUpdatedAt":"l"}`, "ttlMs: missing"},
		{"DetailedTask", `{"taskId":"1","status":"failed","createdAt":"c","lastUpdatedAt":"l","ttlMs":1,"error":1}`, "error: expected an object"},
		{"DetailedTask", `{"taskId":"1","status":"failed","createdAt":"c","lastUpdatedAt":"l","ttlMs":1,"error":{"code":1}}`, "error.message: missing"},
		{"SamplingMessage", `{"role":"user","content":null}`, "content: expected an object"},
		{"SamplingMessage", `{"role":"user","content":[{}]}`, "content[0].type: missing"},
		{"Root", `{"uri":"a","` + strings.Repeat("é", 40) + `":1,"name":1}`, "name: expected a string"},
		{"ClientCapabilities", `{"experimental":{"` + strings.Repeat("é", 40) + `":1}}`, "experimental." + strings.Repeat("é", 30) + "…: expected an object"},
	} {
		err := json.Unmarshal([]byte(tt.text), codecs[tt.typ]())
		var decode *DecodeError
		if !errors.As(err, &decode) || err.Error() != tt.want {
			t.Errorf("%s: %s: got %v, want %s", tt.typ, tt.text, err, tt.want)
		}
	}
}

func TestParseContent(t *testing.T) {
	for text, want := range map[string]ContentBlock{
		`{"type":"text","text":"t"}`:                         TextContent{Text: "t"},
		`{"type":"tool_use","id":"1","name":"n","input":{}}`: ToolUseContent{ID: "1", Name: "n", Input: json.RawMessage("{}")},
		`{"type":"hologram"}`:                                UnknownContent{Raw: json.RawMessage(`{"type":"hologram"}`)},
		`{"type":"audio"}`:                                   nil,
		`{"type":""}`:                                        nil,
		`7`:                                                  nil,
		`{"type":"image","data":"QQ==","mimeType":"image/x"}`: ImageContent{Data: []byte("A"), MIMEType: "image/x"},
	} {
		got, err := ParseContent([]byte(text))
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
		if want != nil {
			marshaled, err := json.Marshal(got)
			if err != nil {
				t.Error(err)
			}
			equalJSON(t, []byte(text), marshaled)
		}
	}
}

// TestOwnMemory shows that a value does not alias the text that it was decoded from.
func TestOwnMemory(t *testing.T) {
	for typ := range codecs {
		text := append([]byte(nil), filled(t, typ, 0).appendRevision(nil, RevisionNone)...)
		text = append(text[:len(text)-1], `,"more":{"a":"b"}}`...)
		if text[1] == ',' {
			text = slices.Delete(text, 1, 2)
		}
		v := codecs[typ]()
		if err := v.UnmarshalJSON(text); err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		before := string(v.appendRevision(nil, RevisionNone))
		for i := range text {
			text[i] = 'x'
		}
		if diff := cmp.Diff(before, string(v.appendRevision(nil, RevisionNone))); diff != "" {
			t.Errorf("%s changed with the text (-before +after):\n%s", typ, diff)
		}
	}
}

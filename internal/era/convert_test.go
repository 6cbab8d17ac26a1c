package era

import (
	"testing"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

func TestRewrite(t *testing.T) {
	drop := func(m *jsonwire.Members) []byte {
		if m.KeyIs("ab") {
			return nil
		}
		return m.Value()
	}
	for _, tt := range []struct{ obj, added, want string }{
		{`{}`, ``, `{}`},
		{`{}`, `"x":1`, `{"x":1}`},
		{`{ "a\u0062" : 1 }`, ``, `{}`},
		{`{"a\u0062":1}`, `"x":1`, `{"x":1}`},
		{`{ "a" : [1,  2] , "ab":3, "\u0063":1e400 }`, `"x":1`, `{"a":[1,  2],"\u0063":1e400,"x":1}`},
	} {
		if got := string(Rewrite(nil, []byte(tt.obj), drop, []byte(tt.added))); got != tt.want {
			t.Errorf("%s + %s: got %s, want %s", tt.obj, tt.added, got, tt.want)
		}
	}
	odd := func(v []byte) []byte {
		if string(v) == "2" {
			return nil
		}
		return v
	}
	for arr, want := range map[string]string{`[]`: `[]`, `[2]`: `[]`, `[1, 2 ,{"a": 3}]`: `[1,{"a": 3}]`} {
		if got := string(RewriteArray(nil, []byte(arr), odd)); got != want {
			t.Errorf("%s: got %s, want %s", arr, got, want)
		}
	}
}

func TestConvertCapabilities(t *testing.T) {
	modern, latest, first := Of(mcp.Revision20260728), Of(mcp.Revision20251125), Of(mcp.Revision20241105)
	const ext = `"extensions":{"io.modelcontextprotocol/tasks":{}}`
	for _, tt := range []struct {
		caps  string
		to    *Features
		tasks bool
		want  string
	}{
		{`{}`, modern, false, `{}`},
		{``, modern, false, `{}`},
		{`{}`, modern, true, `{` + ext + `}`},
		{`{}`, latest, true, `{}`},
		{`{"roots":{"listChanged":true,"x":1},"tasks":{},"sampling":null,"experimental":{"a":null}}`, modern, true, `{"roots":{"x":1},"experimental":{"a":null},` + ext + `}`},
		{`{"extensions":{"a/b":{},"io.modelcontextprotocol/tasks":{}}}`, modern, false, `{"extensions":{"a/b":{}}}`},
		{`{"extensions":{"a/b":{}}}`, modern, true, `{"extensions":{"a/b":{},"io.modelcontextprotocol/tasks":{}}}`},
		{`{` + ext + `,"elicitation":{"form":{}}}`, latest, false, `{"elicitation":{"form":{}}}`},
		{`{"elicitation":{}}`, first, false, `{}`},
	} {
		if got := string(ConvertClientCapabilities(nil, []byte(tt.caps), tt.to, tt.tasks)); got != tt.want {
			t.Errorf("client %s, %v: got %s, want %s", tt.caps, tt.to.Revision, got, tt.want)
		}
	}
	for _, tt := range []struct {
		caps string
		to   *Features
		want string
	}{
		{`null`, latest, `{}`},
		{`{` + ext + `,"completions":{}}`, latest, `{"completions":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}`},
		{`{` + ext + `,"completions":{}}`, first, `{}`},
		{`{"tools":{"listChanged":true},"tasks":{"requests":{"tools":{"call":{}}}}}`, modern, `{"tools":{"listChanged":true},` + ext + `}`},
		{`{"extensions":{"a/b":{}},"tasks":{"requests":{"tools":{"call":{}}}}}`, modern, `{"extensions":{"a/b":{},"io.modelcontextprotocol/tasks":{}}}`},
		{`{"tasks":{"list":{}}}`, modern, `{}`},
	} {
		if got := string(ConvertServerCapabilities(nil, []byte(tt.caps), tt.to)); got != tt.want {
			t.Errorf("server %s, %v: got %s, want %s", tt.caps, tt.to.Revision, got, tt.want)
		}
	}
}

func TestImpliedCapabilities(t *testing.T) {
	first, second := Of(mcp.Revision20241105), Of(mcp.Revision20250326)
	for _, tt := range []struct {
		caps string
		f    *Features
		want string
	}{
		{`{"prompts":{}}`, first, `{"prompts":{},"completions":{}}`},
		{`{"prompts":{}}`, second, `{"prompts":{}}`},
		{`{"tools":{}}`, first, `{"tools":{}}`},
		{`{"resources":{},"completions":{"a":1}}`, first, `{"resources":{},"completions":{"a":1}}`},
	} {
		if got := string(ImpliedCapabilities([]byte(tt.caps), tt.f)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.caps, got, tt.want)
		}
	}
}

func TestConvertError(t *testing.T) {
	modern, legacy := Of(mcp.Revision20260728), Of(mcp.Revision20251125)
	for _, tt := range []struct {
		code   jsonrpc.Code
		data   string
		method string
		to     *Features
		want   jsonrpc.Code
		data2  string
	}{
		{-32002, `{"uri":"x"}`, mcp.MethodResourcesRead, modern, -32602, `{"uri":"x"}`},
		{-32019, ``, mcp.MethodToolsList, modern, -32019, ``},
		{-32020, ``, mcp.MethodToolsList, modern, -32603, `{"code":-32020}`},
		{-32099, `[1]`, mcp.MethodToolsList, modern, -32603, `{"code":-32099,"data":[1]}`},
		{-32100, ``, mcp.MethodToolsList, modern, -32100, ``},
		{-32602, `{"uri":"x"}`, mcp.MethodResourcesRead, legacy, -32002, `{"uri":"x"}`},
		{-32602, `{"uri":"x"}`, mcp.MethodToolsCall, legacy, -32602, `{"uri":"x"}`},
		{-32602, ``, mcp.MethodResourcesRead, legacy, -32602, ``},
		{-32021, `{}`, mcp.MethodPromptsGet, legacy, -32600, `{}`},
		{-32022, `{}`, mcp.MethodPromptsGet, legacy, -32603, `{"code":-32022,"data":{}}`},
		{-1, ``, mcp.MethodPromptsGet, legacy, -1, ``},
	} {
		e := ConvertError(&jsonrpc.Error{Code: tt.code, Message: "m", Data: []byte(tt.data)}, tt.method, tt.to)
		if e.Code != tt.want || string(e.Data) != tt.data2 || e.Message != "m" {
			t.Errorf("%d of %s to %v: got %d, %s", tt.code, tt.method, tt.to.Revision, e.Code, e.Data)
		}
	}
}

func TestResultToModern(t *testing.T) {
	info := []byte(`{"name":"s"}`)
	const name = `"io.modelcontextprotocol/serverInfo":{"name":"s"}`
	for _, tt := range []struct {
		method, result string
		info           []byte
		want           string
	}{
		{mcp.MethodToolsCall, `{}`, nil, `{"resultType":"complete"}`},
		{mcp.MethodToolsCall, `{}`, info, `{"resultType":"complete","_meta":{` + name + `}}`},
		{mcp.MethodToolsCall, `{"resultType":"task","ttlMs":1}`, nil, `{"ttlMs":1,"resultType":"complete"}`},
		{mcp.MethodToolsList, `{"tools":[],"_meta":{"a":1}}`, info, `{"tools":[],"_meta":{"a":1,` + name + `},"ttlMs":5,"cacheScope":"public","resultType":"complete"}`},
		{mcp.MethodToolsList, `{"ttlMs":0,"cacheScope":"private","_meta":{` + name + `}}`, []byte(`{}`), `{"ttlMs":0,"cacheScope":"private","_meta":{` + name + `},"resultType":"complete"}`},
		{mcp.MethodToolsList, `{"ttlMs":1.5,"ttlMs":2,"ttlMs":3,"cacheScope":7}`, nil, `{"ttlMs":2,"cacheScope":"public","resultType":"complete"}`},
	} {
		if got := string(ResultToModern(nil, []byte(tt.result), tt.method, tt.info, CacheHints{5, true})); got != tt.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", tt.method, tt.result, got, tt.want)
		}
	}
}

func TestResultToLegacy(t *testing.T) {
	for _, tt := range []struct {
		method, result string
		to             mcp.Revision
		want           string
	}{
		{mcp.MethodToolsCall, `{"content":[],"resultType":"complete","ttlMs":1,"_meta":{"io.modelcontextprotocol/serverInfo":{}}}`, mcp.Revision20251125, `{"content":[],"ttlMs":1}`},
		{mcp.MethodToolsList, `{"tools":[7,{"name":"a"}],"ttlMs":1,"cacheScope":"public"}`, mcp.Revision20251125, `{"tools":[7,{"name":"a"}]}`},
		{mcp.MethodToolsList, `{"tools":[7,{"outputSchema":{"type":"object"}},{"outputSchema":{"type":"array"},"a":1},{"outputSchema":true}]}`, mcp.Revision20250618, `{"tools":[7,{"outputSchema":{"type":"object"}},{"a":1},{}]}`},
		{mcp.MethodToolsList, `{"tools":[{"outputSchema":{"type":"object"}}]}`, mcp.Revision20250326, `{"tools":[{}]}`},
		{mcp.MethodToolsCall, `{"structuredContent":{}}`, mcp.Revision20250326, `{}`},
		{mcp.MethodToolsCall, `{"structuredContent":null}`, mcp.Revision20251125, `{}`},
		{mcp.MethodToolsCall, `{"content":[7,{"type":"text","text":"t","x":1},{"type":"audio","data":"YQ==","mimeType":"a/b"}]}`, mcp.Revision20250326, `{"content":[7,{"type":"text","text":"t","x":1},{"type":"audio","data":"YQ==","mimeType":"a/b"}]}`},
		{mcp.MethodToolsCall, `{"content":[{"type":"resource_link","uri":"a:b","name":"n"},{"type":"audio","data":7}]}`, mcp.Revision20241105, `{"content":[{"type":"text","text":"[resource n: a:b]"},{"type":"audio","data":7}]}`},
	} {
		if got := string(ResultToLegacy(nil, []byte(tt.result), tt.method, Of(tt.to))); got != tt.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", tt.method, tt.result, got, tt.want)
		}
	}
}

func TestInput(t *testing.T) {
	modern, latest, third, first := Of(mcp.Revision20260728), Of(mcp.Revision20251125), Of(mcp.Revision20250618), Of(mcp.Revision20241105)
	const form, page, sample, roots = mcp.MethodElicit, "url", mcp.MethodCreateMessage, mcp.MethodRootsList
	const url = `{"mode":"url","message":"m","url":"u"}`
	for _, tt := range []struct {
		method, params, caps string
		f                    *Features
		missing              string
	}{
		{form, `{}`, `{}`, modern, "elicitation by form"},
		{form, `{}`, `{"elicitation":{}}`, modern, ""},
		{form, `{}`, `{"elicitation":{"url":{}}}`, latest, "elicitation by form"},
		{form, `{}`, `{"elicitation":{"url":{}}}`, third, ""}, // which knows no modes
		{form, url, `{"elicitation":{}}`, modern, "elicitation by URL"},
		{form, url, `{"elicitation":{"url":{}}}`, modern, ""},
		{sample, `{}`, `{}`, latest, "sampling"},
		{sample, `{"tools":[]}`, `{"sampling":{}}`, latest, "sampling with tools"},
		{sample, `{"tools":[]}`, `{"sampling":{"tools":{}}}`, latest, ""},
		{roots, ``, `{}`, latest, "roots"},
		{roots, ``, `{"roots":{}}`, first, ""},
	} {
		a := InputRequest{tt.method, []byte(tt.params)}
		if required, missing := a.MissingCapability(&Client{Capabilities: []byte(tt.caps)}, tt.f); missing != tt.missing || (required == nil) != (missing == "") {
			t.Errorf("%s %s of %s: got %q, %s", tt.method, tt.params, tt.caps, missing, required)
		}
	}
	for _, tt := range []struct {
		method, params string
		to             *Features
		want           string
	}{
		{form, url, latest, `{"mode":"url","message":"m","url":"u","elicitationId":"ID"}`},
		{form, `{"mode":"url","elicitationId":"x","task":{},"_meta":{"progressToken":1}}`, modern, `{"mode":"url"}`},
		{form, `{"mode":"form","_meta":{"progressToken":1,"a":2}}`, third, `{"_meta":{"a":2}}`},
		{form, `{"requestedSchema":{"properties":{"a":{"type":"array"}}}}`, third, `error`},
		{form, `{"requestedSchema":{"properties":{"a":{"type":"array"}}}}`, latest, `{"requestedSchema":{"properties":{"a":{"type":"array"}}}}`},
		{roots, `{"_meta":{"progressToken":1}}`, modern, ``},
		{sample, `{"messages":[7,{"role":"user","content":[{"type":"text"},{"type":"image"}],"x":1},{"content":[]},{"content":{"type":"text"}}]}`, third,
			`{"messages":[7,{"role":"user","content":{"type":"text"},"x":1},{"role":"user","content":{"type":"image"},"x":1},{"content":{"type":"text"}}]}`},
	} {
		a := InputRequest{tt.method, []byte(tt.params)}
		got, err := a.Convert(tt.to, "ID")
		if err != nil {
			got.Params = []byte("error")
		}
		if string(got.Params) != tt.want {
			t.Errorf("%s %s to %v: got %s, want %s", tt.method, tt.params, tt.to.Revision, got.Params, tt.want)
		}
	}
}

func TestAnswer(t *testing.T) {
	modern, latest, first := Of(mcp.Revision20260728), Of(mcp.Revision20251125), Of(mcp.Revision20241105)
	for _, tt := range []struct {
		method, params, answer string
		to                     *Features
		want                   string
	}{
		{mcp.MethodElicit, `{}`, `{"action":"accept","content":{},"_meta":{}}`, modern, `{"action":"accept","content":{}}`},
		{mcp.MethodElicit, `{"mode":"url"}`, `{"action":"accept","content":{},"resultType":"complete"}`, latest, `{"action":"accept"}`},
		{mcp.MethodElicit, `{}`, `{"action":"maybe"}`, modern, `bad`},
		{mcp.MethodElicit, `{}`, `[]`, modern, `bad`},
		{mcp.MethodRootsList, ``, `{"roots":[]}`, modern, `{"roots":[]}`},
		{mcp.MethodRootsList, ``, `{"roots":{}}`, modern, `bad`},
		{mcp.MethodCreateMessage, ``, `{"role":"assistant","model":"m","content":[{"type":"text"}],"_meta":{}}`, modern, `{"role":"assistant","model":"m","content":[{"type":"text"}],"_meta":{}}`},
		{mcp.MethodCreateMessage, ``, `{"role":"assistant","model":"m","content":[{"type":"text"}]}`, first, `{"role":"assistant","model":"m","content":{"type":"text"}}`},
		{mcp.MethodCreateMessage, ``, `{"role":"assistant","content":[1,2]}`, first, `{"role":"assistant","content":[1,2]}`},
		{mcp.MethodCreateMessage, ``, `{"content":[1,2]}`, first, `bad`},
	} {
		a := InputRequest{tt.method, []byte(tt.params)}
		got := "bad"
		if a.CheckResponse([]byte(tt.answer)) == nil {
			got = string(a.ConvertResponse([]byte(tt.answer), tt.to))
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.answer, got, tt.want)
		}
	}
}

func TestConvertTask(t *testing.T) {
	const core = `{"taskId":"T","status":"working","createdAt":"c","ttl":5,"pollInterval":1,"x":1,"_meta":{"io.modelcontextprotocol/related-task":{}}}`
	if got, want := string(ExtensionTask(nil, []byte(core), "", []byte(`"a":1`))), `{"taskId":"T","status":"working","createdAt":"c","x":1,"ttlMs":5,"pollIntervalMs":1,"a":1}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	const ext = `{"resultType":"complete","taskId":"T","status":"completed","ttlMs":null,"result":{},"inputRequests":{},"error":{}}`
	if got, want := string(CoreTask(nil, []byte(ext), mcp.TaskStatusFailed)), `{"taskId":"T","ttl":null,"status":"failed"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDeclaredByClient(t *testing.T) {
	const all = `{"elicitation":{"form":{},"url":{},"x":1},"sampling":{"tools":{},"context":{}},"roots":{"listChanged":true},"experimental":{"n":1.0}}`
	for _, tt := range []struct {
		rev        mcp.Revision
		caps, want string
	}{
		{mcp.Revision20250326, all, `{"sampling":{},"roots":{"listChanged":true},"experimental":{"n":1.0}}`},
		{mcp.Revision20250618, all, `{"elicitation":{"x":1},"sampling":{},"roots":{"listChanged":true},"experimental":{"n":1.0}}`},
		{mcp.Revision20251125, all, all},
		{mcp.Revision20250618, `{"elicitation":null,"sampling":7}`, `{"elicitation":null,"sampling":7}`},
	} {
		if got := string(DeclaredByClient([]byte(tt.caps), Of(tt.rev))); got != tt.want {
			t.Errorf("%v: got %s, want %s", tt.rev, got, tt.want)
		}
	}
}

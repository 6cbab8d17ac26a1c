package era

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
)

// TestFeatures repeats the table of the specification's section on changes.
func TestFeatures(t *testing.T) {
	want := map[string]Features{
		"none":       {},
		"2024-11-05": {NullErrorID: true},
		"2025-03-26": {NullErrorID: true, Batches: true, Completions: true},
		"2025-06-18": {VersionHeader: true, NullErrorID: true, Completions: true, Structured: true, Elicitation: true},
		"2025-11-25": {VersionHeader: true, Polling: true, Completions: true, Structured: true, CoreTasks: true, Icons: true, Elicitation: true, URLElicitation: true, ElicitationIDs: true, MultiSelect: true, SamplingTools: true},
		"2026-07-28": {VersionHeader: true, Modern: true, Completions: true, Structured: true, StructuredAny: true, Icons: true, Elicitation: true, URLElicitation: true, MultiSelect: true, SamplingTools: true},
	}
	got := map[string]Features{}
	for _, r := range append(mcp.Revisions(), mcp.RevisionNone) {
		f := *Of(r)
		if f.Revision != r {
			t.Errorf("%v has the features of %v", r, f.Revision)
		}
		f.Revision = mcp.RevisionNone
		got[r.String()] = f
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("features (-want +got):\n%s", diff)
	}
}

func TestHasMethod(t *testing.T) {
	for method, eras := range map[string]string{
		"tools/list": "both", "tools/call": "both",
		"initialize": "legacy", "ping": "legacy", "logging/setLevel": "legacy",
		"server/discover": "modern", "subscriptions/listen": "modern",
		"resources/read": "both", "prompts/get": "both", "completion/complete": "both",
		"resources/subscribe": "legacy", "tasks/list": "legacy", "tasks/get": "both", "tasks/update": "modern",
		"notifications/initialized": "", "": "", "PING": "",
	} {
		legacy, modern := Of(mcp.Revision20251125).HasMethod([]byte(method)), Of(mcp.Revision20260728).HasMethod([]byte(method))
		if legacy != (eras == "both" || eras == "legacy") || modern != (eras == "both" || eras == "modern") {
			t.Errorf("%s: legacy %t, modern %t", method, legacy, modern)
		}
	}
}

func TestContent(t *testing.T) {
	half := 0.5
	notes := &mcp.Annotations{Priority: &half, LastModified: "2025-06-18T00:00:00Z"}
	old := &mcp.Annotations{Priority: &half}
	meta := json.RawMessage(`{"a":1}`)
	icons := []mcp.Icon{{Src: "data:,"}}
	resource := mcp.ResourceContents{URI: "a:b", Text: "t", Meta: meta}
	bare := mcp.ResourceContents{URI: "a:b", Text: "t"}
	link := mcp.ResourceLink{URI: "a:b", Name: "n", Icons: icons, Annotations: notes, Meta: meta}
	for _, tt := range []struct {
		name    string
		content mcp.ContentBlock
		want    [5]mcp.ContentBlock // by revision
	}{
		{"text", mcp.TextContent{Text: "t", Annotations: notes, Meta: meta}, [5]mcp.ContentBlock{
			mcp.TextContent{Text: "t", Annotations: old}, mcp.TextContent{Text: "t", Annotations: old}, mcp.TextContent{Text: "t", Annotations: notes, Meta: meta},
			mcp.TextContent{Text: "t", Annotations: notes, Meta: meta}, mcp.TextContent{Text: "t", Annotations: notes, Meta: meta},
		}},
		{"image", mcp.ImageContent{Data: []byte("i"), Annotations: old, Meta: meta}, [5]mcp.ContentBlock{
			mcp.ImageContent{Data: []byte("i"), Annotations: old}, mcp.ImageContent{Data: []byte("i"), Annotations: old}, mcp.ImageContent{Data: []byte("i"), Annotations: old, Meta: meta},
			mcp.ImageContent{Data: []byte("i"), Annotations: old, Meta: meta}, mcp.ImageContent{Data: []byte("i"), Annotations: old, Meta: meta},
		}},
		{"audio", mcp.AudioContent{Data: []byte("abc"), MIMEType: "audio/wav", Meta: meta}, [5]mcp.ContentBlock{
			mcp.TextContent{Text: "[audio/wav, 3 bytes: revision 2024-11-05 has no audio content]"}, mcp.AudioContent{Data: []byte("abc"), MIMEType: "audio/wav"},
			mcp.AudioContent{Data: []byte("abc"), MIMEType: "audio/wav", Meta: meta}, mcp.AudioContent{Data: []byte("abc"), MIMEType: "audio/wav", Meta: meta},
			mcp.AudioContent{Data: []byte("abc"), MIMEType: "audio/wav", Meta: meta},
		}},
		{"link", link, [5]mcp.ContentBlock{
			mcp.TextContent{Text: "[resource n: a:b]"}, mcp.TextContent{Text: "[resource n: a:b]"}, mcp.ResourceLink{URI: "a:b", Name: "n", Annotations: notes, Meta: meta}, link, link,
		}},
		{"resource", mcp.EmbeddedResource{Resource: resource, Annotations: notes, Meta: meta}, [5]mcp.ContentBlock{
			mcp.EmbeddedResource{Resource: bare, Annotations: old}, mcp.EmbeddedResource{Resource: bare, Annotations: old},
			mcp.EmbeddedResource{Resource: resource, Annotations: notes, Meta: meta}, mcp.EmbeddedResource{Resource: resource, Annotations: notes, Meta: meta},
			mcp.EmbeddedResource{Resource: resource, Annotations: notes, Meta: meta},
		}},
	} {
		for i, r := range mcp.Revisions() {
			got := string(mcp.Append([]byte("x"), tt.content, r))
			if want := string(mcp.Append([]byte("x"), tt.want[i], mcp.RevisionNone)); got != want {
				t.Errorf("%s in %v: got %s, want %s", tt.name, r, got, want)
			}
		}
	}
	if notes.LastModified == "" || resource.Meta == nil {
		t.Error("the caller's values were changed")
	}
}

func TestAllowsStructured(t *testing.T) {
	for text, from := range map[string]mcp.Revision{`{}`: mcp.Revision20250618, `[]`: mcp.Revision20260728, `null`: mcp.Revision20260728, `"{"`: mcp.Revision20260728, `1`: mcp.Revision20260728} {
		for _, r := range mcp.Revisions() {
			if got := Of(r).AllowsStructured([]byte(text)); got != (r >= from) {
				t.Errorf("%s in %v: got %t", text, r, got)
			}
		}
	}
}

func TestTool(t *testing.T) {
	yes := true
	tool := mcp.Tool{
		Name: "n\"", Title: "T", Description: "D", InputSchema: json.RawMessage("{\n\"type\": \"object\"}"), OutputSchema: json.RawMessage(`{"type":"object"}`),
		Annotations: &mcp.ToolAnnotations{OpenWorldHint: &yes}, Icons: []mcp.Icon{{Src: "data:,"}}, Meta: json.RawMessage(`{"a": 1}`),
	}
	head, tail := `{"name":"n\"",`, `"description":"D","inputSchema":{"type":"object"}`
	notes, output, meta := `,"annotations":{"openWorldHint":true}`, `,"outputSchema":{"type":"object"}`, `,"_meta":{"a":1}}`
	want := []string{
		head + tail + "}",
		head + tail + notes + "}",
		head + `"title":"T",` + tail + output + notes + meta,
		head + `"title":"T",` + tail + output + notes + `,"icons":[{"src":"data:,"}]` + meta,
		head + `"title":"T",` + tail + output + notes + `,"icons":[{"src":"data:,"}]` + meta,
	}
	for i, r := range mcp.Revisions() {
		if diff := cmp.Diff(want[i], string(mcp.Append(nil, &tool, r))); diff != "" {
			t.Errorf("%v (-want +got):\n%s", r, diff)
		}
	}
	for _, schema := range []string{`{"type":"array"}`, `{"anyOf":[{"type":"object"}]}`, `{"type":["object","null"]}`, `true`} {
		tool.OutputSchema = json.RawMessage(schema)
		for _, r := range mcp.Revisions() {
			if got := strings.Contains(string(mcp.Append(nil, &tool, r)), "outputSchema"); got != r.Modern() {
				t.Errorf("output schema %s in %v: listed %t", schema, r, got)
			}
		}
	}
}

func TestIdentity(t *testing.T) {
	id := NewIdentity(mcp.Implementation{Name: "n", Version: "v", Title: "T"})
	const info = `"io.modelcontextprotocol/serverInfo":{"name":"n","version":"v","title":"T"}`
	legacy, modern := Of(mcp.Revision20250618), Of(mcp.Revision20260728)
	for _, tt := range []struct {
		name, got, want string
	}{
		{"end, legacy", string(id.End([]byte(`{"a":1`), legacy)), `{"a":1}`},
		{"end, modern", string(id.End([]byte(`{"a":1`), modern)), `{"a":1,"resultType":"complete","_meta":{` + info + `}}`},
		{"empty, legacy", string(id.Empty([]byte("x"), legacy, nil)), `x{}`},
		{"empty, modern", string(id.Empty([]byte("x"), modern, nil)), `x{"resultType":"complete","_meta":{` + info + `}}`},
		{"empty with meta, legacy", string(id.Empty([]byte("x"), legacy, []byte(`{"b": 1}`))), `x{"_meta":{"b":1}}`},
		{"empty with meta, modern", string(id.Empty([]byte("x"), modern, []byte(`{"b": 1}`))), `x{"resultType":"complete","_meta":{"b":1,` + info + `}}`},
		{"meta, legacy", string(id.EndWithMeta([]byte(`{"a":1`), legacy, []byte(`{}`))), `{"a":1,"_meta":{}}`},
		{"meta, modern", string(id.EndWithMeta([]byte(`{"a":1`), modern, []byte(` { } `))), `{"a":1,"resultType":"complete","_meta":{` + info + `}}`},
		{"info", string(id.AppendInfo(nil, Of(mcp.Revision20241105))), `{"name":"n","version":"v"}`},
		{"info with a title", string(id.AppendInfo(nil, legacy)), `{"name":"n","version":"v","title":"T"}`},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

func TestEndAs(t *testing.T) {
	id := NewIdentity(mcp.Implementation{Name: "n", Version: "v"})
	got := string(id.EndAs([]byte(`{"a":1`), Of(mcp.LatestRevision), "input_required"))
	if want := `{"a":1,"resultType":"input_required","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"n","version":"v"}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Spec: S14 S116
func TestComplete(t *testing.T) {
	id := NewIdentity(mcp.Implementation{Name: "n", Version: "v"})
	legacy, modern := Of(mcp.Revision20251125), Of(mcp.LatestRevision)
	hints := &CacheHints{TTLMillis: 5, Public: true}
	const info = `"io.modelcontextprotocol/serverInfo":{"name":"n","version":"v"}`
	for _, tt := range []struct {
		name, result   string
		hints          *CacheHints
		legacy, modern string
	}{
		{"empty", `{}`, nil, `{}`, `{"resultType":"complete","_meta":{` + info + `}}`},
		{"members", `{ "a" : 1 , "\u0062":[ ] }`, nil, `{"a":1,"b":[]}`, `{"a":1,"b":[],"resultType":"complete","_meta":{` + info + `}}`},
		{"complete already", `{"resultType":"complete","a":1}`, nil, `{"a":1}`, `{"a":1,"resultType":"complete","_meta":{` + info + `}}`},
		{"identity already", `{"_meta":{` + info + `,"b":2}}`, nil, `{"_meta":{` + info + `,"b":2}}`, `{"resultType":"complete","_meta":{` + info + `,"b":2}}`},
		{"another meta", `{"_meta":{"b":2},"a":1}`, nil, `{"a":1,"_meta":{"b":2}}`, `{"a":1,"resultType":"complete","_meta":{"b":2,` + info + `}}`},
		{"another type", `{"resultType":"input_required","requestState":"s"}`, hints, `{"requestState":"s"}`,
			`{"requestState":"s","resultType":"input_required","_meta":{` + info + `}}`},
		{"another type and meta", `{"resultType":"task","_meta":{"b":2}}`, hints, `{"_meta":{"b":2}}`, `{"resultType":"task","_meta":{"b":2,` + info + `}}`},
		{"hints", `{"tools":[]}`, hints, `{"tools":[]}`, `{"tools":[],"ttlMs":5,"cacheScope":"public","resultType":"complete","_meta":{` + info + `}}`},
		{"hints already", `{"ttlMs":7,"cacheScope":"private"}`, hints, `{"ttlMs":7,"cacheScope":"private"}`,
			`{"ttlMs":7,"cacheScope":"private","resultType":"complete","_meta":{` + info + `}}`},
		{"one hint", `{"ttlMs":7}`, hints, `{"ttlMs":7}`, `{"ttlMs":7,"cacheScope":"public","resultType":"complete","_meta":{` + info + `}}`},
	} {
		if got := string(id.Complete([]byte("x"), legacy, tt.hints, []byte(tt.result))); got != "x"+tt.legacy {
			t.Errorf("%s, legacy: got %s, want x%s", tt.name, got, tt.legacy)
		}
		if got := string(id.Complete([]byte("x"), modern, tt.hints, []byte(tt.result))); got != "x"+tt.modern {
			t.Errorf("%s, modern: got %s, want x%s", tt.name, got, tt.modern)
		}
	}
}

func TestOpenNotification(t *testing.T) {
	all := Config{Revisions: mcp.Revisions()}
	legacyOnly := Config{Revisions: []mcp.Revision{mcp.Revision20250326, mcp.Revision20250618}}
	modernOnly := Config{Revisions: []mcp.Revision{mcp.Revision20260728}}
	modern := `{"_meta":{` + required + `}}`
	for _, tt := range []struct {
		params                   string
		cfg                      Config
		fresh, answered, isReady string
	}{
		{"", all, "none", "2025-03-26", "2025-03-26"},
		{`{"_meta":{}}`, all, "none", "2025-03-26", "2025-03-26"},
		{modern, all, "2026-07-28", "2026-07-28", "2026-07-28"},
		{modern, legacyOnly, "none", "2025-03-26", "2025-03-26"},
		{"", modernOnly, "none", "", ""},
		{modern, modernOnly, "2026-07-28", "", ""},
		{`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01"}}`, all, "-32022", "-32022", "-32022"},
		{`[]`, all, "-32602", "-32602", "-32602"},
		{`{"a":1,"a":2}`, all, "-32602", "-32602", "-32602"},
		{`{"_meta":7}`, all, "-32602", "-32602", "-32602"},
	} {
		for state, want := range []string{tt.fresh, tt.answered, tt.isReady} {
			if state > fresh && len(tt.cfg.Revisions) == 1 {
				continue
			}
			r := request(t, "notifications/x", tt.params)
			session := sessionIn(t, state, tt.cfg)
			if got := outcome(session.OpenNotification(r, session.State())); got != want {
				t.Errorf("%s in state %d: got %s, want %s", tt.params, state, got, want)
			}
		}
	}
}

func TestExtension(t *testing.T) {
	c := &Client{Capabilities: []byte(`{"extensions":{"com.example/a":{"x":1},"com.example/b":{},"com.example/c":null,"com.example/d":true,"` + mcp.ExtensionTasks + `":{}}}`)}
	for _, tt := range []struct{ id, legacy, modern string }{
		{"com.example/a", `{"x":1}`, `{"x":1}`},
		{"com.example/b", `{}`, `{}`},
		{"com.example/c", "", ""},
		{"com.example/d", "", ""},
		{"com.example/e", "", ""},
		{mcp.ExtensionTasks, "", "{}"},
	} {
		if got := string(c.Extension(Of(mcp.Revision20251125), tt.id)); got != tt.legacy {
			t.Errorf("%s, legacy: got %s, want %s", tt.id, got, tt.legacy)
		}
		if got := string(c.Extension(Of(mcp.LatestRevision), tt.id)); got != tt.modern {
			t.Errorf("%s, modern: got %s, want %s", tt.id, got, tt.modern)
		}
	}
}

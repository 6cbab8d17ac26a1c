package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/json/jsonwire"
)

// FuzzRead shows that any decoded text is encoded as the same JSON value on one line, and that this
// is true of the encoded text too.
func FuzzRead(f *testing.F) {
	for _, tt := range exact {
		f.Add(tt.typ, []byte(tt.text))
	}
	for _, typ := range []string{"Tool", "InputRequiredResult", "DetailedTask"} {
		f.Add(typ, filled(f, typ, 0).appendRevision(nil, RevisionNone))
	}
	f.Add("Result", []byte("{ \"_meta\" : null,\n\"x\":\"\\ud800\",\"x\":1e5,\"resultType\":\"\"}"))
	f.Add("CallToolResult", []byte(`{"content":[{"type":"tool_result","toolUseId":"","content":[{"type":"x"}]},{"type":"image","data":"\/w==","mimeType":"\""}]}`))
	f.Add("CallToolResult", []byte(`{"content":[{"type":"`))
	f.Add("CallToolResult", []byte(`{"content":null}`))
	f.Add("ProgressNotificationParams", []byte(`{"progressToken":-0,"progress":1e-7,"total":-0.0}`))
	f.Fuzz(func(t *testing.T, typ string, data []byte) {
		if codecs[typ] == nil {
			return
		}
		v := codecs[typ]()
		err := v.UnmarshalJSON(data)
		if err != nil || jsonwire.Valid(data, 0) != nil {
			return
		}
		text := v.appendRevision(nil, RevisionNone)
		oneLine(t, text)
		var want, got any
		if json.Unmarshal(data, &want) != nil { // a number that is too large
			return
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		forgive(typ, want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: JSON (-read +written):\n%s", typ, diff)
		}
		back := codecs[typ]()
		if err := back.UnmarshalJSON(text); err != nil {
			t.Fatalf("%s: %v: %s", typ, err, text)
		}
		if again := back.appendRevision(nil, RevisionNone); string(again) != string(text) {
			t.Errorf("%s: written %s, then %s", typ, text, again)
		}
		for _, r := range Revisions() {
			oneLine(t, v.appendRevision(nil, r))
		}
	})
}

// forgive removes differences that decoding is known to make.
func forgive(typ string, value any) {
	top, _ := value.(map[string]any)
	if typ == "CallToolResult" && top["content"] == nil { // missing or null
		top["content"] = []any{}
	}
	if e, ok := top["error"].(map[string]any); typ == "DetailedTask" && ok {
		for name := range e {
			if name != "code" && name != "message" && name != "data" {
				delete(e, name)
			}
		}
	}
}

func oneLine(t *testing.T, text []byte) {
	t.Helper()
	if err := jsonwire.Valid(text, 0); err != nil || strings.ContainsAny(string(text), "\r\n") {
		t.Errorf("%v: %q", err, text)
	}
}

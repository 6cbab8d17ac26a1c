package mcp

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestContentOfRevision shows that content that a revision does not define is encoded as text.
func TestContentOfRevision(t *testing.T) {
	use := ToolUseContent{ID: "1", Name: "add", Input: json.RawMessage(`{"a": 1}`)}
	result := ToolResultContent{ToolUseID: "1", Content: []ContentBlock{TextContent{Text: "2"}, AudioContent{MIMEType: "audio/wav"}, &TextContent{Text: "3"}, nil, (*TextContent)(nil),
		EmbeddedResource{Resource: ResourceContents{URI: "a:b"}}}}
	note := func(text string) string { return string(TextContent{Text: text}.appendRevision(nil, RevisionNone)) }
	for _, tt := range []struct {
		c     ContentBlock
		first Revision // first revision with it
		want  string   // encoding in earlier revisions
	}{
		{TextContent{Text: "t"}, Revision20241105, ""},
		{AudioContent{Data: []byte("abc"), MIMEType: "audio/wav"}, Revision20250326, note("[audio/wav, 3 bytes: revision 2024-11-05 has no audio content]")},
		{ResourceLink{URI: "a:b", Name: "n"}, Revision20250618, note("[resource n: a:b]")},
		{use, Revision20251125, note(`[call of the tool add with {"a":1}]`)},
		{result, Revision20251125, note("[result of tool call 1: 2\n[audio/wav, 0 bytes]\n3\n[resource a:b]]")},
		{UnknownContent{Raw: json.RawMessage(`{ "type": "new" }`)}, Revision20241105, ""},
	} {
		for _, r := range Revisions() {
			want := string(tt.c.appendRevision(nil, RevisionNone))
			if r < tt.first {
				want = tt.want
			}
			if diff := cmp.Diff(want, string(tt.c.appendRevision(nil, r))); diff != "" {
				t.Errorf("%T in %v (-want +got):\n%s", tt.c, r, diff)
			}
		}
	}
}

// TestSamplingContent shows that several blocks become several messages in revisions that allow one
// block per message, and one text if there can be only one message.
func TestSamplingContent(t *testing.T) {
	a, b := TextContent{Text: "a"}, TextContent{Text: "b"}
	both := SamplingContent{a, ImageContent{MIMEType: "m"}, b}
	single := CreateMessageResult{Role: RoleAssistant, Content: SamplingContent{a}, Extra: json.RawMessage(`{"content":[]}`)}
	params := CreateMessageRequestParams{Messages: []SamplingMessage{{Role: RoleUser, Content: both}, {Role: RoleAssistant, Content: SamplingContent{b}}, {Role: RoleUser}}}
	result := CreateMessageResult{Role: RoleAssistant, Content: both}
	const textA, image, textB = `{"type":"text","text":"a"}`, `{"type":"image","data":"","mimeType":"m"}`, `{"type":"text","text":"b"}`
	for _, r := range Revisions() {
		wantParams := `{"messages":[{"role":"user","content":[` + textA + `,` + image + `,` + textB + `]},{"role":"assistant","content":` + textB +
			`},{"role":"user","content":[]}],"maxTokens":0}`
		wantResult := `{"role":"assistant","content":[` + textA + `,` + image + `,` + textB + `],"model":""}`
		wantSingle := `{"role":"assistant","content":[` + textA + `],"model":""}`
		if r < Revision20251125 {
			wantParams = `{"messages":[{"role":"user","content":` + textA + `},{"role":"user","content":` + image + `},{"role":"user","content":` + textB +
				`},{"role":"assistant","content":` + textB + `},{"role":"user","content":{"type":"text","text":""}}],"maxTokens":0}`
			wantResult = `{"role":"assistant","content":{"type":"text","text":"a\n[m, 0 bytes]\nb"},"model":""}`
			wantSingle = `{"role":"assistant","content":` + textA + `,"model":""}`
		}
		for _, tt := range []struct {
			name, want string
			v          codec
		}{{"params", wantParams, &params}, {"result", wantResult, &result}, {"array of one", wantSingle, &single}} {
			if diff := cmp.Diff(tt.want, string(tt.v.appendRevision(nil, r))); diff != "" {
				t.Errorf("%s in %v (-want +got):\n%s", tt.name, r, diff)
			}
		}
	}
}

// TestObjectsOnly checks that a member that older revisions restrict to objects is omitted for
// other values.
func TestObjectsOnly(t *testing.T) {
	for text, object := range map[string]bool{`{"type":"object"}`: true, `[]`: false, `null`: false, `{"type":"array"}`: false} {
		tool := Tool{Name: "n", OutputSchema: json.RawMessage(text)}
		result := CallToolResult{StructuredContent: json.RawMessage(text)}
		for _, r := range Revisions() {
			any := r == LatestRevision
			has := func(v codec, name string) bool { return member(t, v.appendRevision(nil, r), name) != nil }
			if got := has(&tool, "outputSchema"); got != (r >= Revision20250618 && (object || any)) {
				t.Errorf("output schema %s in %v: %t", text, r, got)
			}
			if got := has(&result, "structuredContent"); got != (r >= Revision20250618 && (text[0] == '{' || any)) {
				t.Errorf("structured content %s in %v: %t", text, r, got)
			}
		}
	}
}

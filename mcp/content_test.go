package mcp

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/json/jsonwire"
)

func ptr[T any](v T) *T { return &v }

func TestAppendJSON(t *testing.T) {
	notes := &Annotations{Audience: []Role{RoleUser, RoleAssistant}, Priority: ptr(1.0), LastModified: "2025-01-12T15:00:58.5+01:00"}
	for _, tt := range []struct {
		name string
		got  []byte
		want string
	}{
		{"text", TextContent{Text: "a\n\"b\"\xff"}.appendRevision([]byte("x"), RevisionNone), `x{"type":"text","text":"a\n\"b\"` + "\ufffd" + `"}`},
		{"text with all", TextContent{Text: "a", Annotations: notes, Meta: json.RawMessage("{\n\"k\": 1\n}")}.appendRevision(nil, RevisionNone),
			`{"type":"text","text":"a","annotations":{"audience":["user","assistant"],"priority":1,"lastModified":"2025-01-12T15:00:58.5+01:00"},"_meta":{"k":1}}`},
		{"empty annotations", TextContent{Annotations: &Annotations{}}.appendRevision(nil, RevisionNone), `{"type":"text","text":"","annotations":{}}`},
		{"image", ImageContent{Data: []byte{0xfb, 0xff}, MIMEType: "image/png"}.appendRevision(nil, RevisionNone), `{"type":"image","data":"+/8=","mimeType":"image/png"}`},
		{"empty image", ImageContent{}.appendRevision(nil, RevisionNone), `{"type":"image","data":"","mimeType":""}`},
		{"audio", AudioContent{Data: []byte("abc"), MIMEType: "audio/wav", Annotations: &Annotations{Priority: ptr(0.25)}}.appendRevision(nil, RevisionNone),
			`{"type":"audio","data":"YWJj","mimeType":"audio/wav","annotations":{"priority":0.25}}`},
		{"link", ResourceLink{URI: "a:b", Name: "n"}.appendRevision(nil, RevisionNone), `{"type":"resource_link","uri":"a:b","name":"n"}`},
		{"link with all", ResourceLink{URI: "a:b", Name: "n", Title: "T", Description: "D", MIMEType: "m", Size: ptr(int64(0)), Icons: []Icon{{Src: "s"}}, Annotations: &Annotations{}, Meta: json.RawMessage("{}")}.appendRevision(nil, RevisionNone),
			`{"type":"resource_link","uri":"a:b","name":"n","title":"T","description":"D","mimeType":"m","size":0,"icons":[{"src":"s"}],"annotations":{},"_meta":{}}`},
		{"text resource", EmbeddedResource{Resource: ResourceContents{URI: "a:b", Text: "t"}}.appendRevision(nil, RevisionNone), `{"type":"resource","resource":{"uri":"a:b","text":"t"}}`},
		{"binary resource", EmbeddedResource{Resource: ResourceContents{URI: "a:b", MIMEType: "m", Text: "not this", Blob: []byte{}, Meta: json.RawMessage("{}")}}.appendRevision(nil, RevisionNone),
			`{"type":"resource","resource":{"uri":"a:b","mimeType":"m","blob":"","_meta":{}}}`},
		{"icon", (&Icon{Src: "a", MIMEType: "m", Sizes: []string{"48x48", "any"}, Theme: ThemeDark}).appendRevision(nil, RevisionNone),
			`{"src":"a","mimeType":"m","sizes":["48x48","any"],"theme":"dark"}`},
		{"empty icon", (&Icon{}).appendRevision(nil, RevisionNone), `{"src":""}`},
		{"tool annotations", (&ToolAnnotations{Title: "t", ReadOnlyHint: ptr(true), DestructiveHint: ptr(false), IdempotentHint: ptr(true), OpenWorldHint: ptr(false)}).appendRevision(nil, RevisionNone),
			`{"title":"t","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`},
		{"no tool annotations", new(ToolAnnotations).appendRevision(nil, RevisionNone), `{}`},
		{"implementation", (&Implementation{}).appendRevision(nil, RevisionNone), `{"name":"","version":""}`},
	} {
		if diff := cmp.Diff(tt.want, string(tt.got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if text := strings.TrimPrefix(string(tt.got), "x"); !json.Valid([]byte(text)) {
			t.Errorf("%s: not JSON: %s", tt.name, text)
		}
	}
}

func TestCheckContent(t *testing.T) {
	bad := json.RawMessage(`[]`)
	for _, tt := range []struct {
		name string
		in   ContentBlock
		want ContentBlock // nil for an error
	}{
		{"text", TextContent{Text: "a"}, TextContent{Text: "a"}},
		{"pointer", &TextContent{Text: "a"}, TextContent{Text: "a"}},
		{"pointer to an image", &ImageContent{}, ImageContent{}},
		{"pointer to audio", &AudioContent{}, AudioContent{}},
		{"pointer to a link", &ResourceLink{}, ResourceLink{}},
		{"pointer to a resource", &EmbeddedResource{}, EmbeddedResource{}},
		{"pointer to a tool use", &ToolUseContent{ID: "1"}, ToolUseContent{ID: "1"}},
		{"pointer to a tool result", &ToolResultContent{}, ToolResultContent{}},
		{"pointer to an unknown block", &UnknownContent{Raw: json.RawMessage("{}")}, UnknownContent{Raw: json.RawMessage("{}")}},
		{"unknown, empty", UnknownContent{}, nil},
		{"unknown, no object", UnknownContent{Raw: bad}, nil},
		{"input of a tool use", ToolUseContent{Input: bad}, nil},
		{"meta of a tool use", ToolUseContent{Meta: bad}, nil},
		{"content of a tool result", ToolResultContent{Content: []ContentBlock{nil}}, nil},
		{"structured content of a tool result", ToolResultContent{StructuredContent: json.RawMessage("{")}, nil},
		{"meta of a tool result", ToolResultContent{Meta: bad}, nil},
		{"extra", TextContent{Extra: bad}, nil},
		{"extra of annotations", TextContent{Annotations: &Annotations{Extra: bad}}, nil},
		{"extra of a tool use", ToolUseContent{Extra: bad}, nil},
		{"extra of a tool result", ToolResultContent{Extra: bad}, nil},
		{"extra in a resource", EmbeddedResource{Resource: ResourceContents{Extra: bad}}, nil},
		{"nil", nil, nil},
		{"nil text", (*TextContent)(nil), nil},
		{"nil resource", (*EmbeddedResource)(nil), nil},
		{"meta", TextContent{Meta: bad}, nil},
		{"meta of an image", ImageContent{Meta: bad}, nil},
		{"meta of audio", AudioContent{Meta: bad}, nil},
		{"meta of a link", ResourceLink{Meta: bad}, nil},
		{"meta of a resource", EmbeddedResource{Meta: bad}, nil},
		{"meta in a resource", EmbeddedResource{Resource: ResourceContents{Meta: bad}}, nil},
		{"meta cut off", TextContent{Meta: json.RawMessage(`{"a":1`)}, nil},
		{"empty meta", TextContent{Meta: json.RawMessage{}}, nil},
		{"meta with space", TextContent{Meta: json.RawMessage("\n{ }")}, TextContent{Meta: json.RawMessage("\n{ }")}},
		{"priority 0", TextContent{Annotations: &Annotations{Priority: ptr(0.0)}}, TextContent{Annotations: &Annotations{Priority: ptr(0.0)}}},
		{"priority 1.1", TextContent{Annotations: &Annotations{Priority: ptr(1.1)}}, nil},
		{"priority -1", &AudioContent{Annotations: &Annotations{Priority: ptr(-1.0)}}, nil},
		{"priority NaN", ImageContent{Annotations: &Annotations{Priority: ptr(math.NaN())}}, nil},
		{"priority infinite", ResourceLink{Annotations: &Annotations{Priority: ptr(math.Inf(1))}}, nil},
	} {
		got, err := CheckContent(tt.in)
		if (err == nil) != (tt.want != nil) {
			t.Errorf("%s: got error %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got); err == nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// FuzzContent shows that a block that CheckContent accepts is encoded as one line of valid JSON.
func FuzzContent(f *testing.F) {
	f.Add("text", "image/png", []byte(`{"a":1}`), []byte("data"), 0.5, int64(3))
	f.Add("\xff\x00\n\u2028", "\"", []byte("{\n}"), []byte{0xff}, 1.0, int64(-1))
	f.Add("", "", []byte("[]"), []byte(nil), math.NaN(), int64(math.MinInt64))
	f.Add("", "", []byte("{\"a\":\xff}"), []byte(nil), 1e-300, int64(0))
	f.Add("", "", []byte("{\"text\":1, \"\\u0074ext\":2}"), []byte(nil), 1e-300, int64(0))
	f.Fuzz(func(t *testing.T, s, u string, meta, data []byte, priority float64, size int64) {
		notes := &Annotations{Audience: []Role{Role(s)}, Priority: &priority, LastModified: u, Extra: meta}
		icons := []Icon{{Src: s, MIMEType: u, Sizes: []string{u}, Theme: Theme(s)}}
		for _, c := range []ContentBlock{
			TextContent{Text: s, Annotations: notes, Meta: meta, Extra: meta},
			ImageContent{Data: data, MIMEType: u, Annotations: notes, Meta: meta, Extra: meta},
			&AudioContent{Data: data, MIMEType: u, Annotations: notes, Meta: meta},
			ResourceLink{URI: u, Name: s, Title: s, Description: s, MIMEType: u, Size: &size, Icons: icons, Annotations: notes, Meta: meta},
			EmbeddedResource{Resource: ResourceContents{URI: u, MIMEType: s, Text: u, Blob: data, Meta: meta, Extra: meta}, Annotations: notes},
			ToolUseContent{ID: s, Name: u, Input: meta, Meta: meta, Extra: meta},
			&ToolResultContent{ToolUseID: s, Content: []ContentBlock{TextContent{Text: u, Meta: meta}, UnknownContent{Raw: meta}}, StructuredContent: meta, Extra: meta},
			UnknownContent{Raw: meta},
		} {
			c, err := CheckContent(c)
			if err != nil {
				continue
			}
			for r := RevisionNone; r <= LatestRevision; r++ {
				text := c.appendRevision(nil, r)
				if err := jsonwire.Valid(text, 0); err != nil || !json.Valid(text) || strings.ContainsAny(string(text), "\n\r") {
					t.Errorf("%v: %q", err, text)
				}
			}
		}
	})
}

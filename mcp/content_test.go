package mcp

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/jsonwire"
)

func ptr[T any](v T) *T { return &v }

func TestAppendJSON(t *testing.T) {
	notes := &Annotations{Audience: []Role{RoleUser, RoleAssistant}, Priority: ptr(1.0), LastModified: time.Date(2025, 1, 12, 15, 0, 58, 5e8, time.FixedZone("", 3600))}
	for _, tt := range []struct {
		name string
		got  []byte
		want string
	}{
		{"text", Text{Text: "a\n\"b\"\xff"}.AppendJSON([]byte("x")), `x{"type":"text","text":"a\n\"b\"` + "\ufffd" + `"}`},
		{"text with all", Text{Text: "a", Annotations: notes, Meta: json.RawMessage("{\n\"k\": 1\n}")}.AppendJSON(nil),
			`{"type":"text","text":"a","annotations":{"audience":["user","assistant"],"priority":1,"lastModified":"2025-01-12T15:00:58.5+01:00"},"_meta":{"k":1}}`},
		{"empty annotations", Text{Annotations: &Annotations{}}.AppendJSON(nil), `{"type":"text","text":"","annotations":{}}`},
		{"image", Image{Data: []byte{0xfb, 0xff}, MIMEType: "image/png"}.AppendJSON(nil), `{"type":"image","data":"+/8=","mimeType":"image/png"}`},
		{"empty image", Image{}.AppendJSON(nil), `{"type":"image","data":"","mimeType":""}`},
		{"audio", Audio{Data: []byte("abc"), MIMEType: "audio/wav", Annotations: &Annotations{Priority: ptr(0.25)}}.AppendJSON(nil),
			`{"type":"audio","data":"YWJj","mimeType":"audio/wav","annotations":{"priority":0.25}}`},
		{"link", ResourceLink{URI: "a:b", Name: "n"}.AppendJSON(nil), `{"type":"resource_link","uri":"a:b","name":"n"}`},
		{"link with all", ResourceLink{URI: "a:b", Name: "n", Title: "T", Description: "D", MIMEType: "m", Size: ptr(int64(0)), Icons: []Icon{{Src: "s"}}, Annotations: &Annotations{}, Meta: json.RawMessage("{}")}.AppendJSON(nil),
			`{"type":"resource_link","uri":"a:b","name":"n","title":"T","description":"D","mimeType":"m","size":0,"icons":[{"src":"s"}],"annotations":{},"_meta":{}}`},
		{"text resource", EmbeddedResource{Resource: ResourceContents{URI: "a:b", Text: "t"}}.AppendJSON(nil), `{"type":"resource","resource":{"uri":"a:b","text":"t"}}`},
		{"binary resource", EmbeddedResource{Resource: ResourceContents{URI: "a:b", MIMEType: "m", Text: "not this", Blob: []byte{}, Meta: json.RawMessage("{}")}}.AppendJSON(nil),
			`{"type":"resource","resource":{"uri":"a:b","mimeType":"m","blob":"","_meta":{}}}`},
		{"icons", AppendIcons(nil, []Icon{{Src: "a", MIMEType: "m", Sizes: []string{"48x48", "any"}, Theme: "dark"}, {}}),
			`[{"src":"a","mimeType":"m","sizes":["48x48","any"],"theme":"dark"},{"src":""}]`},
		{"no icons", AppendIcons(nil, nil), `[]`},
		{"tool annotations", (&ToolAnnotations{Title: "t", ReadOnly: ptr(true), Destructive: ptr(false), Idempotent: ptr(true), OpenWorld: ptr(false)}).AppendJSON(nil),
			`{"title":"t","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`},
		{"no tool annotations", new(ToolAnnotations).AppendJSON(nil), `{}`},
		{"implementation", (&Implementation{}).AppendJSON(nil), `{"name":"","version":""}`},
		{"revisions", AppendRevisions(nil, []Revision{Revision20260728, Revision20241105}), `["2026-07-28","2024-11-05"]`},
		{"no revisions", AppendRevisions(nil, nil), `[]`},
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
		in   Content
		want Content // nil if it is refused
	}{
		{"text", Text{Text: "a"}, Text{Text: "a"}},
		{"pointer", &Text{Text: "a"}, Text{Text: "a"}},
		{"pointer to an image", &Image{}, Image{}},
		{"pointer to audio", &Audio{}, Audio{}},
		{"pointer to a link", &ResourceLink{}, ResourceLink{}},
		{"pointer to a resource", &EmbeddedResource{}, EmbeddedResource{}},
		{"nil", nil, nil},
		{"nil text", (*Text)(nil), nil},
		{"nil resource", (*EmbeddedResource)(nil), nil},
		{"meta", Text{Meta: bad}, nil},
		{"meta of an image", Image{Meta: bad}, nil},
		{"meta of audio", Audio{Meta: bad}, nil},
		{"meta of a link", ResourceLink{Meta: bad}, nil},
		{"meta of a resource", EmbeddedResource{Meta: bad}, nil},
		{"meta in a resource", EmbeddedResource{Resource: ResourceContents{Meta: bad}}, nil},
		{"meta cut off", Text{Meta: json.RawMessage(`{"a":1`)}, nil},
		{"empty meta", Text{Meta: json.RawMessage{}}, nil},
		{"meta with space", Text{Meta: json.RawMessage("\n{ }")}, Text{Meta: json.RawMessage("\n{ }")}},
		{"priority 0", Text{Annotations: &Annotations{Priority: ptr(0.0)}}, Text{Annotations: &Annotations{Priority: ptr(0.0)}}},
		{"priority 1.1", Text{Annotations: &Annotations{Priority: ptr(1.1)}}, nil},
		{"priority -1", &Audio{Annotations: &Annotations{Priority: ptr(-1.0)}}, nil},
		{"priority NaN", Image{Annotations: &Annotations{Priority: ptr(math.NaN())}}, nil},
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

// FuzzContent: whatever the parts of a block are, its text is one line of valid JSON if CheckContent takes it.
func FuzzContent(f *testing.F) {
	f.Add("text", "image/png", []byte(`{"a":1}`), []byte("data"), 0.5, int64(3), int64(1e9))
	f.Add("\xff\x00\n\u2028", "\"", []byte("{\n}"), []byte{0xff}, 1.0, int64(-1), int64(-1<<62))
	f.Add("", "", []byte("[]"), []byte(nil), math.NaN(), int64(math.MinInt64), int64(1<<62))
	f.Add("", "", []byte("{\"a\":\xff}"), []byte(nil), 1e-300, int64(0), int64(0))
	f.Fuzz(func(t *testing.T, s, u string, meta, data []byte, priority float64, size, sec int64) {
		notes := &Annotations{Audience: []Role{Role(s)}, Priority: &priority, LastModified: time.Unix(sec, 0)}
		icons := []Icon{{Src: s, MIMEType: u, Sizes: []string{u}, Theme: s}}
		for _, c := range []Content{
			Text{s, notes, meta},
			Image{data, u, notes, meta},
			&Audio{data, u, notes, meta},
			ResourceLink{u, s, s, s, u, &size, icons, notes, meta},
			EmbeddedResource{ResourceContents{u, s, u, data, meta}, notes, nil},
		} {
			c, err := CheckContent(c)
			if err != nil {
				continue
			}
			text := c.AppendJSON(nil)
			if err := jsonwire.Valid(text, 0); err != nil || !json.Valid(text) || strings.ContainsAny(string(text), "\n\r") {
				t.Errorf("%v: %q", err, text)
			}
		}
	})
}

package jsonwire_test

import (
	"testing"

	"mcpwire/internal/json/jsonwire"
)

func TestLookup(t *testing.T) {
	const text = `{"a":{"b":[1],"b":2,"c\u0061":"x\ny"},"d":null,"":7}`
	for _, tt := range []struct {
		text string
		path []string
		want string // empty for nil
	}{
		{text, nil, text},
		{text, []string{"a", "b"}, `[1]`},
		{text, []string{"a", "ca"}, `"x\ny"`},
		{text, []string{"d"}, `null`},
		{text, []string{""}, `7`},
		{text, []string{"e"}, ``},
		{text, []string{"d", "e"}, ``},
		{text, []string{"a", "b", "0"}, ``},
		{`[]`, []string{"a"}, ``},
		{``, []string{"a"}, ``},
	} {
		if got := jsonwire.Lookup([]byte(tt.text), tt.path...); string(got) != tt.want || (got == nil) != (tt.want == "") {
			t.Errorf("%s, %q: got %q, want %q", tt.text, tt.path, got, tt.want)
		}
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{`"a\u0062"`: "ab", `""`: "", `7`: "", ``: "", `{"a":"b"}`: "", `null`: ""} {
		if got := jsonwire.Text([]byte(text)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

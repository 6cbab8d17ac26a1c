package shellword

import (
	"strings"
	"testing"
)

func TestQuote(t *testing.T) {
	tests := []struct {
		text  string
		plain bool
		want  string
	}{
		{"", false, `''`},
		{"a-b/c:1", true, `'a-b/c:1'`},
		{"a b", false, `'a b'`},
		{"$(x)", false, `'$(x)'`},
		{"it's", false, `'it'\''s'`},
		{"~user", false, `'~user'`},
	}
	for _, tt := range tests {
		if got := Quote(tt.text); got != tt.want || IsPlain(tt.text) != tt.plain {
			t.Errorf("%q: got %s, plain %v, want %s, %v", tt.text, got, IsPlain(tt.text), tt.want, tt.plain)
		}
	}
}

func TestVariables(t *testing.T) {
	var v Variables
	for _, tt := range []struct{ key, prefix, hint, want string }{
		{"1", "P_", "x-api key", "P_X_API_KEY"},
		{"2", "P_", "x-api.key", "P_X_API_KEY_2"},
		{"1", "P_", "other", "P_X_API_KEY"},
		{"3", "", strings.Repeat("é", 30), strings.Repeat("_", 20)},
	} {
		if got := v.Name(tt.key, tt.prefix, tt.hint); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	if got := strings.Join(v.Names(), " "); got != "P_X_API_KEY P_X_API_KEY_2 ____________________" {
		t.Errorf("got %s", got)
	}
}

package jsonwire

import "testing"

func TestAppendCompact(t *testing.T) {
	tests := []struct{ text, want string }{
		{`1`, `1`},
		{" 1\n", `1`},
		{"{\r\n\t\"a b\" : [ 1 , \"c\\\" d\" ]\n}", `{"a b":[1,"c\" d"]}`},
		{`" "`, `" "`},
		{`{"a":"  "}`, `{"a":"  "}`},
		{`[ ]`, `[]`},
		{"\"<>&\u2028\"", "\"<>&\u2028\""},
		{``, ``},
	}
	for _, tt := range tests {
		if got := string(AppendCompact([]byte("pre"), []byte(tt.text))); got != "pre"+tt.want {
			t.Errorf("AppendCompact(%q) = %q, want %q", tt.text, got[3:], tt.want)
		}
		if got, want := HasSpace([]byte(tt.text)), tt.text != tt.want; got != want {
			t.Errorf("HasSpace(%q) = %v, want %v", tt.text, got, want)
		}
	}
}

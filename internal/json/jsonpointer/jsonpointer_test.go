package jsonpointer

import "testing"

func TestEscape(t *testing.T) {
	for _, tt := range []struct{ name, token string }{
		{"", ""}, {"a", "a"}, {"a/b", "a~1b"}, {"~", "~0"}, {"~1", "~01"}, {"/~/", "~1~0~1"},
	} {
		if got := Escape(tt.name); got != tt.token {
			t.Errorf("Escape(%q) = %q, want %q", tt.name, got, tt.token)
		}
		if got := Unescape(tt.token); got != tt.name {
			t.Errorf("Unescape(%q) = %q, want %q", tt.token, got, tt.name)
		}
	}
}

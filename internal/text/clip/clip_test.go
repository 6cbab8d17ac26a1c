package clip

import "testing"

func TestString(t *testing.T) {
	for _, tt := range []struct {
		s     string
		limit int
		want  string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aéb", 2, "a…"}, // the second byte of é would be cut off
		{"aéb", 3, "aé…"},
		{"a€b", 3, "a…"},
		{"€", 1, "…"},
		{"a\x80\x80\x80\x80\x80b", 5, "a…"}, // not UTF-8
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80…"},
	} {
		if got := String(tt.s, tt.limit); got != tt.want {
			t.Errorf("String(%q, %d) = %q, want %q", tt.s, tt.limit, got, tt.want)
		}
		if got := String([]byte(tt.s), tt.limit); got != tt.want {
			t.Errorf("String of bytes (%q, %d) = %q, want %q", tt.s, tt.limit, got, tt.want)
		}
	}
}

package clip

import (
	"strings"
	"testing"
)

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

func TestPrefix(t *testing.T) {
	for _, tt := range []struct {
		s     string
		limit int
		want  string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc"},
		{"aéb", 2, "a"},
		{"€", 1, ""},
	} {
		if got := Prefix(tt.s, tt.limit); got != tt.want {
			t.Errorf("Prefix(%q, %d) = %q, want %q", tt.s, tt.limit, got, tt.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, tt := range []struct{ s, want string }{
		{"", `""`},
		{"a\nb", `"a\nb"`},
		{"abcd", `"abc"…`},
		{"abé", `"ab"…`},
		{"\x1b\u202e", `"\x1b"…`},
	} {
		if got := Quote(tt.s, 3); got != tt.want {
			t.Errorf("Quote(%q, 3) = %s, want %s", tt.s, got, tt.want)
		}
	}
}

func TestCharacters(t *testing.T) {
	for _, tt := range []struct {
		s    string
		n    int
		want string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"äöü", 3, "äöü"},
		{"äöüß", 3, "äö…"},
		{"🎉🎉🎉", 3, "🎉🎉🎉"},
		{"🎉🎉🎉a", 3, "🎉🎉…"},
		{"ab", 1, "…"},
		{"\xff\xff\xff", 2, "\xff…"},
		{strings.Repeat("🎉", 100), 3, "🎉🎉…"},
	} {
		if got := Characters(tt.s, tt.n); got != tt.want {
			t.Errorf("Characters(%q, %d) = %q, want %q", tt.s, tt.n, got, tt.want)
		}
	}
}

package jsonpointer

import (
	"slices"
	"testing"
)

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

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		pointer string
		want    []string
	}{
		{"", nil}, {"/", []string{""}}, {"/a", []string{"a"}}, {"/a/0/", []string{"a", "0", ""}}, {"/a~1b/~01", []string{"a/b", "~1"}}, {"a/b", []string{"a", "b"}},
	} {
		if got := Split(tt.pointer); !slices.Equal(got, tt.want) {
			t.Errorf("Split(%q) = %q, want %q", tt.pointer, got, tt.want)
		}
	}
}

func TestFind(t *testing.T) {
	const text = `{"a":[1,{"b/c":2}],"":{"":3},"0":4}`
	for _, tt := range []struct{ pointer, want string }{
		{"", text}, {"/a/0", "1"}, {"/a/1/b~1c", "2"}, {"//", "3"}, {"/0", "4"},
		{"/b", ""}, {"/a/2", ""}, {"/a/-1", ""}, {"/a/+1", ""}, {"/a/01", ""}, {"/a/", ""}, {"/a/0/x", ""}, {"/a/b", ""},
	} {
		if got := string(Find([]byte(text), tt.pointer)); got != tt.want {
			t.Errorf("Find(%q) = %s, want %s", tt.pointer, got, tt.want)
		}
	}
}

package schema

import (
	"strings"
	"testing"
)

func TestPointerAt(t *testing.T) {
	const text = ` {"a": [10, {"b/c" :"x,]}", "~": {} }, [ [], 7 ]], "" : null, "\u0065\"": [true]} `
	for _, c := range []struct{ value, want string }{
		{`{"a"`, ""},
		{`"a"`, ""}, // a name: its object
		{`[10`, "/a"},
		{`10`, "/a/0"},
		{`{"b/c"`, "/a/1"},
		{`"b/c"`, "/a/1"},
		{`"x,]}"`, "/a/1/b~1c"},
		{`{} }`, "/a/1/~0"},
		{`[ []`, "/a/2"},
		{`[], 7`, "/a/2/0"},
		{`7`, "/a/2/1"},
		{`"" :`, ""},
		{`null`, "/"},
		{`[true`, `/e"`},
		{`true`, `/e"/0`},
	} {
		at := strings.Index(text, c.value)
		if got := pointerAt([]byte(text), at); got != c.want {
			t.Errorf("%s at %d: got %q, want %q", c.value, at, got, c.want)
		}
		// Later bytes must not matter: output may end there.
		if got := pointerAt([]byte(text[:at]), at); got != c.want {
			t.Errorf("%s at %d, cut: got %q, want %q", c.value, at, got, c.want)
		}
	}
}

func TestAppendPath(t *testing.T) {
	for _, c := range []struct{ pointer, want string }{
		{"", ""},
		{"/", `[""]`},
		{"/a/0/b-c/$d", ".a[0].b-c.$d"},
		{"/a b/~1~0/-", `["a b"]["/~"]["-"]`},
		{strings.Repeat("/a", 16), strings.Repeat(".a", 16)},
		{strings.Repeat("/a", 17), strings.Repeat(".a", 8) + "..." + strings.Repeat(".a", 8)},
	} {
		if got := string(appendPath(nil, c.pointer)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.pointer, got, c.want)
		}
	}
}

// FuzzPointerAt shows that no offset in any text causes a panic.
func FuzzPointerAt(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"c"}]}`), 12)
	f.Add([]byte(`[[[`), 3)
	f.Add([]byte(`{"a":"\`), 7)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		_ = pointerAt(text, at)
		if at >= 0 && at <= len(text) {
			_ = gotAt(text, at)
			_ = clipRaw(text, at)
			_ = appendCanonical(nil, text[at:])
			c := cursor{b: text, i: at}
			_ = c.duplicates(3)
		}
	})
}

package call

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/cli/targets"
)

func TestSplitLine(t *testing.T) {
	for _, tt := range []struct {
		line string
		want []string
		open bool
	}{
		{"", nil, false},
		{"  call  add a=1 ", []string{"call", "add", "a=1"}, false},
		{`call echo text="two words" 'three more' it's`, []string{"call", "echo", "text=two words", "three more", "it's"}, false},
		{`x a:={"b": [1, "} "]} c`, []string{"x", `a:={"b": [1, "} "]}`, "c"}, false},
		{`x a:="b \" c" d`, []string{"x", `a:="b \" c"`, "d"}, false},
		{`{"a": 1} [2, 3]`, []string{`{"a": 1}`, "[2, 3]"}, false},
		{`C:\dir\ with\\two`, []string{`C:\dir with\two`}, false},
		{`a "open`, []string{"a", "open"}, true},
		{`a {"open": `, []string{"a", `{"open": `}, true},
		{`"" x=""`, []string{"", "x="}, false},
	} {
		got, err := splitLine(tt.line)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err != nil) != tt.open {
			t.Errorf("splitLine(%q), error %v (-want +got):\n%s", tt.line, err, diff)
		}
	}
}

func FuzzSplitLine(f *testing.F) {
	for _, s := range []string{`call a b:={"c":[1]} "d e"`, `x:="`, `\`, `a='`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, _ := splitLine(line) // must end
		n := 0
		for _, w := range words {
			n += len(w)
		}
		if n > len(line) {
			t.Errorf("%q contains less than %q", line, words)
		}
	})
}

func TestComplete(t *testing.T) {
	w := newVocabulary(nil)
	w.tools = map[string][]targets.Property{
		"search":   {{Name: "query", Schema: json.RawMessage(`{}`)}, {Name: "deep", Kind: "boolean", Schema: json.RawMessage(`{}`)}, {Name: "kind", Schema: json.RawMessage(`{"enum":["web","wiki"]}`)}},
		"search2":  nil,
		"evil\x1b": nil,
	}
	w.prompts = map[string][]string{"review": {"language", "level"}}
	w.resources = []string{"file:///a", "file:///b"}
	for _, tt := range []struct{ line, want, choices string }{
		{"ca", "call ", ""},
		{"call se", "call search", ""},
		{"call search", "call search", "search search2"},
		{"call search q", "call search query=", ""},
		{"call search query=x d", "call search query=x deep=", ""},
		{"call search deep=t", "call search deep=true ", ""},
		{"call search kind=w", "call search kind=w", "kind=web kind=wiki"},
		{"call e", "call e", ""},
		{"call search --js", "call search --json ", ""},
		{"prompt r", "prompt review ", ""},
		{"prompt review l", "prompt review l", "language= level="},
		{"read f", "read file:///", ""},
		{"list to", "list tools ", ""},
		{"complete prompt review la", "complete prompt review language ", ""},
		{"nope x", "nope x", ""},
		{`call "se`, `call "se`, ""},
	} {
		got, pos, choices := w.complete(tt.line, len(tt.line))
		if got != tt.want || pos != len(got) || strings.Join(choices, " ") != tt.choices {
			t.Errorf("complete(%q) = %q, %d, %q, want %q and %q", tt.line, got, pos, choices, tt.want, tt.choices)
		}
	}
}

func TestKeys(t *testing.T) {
	k := &keys{in: bytes.NewReader([]byte("ab\x03c"))}
	var got []byte
	for {
		var buf [2]byte
		n, err := k.Read(buf[:])
		got = append(got, buf[:n]...)
		if err != nil {
			break
		}
	}
	if want := "ab" + emptyLine + "c"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

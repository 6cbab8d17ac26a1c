package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/text/safe"
	"mcpwire/mcp"
)

func TestSafeText(t *testing.T) {
	for _, tt := range []struct{ in, line string }{
		{"plain ü 漢 🎉", "plain ü 漢 🎉"},
		{"\x1b[2J", `\x1b[2J`},
		{"a\nb\tc\r", `a\nb\tc\r`},
		{"\u202eabc\u2066\u200b\u200d\ufeff\u00ad", `\u202eabc\u2066\u200b\u200d\ufeff\u00ad`},
		{"\u009b31m\x7f", `\u009b31m\x7f`},
		{"\xff\xc3", `\xff\xc3`},
		{"\U000e0041\U000e0100", `\U000e0041\U000e0100`},
		{"\u2028\u2029", `\u2028\u2029`},
	} {
		if got := safe.Line(tt.in); got != tt.line {
			t.Errorf("safeLine(%q) = %q, want %q", tt.in, got, tt.line)
		}
		quoted, err := json.Marshal(tt.in)
		if err != nil {
			t.Fatal(err)
		}
		escaped := safe.JSON(quoted)
		if s := string(escaped); safe.Line(s) != s {
			t.Errorf("safeJSON leaves %q", s)
		}
		var before, after string
		if json.Unmarshal(quoted, &before) != nil || json.Unmarshal(escaped, &after) != nil || before != after {
			t.Errorf("safeJSON(%s) = %s is another value", quoted, escaped)
		}
	}
	if got := safe.Text("a\n\tb\x07"); got != "a\n\tb\\x07" {
		t.Errorf("safeText: %q", got)
	}
}

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

func TestConvert(t *testing.T) {
	for _, tt := range []struct {
		kind, text, want string
		ok               bool
	}{
		{"integer", "12", "12", true},
		{"integer", "-0", "-0", true},
		{"integer", "012", `"012"`, false},
		{"integer", "1.0", `"1.0"`, false},
		{"integer", "1e3", `"1e3"`, false},
		{"integer", " 1", `" 1"`, false},
		{"integer", "", `""`, false},
		{"integer", "12345678901234567890123", "12345678901234567890123", true},
		{"number", "1.50", "1.50", true},
		{"number", "NaN", `"NaN"`, false},
		{"boolean", "true", "true", true},
		{"boolean", "True", `"True"`, false},
		{"string", "12", `"12"`, true},
		{"", "12", `"12"`, true},
		{"array", "[1]", `"[1]"`, false},
	} {
		got, ok := convert(tt.kind, tt.text)
		if string(got) != tt.want || ok != tt.ok {
			t.Errorf("convert(%s, %q) = %s, %v, want %s, %v", tt.kind, tt.text, got, ok, tt.want, tt.ok)
		}
	}
}

// answering is an askFunc that returns answers in order, and records the questions.
func answering(asked *strings.Builder, lines ...string) askFunc {
	return func(_ context.Context, prompt string) (string, error) {
		asked.WriteString(prompt)
		if len(lines) == 0 {
			return "", io.EOF
		}
		line := lines[0]
		lines = lines[1:]
		asked.WriteString(line + "\n")
		return line, nil
	}
}

func TestForm(t *testing.T) {
	const fields = `{"type":"object","required":["name","tags"],"properties":{
		"name":{"type":"string","minLength":2,"title":"Full name"},
		"age":{"type":"integer","minimum":0},
		"size":{"type":"string","oneOf":[{"const":"s","title":"Small"},{"const":"l","title":"Large"}],"default":"l"},
		"tags":{"type":"array","items":{"type":"string","enum":["a","b","c"]},"maxItems":2}}}`
	for _, tt := range []struct {
		name    string
		answers []string
		want    string
	}{
		{"all", []string{"Ann", "7", "small", "1, c", "y"}, `accept {"name":"Ann","age":7,"size":"s","tags":["a","c"]}`},
		{"defaults", []string{"Ann", "", "", "b", ""}, `accept {"name":"Ann","size":"l","tags":["b"]}`},
		{"mended", []string{"", "A", "Ann", "x", "-1", "1", "3", "2", "a,b,c", "a", "y"}, `accept {"name":"Ann","age":1,"size":"l","tags":["a"]}`},
		{"back", []string{"Ann", ":back", "Bob", "", "", "a", "y"}, `accept {"name":"Bob","size":"l","tags":["a"]}`},
		{"edited", []string{"Ann", "", "", "a", "e", "", "9", "", "", "y"}, `accept {"name":"Ann","age":9,"size":"l","tags":["a"]}`},
		{"declined", []string{"Ann", ":decline"}, "decline "},
		{"declined at the end", []string{"Ann", "", "", "a", "d"}, "decline "},
		{"cancelled", []string{":cancel"}, "cancel "},
		{"end of input", []string{"Ann"}, "cancel "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked strings.Builder
			f := newForm("srv", &mcp.ElicitRequestParams{Message: "Who\x1b[A?", RequestedSchema: json.RawMessage(fields)})
			r, err := f.fill(t.Context(), answering(&asked, tt.answers...))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(r.Action) + " " + string(r.Content); got != tt.want {
				t.Errorf("got  %s\nwant %s\n%s", got, tt.want, asked.String())
			}
			if !strings.Contains(asked.String(), `The server srv requests input: Who\x1b[A?`) {
				t.Errorf("asked %q", asked.String())
			}
		})
	}
}

// TestFormBadDefault shows that a default that violates its own schema is neither offered nor sent.
func TestFormBadDefault(t *testing.T) {
	for _, tt := range []struct {
		name, field, required string
		answers               []string
		want                  string
	}{
		{"optional", `{"type":"string","minLength":3,"default":"x"}`, "", []string{"", "y"}, `accept {}`},
		{"required", `{"type":"string","minLength":3,"default":"x"}`, `"a"`, []string{"", "xyz", "y"}, `accept {"a":"xyz"}`},
		{"another type", `{"type":"integer","default":"7"}`, "", []string{"", "y"}, `accept {}`},
		{"null", `{"type":"boolean","default":null}`, "", []string{"", "y"}, `accept {}`},
		{"no option", `{"type":"string","enum":["s","l"],"default":"m"}`, "", []string{"", "y"}, `accept {}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked strings.Builder
			f := newForm("srv", &mcp.ElicitRequestParams{Message: "m", RequestedSchema: json.RawMessage(`{"type":"object","required":[` + tt.required + `],"properties":{"a":` + tt.field + `}}`)})
			r, err := f.fill(t.Context(), answering(&asked, tt.answers...))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(r.Action) + " " + string(r.Content); got != tt.want {
				t.Errorf("got %s, want %s\n%s", got, tt.want, asked.String())
			}
			if !strings.Contains(asked.String(), "is invalid: ") {
				t.Errorf("asked %q, which does not mention the default", asked.String())
			}
		})
	}
}

func TestComplete(t *testing.T) {
	w := newVocabulary(nil)
	w.tools = map[string][]property{
		"search":   {{name: "query", schema: json.RawMessage(`{}`)}, {name: "deep", kind: "boolean", schema: json.RawMessage(`{}`)}, {name: "kind", schema: json.RawMessage(`{"enum":["web","wiki"]}`)}},
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

func TestNearest(t *testing.T) {
	names := []string{"echo", "word_count", "add", "list"}
	for in, want := range map[string]string{"eco": "echo", "lits": "list", "word": "word_count", "zzz": "", "ad": "add", "": ""} {
		if got := strings.Join(nearest(in, names), " "); got != want {
			t.Errorf("nearest(%q) = %q, want %q", in, got, want)
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

func TestCommandName(t *testing.T) {
	for _, tt := range []struct {
		command []string
		want    string
	}{
		{[]string{"node", "server.js", "--api-key", "secret"}, "node server.js"},
		{[]string{"crash", "--api-key", "secret"}, "crash"},
		{[]string{"npx"}, "npx"},
	} {
		if got := commandName(tt.command); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.command, got, tt.want)
		}
	}
}

func TestNearestRules(t *testing.T) {
	for _, tt := range []struct{ id, want string }{
		{"id-nul", "jsonrpc/id-null"},
		{"jsonrpc/idnull", "jsonrpc/id-null"},
		{"stray-output", "stdio/stray-output"},
		{"STDIO/STRAY-OUTPUT", "stdio/stray-output"},
		{"no match", ""},
		{"", ""},
	} {
		got := ""
		if similar := nearestRules(tt.id); len(similar) > 0 {
			got = similar[0]
		}
		if got != tt.want {
			t.Errorf("nearestRules(%q) begins with %q, want %q", tt.id, got, tt.want)
		}
	}
}

package kit

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestJSONUnits(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       [][]piece
	}{
		{"notification", `{"jsonrpc":"2.0","method":"m"}`, [][]piece{
			{{"{", "2;36"}},
			{{`"jsonrpc":`, "2;36"}, {`"2.0"`, "2;36"}, {",", "2;36"}},
			{{`"method":`, "2;36"}, {`"m"`, "1;36"}, {"}", "2;36"}},
		}},
		{"ids and methods further in are values like others", `{"id":7,"params":{"id":"x"}}`, [][]piece{
			{{"{", "2;36"}},
			{{`"id":`, "2;36"}, {"7", "1;36"}, {",", "2;36"}},
			{{`"params":`, "2;36"}, {"{", "2;36"}},
			{{`"id":`, "2;36"}, {`"x"`, "36"}, {"}", "2;36"}, {"}", "2;36"}},
		}},
		{"escapes", `["a\"],b\\"]`, [][]piece{
			{{"[", "2;36"}},
			{{`"a\"],b\\"`, "36"}, {"]", "2;36"}},
		}},
		{"broken", `{"id":"a`, [][]piece{
			{{"{", "2;36"}},
			{{`"id":`, "2;36"}, {`"a`, "1;36"}},
		}},
		{"no JSON", `hello`, [][]piece{{{"hello", "36"}}}},
		{"empty", ``, [][]piece{nil}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, jsonUnits(tt.line, Cyan), cmp.AllowUnexported(piece{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestJSONUnitsLoseNothing checks that the units of any line together are the line.
func TestJSONUnitsLoseNothing(t *testing.T) {
	for _, line := range []string{`{"a":[1,2,{"b":"c d"}],"e":null}`, `}{`, `:::`, `"`, `"\`, `{"a" :1}`, "→ \x00", ",,", `[[[`} {
		var b strings.Builder
		for _, unit := range jsonUnits(line, Red) {
			for _, p := range unit {
				b.WriteString(p.text)
			}
		}
		if diff := cmp.Diff(line, b.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestScreen(t *testing.T) {
	const line = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`
	for _, tt := range []struct {
		name  string
		width int
		paint Paint
		show  func(s *Screen)
		want  string
	}{
		{"not folded", 0, false, func(s *Screen) { s.Message(Cyan, "→", line) }, "→ " + line + "\n"},
		{"fits", 73, false, func(s *Screen) { s.Message(Cyan, "→", line) }, "→ " + line + "\n"},
		{"does not fit", 72, false, func(s *Screen) { s.Message(Cyan, "→", line) },
			"→ {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\n    \"name\":\"echo\"}}\n"},
		{"narrow", 20, false, func(s *Screen) { s.Message(Cyan, "→", line) },
			"→ {\"jsonrpc\":\"2.0\",\n    \"id\":1,\"method\":\n    \"tools/call\",\n    \"params\":{\n    \"name\":\"echo\"}}\n"},
		{"words of a long text", 20, false, func(s *Screen) { s.Message(Cyan, "←", `{"text":"one two three four five"}`) },
			"← {\"text\":\"one two\n    three four five\"\n    }\n"},
		{"colored", 30, true, func(s *Screen) { s.Message(Red, "←", `{"id":1,"error":{"code":-32700}}`) },
			"\x1b[31m←\x1b[0m \x1b[2;31m{\"id\":\x1b[0m\x1b[1;31m1\x1b[0m\x1b[2;31m,\"error\":{\x1b[0m\n    \x1b[2;31m\"code\":\x1b[0m\x1b[31m-32700\x1b[0m\x1b[2;31m}}\x1b[0m\n"},
		{"no JSON", 20, false, func(s *Screen) { s.Message(Cyan, "→", "(end of input, and so on)") }, "→ (end of input, and\n    so on)\n"},
		{"note", 20, true, func(s *Screen) { s.Note("so this is a result, with isError") }, "  so this is a\n  result, with\n  isError\n"},
		{"a space at the margin", 6, false, func(s *Screen) { s.Line("123456 7") }, "123456\n7\n"},
		{"title", 20, true, func(s *Screen) { s.Title("The end") }, "\n\x1b[1mThe end\x1b[0m\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			s := &Screen{w: &b, width: tt.width, Paint: tt.paint}
			tt.show(s)
			if diff := cmp.Diff(tt.want, b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFoldWidth checks for every width that no line is wider, and that nothing but spaces and line
// breaks is added or lost.
func TestFoldWidth(t *testing.T) {
	removeSpace := func(s string) string { return strings.Join(strings.Fields(s), "") }
	for _, step := range []struct{ send, meaning string }{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":"two"}}}`, "the arguments do not match the schema, and so this is a result, with isError"},
		{"(end of input, and so on)", "all requests in flight finish before the server ends; nothing is lost"},
	} {
		for width := MinWidth; width < 200; width++ {
			var b bytes.Buffer
			s := &Screen{w: &b, width: width}
			s.Message(Cyan, "→", step.send)
			s.Note(step.meaning)
			if got, want := removeSpace(b.String()), removeSpace("→"+step.send+step.meaning); got != want {
				t.Fatalf("width %d: got %q, want %q", width, got, want)
			}
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
					t.Fatalf("width %d: %d columns: %q", width, n, line)
				}
			}
		}
	}
}

package filter_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/rpc/traffic"
)

// A subject is an item that filters match.
type subject struct {
	fields   map[filter.Field][]string
	from, to uint64
	took     time.Duration // -1 if unknown
	bytes    int64
	payloads []string
}

func (s subject) MatchField(f filter.Field, match func(string) bool) bool {
	for _, v := range s.fields[f] {
		if match(v) {
			return true
		}
	}
	return false
}
func (s subject) HasEventIn(from, to uint64) bool { return s.from <= to && from <= s.to }
func (s subject) Elapsed() (time.Duration, bool)  { return s.took, s.took >= 0 }
func (s subject) Bytes() int64                    { return s.bytes }
func (s subject) Payloads() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, p := range s.payloads {
			if !yield([]byte(p)) {
				return
			}
		}
	}
}

var call = subject{
	fields: map[filter.Field][]string{
		filter.Tool: {"Search"}, filter.Method: {"tools/call", "elicitation/create"}, filter.ID: {"7"}, filter.Dir: {"c2s"},
		filter.Kind: {"request", "progress"}, filter.Status: {"iserror"}, filter.Server: {"my server"}, filter.Session: {"2"},
		filter.Era: {"modern"}, filter.Revision: {"2026-07-28"}, filter.Finding: {"json-id", "error"},
	},
	from: 12, to: 15, took: 600 * time.Millisecond, bytes: 1500,
	payloads: []string{
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"Search","arguments":{"q":"Gr\u00fc\u00dfe aus \"Bonn\"","n":3},"_meta":{"traceparent":"00-1","io.x/y":null}}}`,
		`{"jsonrpc":"2.0","id":7,"result":{"isError":true,"content":[{"type":"text","text":"read tcp: i/o TIMEOUT"},{"type":"image"}]}}`,
		`[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b","params":{"x":1}}]`,
		`not JSON at all`,
	},
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		filter string
		want   bool
	}{
		{"", true},
		{"   ", true},
		{"()", true},
		{"tool:search", true},
		{"tool:SEARCH", true},
		{"tool:sear", true},
		{"tool:EAR", true},
		{"tool:searches", false},
		{"tool:=sear", false},
		{"tool:=search", true},
		{"tool:=SEARCH", true},
		{`tool:="search"`, true},
		{"tool:=sea*", false},
		{`tool:"ear"`, true},
		{`tool:""`, false},
		{"method:call", true},
		{"method:=call", false},
		{"server:serv", true},
		{"status:=iserror", true},
		{"status:failed", true},
		{"status:=failed", true},
		{"status:toolfailed", true},
		{`status:"Tool failed"`, true},
		{"status:tool-failed", true},
		{"-status:failed", false},
		{"status:noresponse", false},
		{`status:"no response"`, false},
		{`status:"needs input"`, false},
		{`status:"HTTP error"`, false},
		{"status:canceled", false},
		{"id:=7", true},
		{"rev:2026", true},
		{"finding:json", true},
		{"finding:=json", false},
		{"dur:=600ms", true},
		{"tool:sea*", true},
		{"tool:*rc*", true},
		{"tool:*x*", false},
		{`tool:"search"`, true},
		{`tool:"sea*"`, false},
		{"tool:/^Se/", true},
		{"tool:/^se/", false},
		{"tool:/^se/i", true},
		{`method:/^tools\/c/`, true},
		{"method:elicitation/create", true},
		{"-method:elicitation/*", false},
		{"-method:ping", true},
		{`server:"my server"`, true},
		{"id:7 dir:c2s kind:progress status:isError session:2 era:modern rev:2026*", true},
		{"id:7 dir:s2c", false},
		{"finding:*", true},
		{"finding:error", true},
		{"finding:json-id -finding:other", true},
		{"status:-32602", false},
		{"dur>500ms", true},
		{"dur>600ms", false},
		{"dur>=600ms dur<=600ms dur:600ms dur=0.6s", true},
		{"dur<1s", true},
		{"size>1kB", true},
		{"size>1.5k", false},
		{"size>=1500", true},
		{"size<1KiB", false},
		{"n:12", true},
		{"n:11", false},
		{"n:1-12", true},
		{"n:15-", true},
		{"n:16-", false},
		{"timeout", true},
		{`"I/O timeout"`, true},
		{"-timeout", false},
		{"/TIMEOUT/", true},
		{"/timeout/", false},
		{"/timeout/i", true},
		{"grüsse", false},
		{"grüße", true},
		{`"\"bonn\""`, true},
		{"nowhere", false},
		{"JSON", true},
		{"has:_meta.traceparent", true},
		{"has:params._meta.traceparent", true},
		{"has:_meta.io.x/y", true},
		{"has:_meta.tracestate", false},
		{"has:content.text", true},
		{"has:content.0.text", true},
		{"has:content.1.text", false},
		{"has:isError", true},
		{"has:x", true},
		{"jq:(.params.arguments.n == 3)", true},
		{"jq:(.params.arguments.n == 4)", false},
		{"jq:(.result.isError) jq:(.id == 7)", true},
		{"jq:(.result.isError and .params.name == \"Search\")", false}, // two different messages
		{`jq:(.result.content[]? | select(.type=="image") | true)`, true},
		{`jq:(.params.arguments.q | test("a)"; "i")?)`, false},
		{`jq:("\("a" + ")")" == "a)")`, true},
		{"jq:(.method == \"b\")", true},
		{"jq:(empty)", false},
		{"jq:(error)", false},
		{"jq:($ENV.PATH != null or env.PATH != null)", false},
		{"tool:other | timeout", true},
		{"tool:other or timeout", true},
		{"tool:other or nowhere", false},
		{"tool:search (nowhere | timeout)", true},
		{"-(tool:search timeout)", false},
		{"--tool:search", true},
		{"-(nowhere)", true},
	} {
		f, err := filter.Parse(tt.filter)
		if err != nil {
			t.Errorf("%s: %v", tt.filter, err)
			continue
		}
		if got := f.Match(t.Context(), call); got != tt.want {
			t.Errorf("%s: matches: %v, want %v", tt.filter, got, tt.want)
		}
		again, err := filter.Parse(f.String())
		if err != nil || again.String() != f.String() {
			t.Errorf("%s: String %s is read as %v, %v", tt.filter, f, again, err)
		} else if got := again.Match(t.Context(), call); got != tt.want {
			t.Errorf("%s: String %s matches: %v, want %v", tt.filter, f, got, tt.want)
		}
	}
}

func TestUnknownDuration(t *testing.T) {
	for _, text := range []string{"dur>1ms", "dur<1h"} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if f.Match(t.Context(), subject{took: -1}) {
			t.Errorf("%s matches an exchange without an end", text)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct{ filter, want string }{
		{"foo:bar", `column 1: unknown field "foo": want one of tool`},
		{"a http://x", `column 3: unknown field "http"`},
		{"tool:", "column 6: a value is missing after tool:, such as tool:search"},
		{"dir:up", `column 5: dir: unknown value "up": want one of c2s, s2c`},
		{"status:bad", `column 8: status: unknown value "bad": want one of ok, error`},
		{"kind:x", "column 6: kind: unknown value"},
		{"ü /a(/", "column 3: error parsing regexp: missing closing )"},
		{"/abc", `column 1: the regular expression has no "/" at its end`},
		{"//", "column 1: the regular expression is empty"},
		{`"abc`, "column 1: the quote is not closed"},
		{`""`, "column 1: the text to search for is missing"},
		{`"a"b`, "column 4: a space is missing"},
		{`a"b"`, "column 2: a space is missing"},
		{"a -", `column 3: "-" must precede the term`},
		{"(a", `column 1: "(" without ")"`},
		{"a)", `column 2: ")" without "("`},
		{"a |", `column 4: a term is missing next to "|"`},
		{"or b", `column 1: a term is missing next to "|"`},
		{"dur>fast", `column 5: dur> needs a duration such as 500ms, 2s or 1m30s, not "fast"`},
		{"dur>-1s", "column 5: dur> needs a duration"},
		{"size>1xb", "column 6: size> needs a size"},
		{"n:x", "column 3: n: needs a number"},
		{"n:5-2", "column 3: n: needs a number"},
		{"has:", "column 5: a path is missing"},
		{"has:a*", "column 5: has: needs a path"},
		{"jq:.a", "column 4: jq: needs a program in parentheses"},
		{"jq:(.a", `column 4: the jq program has no ")"`},
		{"jq:(.a | )", "jq: unexpected EOF"},
		{"jq:(input)", "jq: "},
		{"jq:(nosuch)", "jq: function not defined: nosuch/0"},
		{"jq:(import \"a\" as a; .)", "jq: "},
		{strings.Repeat("(", 100), "nested too deeply"},
		{strings.Repeat("-", 100) + "a", "nested too deeply"},
		{strings.Repeat("a ", 300), "more than 64 terms about payloads"},
		{"\xff", "not UTF-8"},
	} {
		f, err := filter.Parse(tt.filter)
		var syntax *filter.SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%.40s: got %v, %v", tt.filter, f, err)
			continue
		}
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40s: got %q, want it to have %q", tt.filter, err, tt.want)
		}
	}
}

// TestJQEnds runs programs that do not end by themselves, or need too much memory.
func TestJQEnds(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, program := range []string{"last(repeat(1))", "[range(1e12)]", "def f: f; f", "until(false; .)"} {
		f, err := filter.Parse("jq:(" + program + ")")
		if err != nil {
			t.Fatal(err)
		}
		if f.Scan(cancelled, []byte("{}")) != 0 {
			t.Errorf("%s holds", program)
		}
	}
	f, err := filter.Parse("jq:(last(repeat(1)))") // only the limit ends it
	if err != nil {
		t.Fatal(err)
	}
	if f.Scan(t.Context(), []byte("{}")) != 0 {
		t.Error("an endless program matches")
	}
	f, err = filter.Parse("jq:(true)")
	if err != nil {
		t.Fatal(err)
	}
	if f.Scan(t.Context(), []byte(`{}`)) == 0 {
		t.Error("true does not hold")
	}
	for _, payload := range []string{"[" + strings.Repeat(" ", 5<<20) + "]", strings.Repeat("[", 1000), `{"a":1}{}`, "", "x"} {
		if f.Scan(t.Context(), []byte(payload)) != 0 {
			t.Errorf("%.20q of %d bytes matches", payload, len(payload))
		}
	}
}

// TestLongText finds words across the boundaries of the chunks that are searched.
func TestLongText(t *testing.T) {
	f, err := filter.Parse("NeeDle")
	if err != nil {
		t.Fatal(err)
	}
	for at := 4080; at < 4110; at++ {
		text := strings.Repeat("x", at) + "nEEdle" + strings.Repeat("y", 5000)
		if f.Scan(t.Context(), []byte(text)) == 0 {
			t.Errorf("not found at %d", at)
		}
	}
}

func TestNil(t *testing.T) {
	var f *filter.Filter
	if !f.Match(t.Context(), subject{}) || f.NeedsPayload() || f.String() != "" || f.Scan(t.Context(), []byte("x")) != 0 {
		t.Error("a nil filter does not match everything")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"tool:search -method:ping dur>500ms size>1MB", `tool:=search method:="a b" status:=ok server:=/x tool:=* finding:error tool:""`, `has:_meta.traceparent "two \"words\"" /re\/x/i finding:*`, "n:12-20 | (a or -b)",
		`jq:(.a | test("x)\(1)")) # `, "--(a)", "jq:(.\n#)\n)", "a|b|c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := filter.Parse(s)
		if err != nil {
			var syntax *filter.SyntaxError
			if !errors.As(err, &syntax) || syntax.Column < 1 || syntax.Column > len(s)+1 {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		b, err := filter.Parse(a.String())
		if err != nil {
			t.Fatalf("%q: String %q: %v", s, a, err)
		}
		if a.String() != b.String() {
			t.Fatalf("%q: String %q, again %q", s, a, b)
		}
		if strings.Contains(s, "jq:") {
			return // may be slow
		}
		if got, want := b.Match(t.Context(), call), a.Match(t.Context(), call); got != want {
			t.Fatalf("%q matches: %v, but %q: %v", s, want, b, got)
		}
	})
}

// FuzzScan scans hostile payloads.
func FuzzScan(f *testing.F) {
	filters := []*filter.Filter{}
	for _, s := range []string{"has:a.b.c", `"\"x\""`, "jq:(.. | numbers | . > 3)", "ü"} {
		parsed, err := filter.Parse(s)
		if err != nil {
			f.Fatal(err)
		}
		filters = append(filters, parsed)
	}
	for _, p := range call.payloads {
		f.Add([]byte(p))
	}
	f.Add([]byte(`{"a":[{"b":{"c":1e9999}}],"a.b":{"c":"\ud83d\ude00\u"}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var frame traffic.Frame
		frame.Parse(payload)
		for _, x := range filters {
			if got, want := x.ScanFrame(t.Context(), payload, &frame), x.Scan(t.Context(), payload); got != want {
				t.Errorf("%s: %b with the parsed payload, %b without", x, got, want)
			}
		}
	})
}

func ExampleParse() {
	f, err := filter.Parse(`tool:search dur>500ms -"not found"`)
	fmt.Println(f, err)
	_, err = filter.Parse("tol:search")
	fmt.Println(err)
	// Output:
	// tool:search dur>500ms -"not found" <nil>
	// filter, column 1: unknown field "tol": want one of tool, target, method, id, task, dir, kind, status, server, session, side, era, rev, finding, n, has, jq, dur> and size>. To search for the text itself, put it in quotes
}

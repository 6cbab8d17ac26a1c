package jsonwire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSkipValue(t *testing.T) {
	tests := []struct {
		text string
		i    int
		want int
	}{
		{`1`, 0, 1},
		{` 1 `, 0, 2},
		{`12,3`, 0, 2},
		{`12}`, 0, 2},
		{`[true,false]`, 1, 5},
		{`[true,false]`, 6, 11},
		{`"a"`, 0, 3},
		{`"a\"" `, 0, 5},
		{`"\\" "`, 0, 4},
		{`"\\\"" "`, 0, 6},
		{`"" ""`, 0, 2},
		{`{"a":"}"} }`, 0, 9},
		{`[[],[[]]] ]`, 0, 9},
		{`{"k" : [ 1 , 2 ] , "l":0}`, 6, 16},
		{``, 0, 0},
		{`  `, 0, 2},
		{`1`, 1, 1},
	}
	for _, tt := range tests {
		if got := SkipValue([]byte(tt.text), tt.i); got != tt.want {
			t.Errorf("SkipValue(%q, %d) = %d, want %d", tt.text, tt.i, got, tt.want)
		}
	}
}

// TestQuotedEnd checks any number of backslashes before a quote, at every position.
func TestQuotedEnd(t *testing.T) {
	for before := range 40 {
		for n := range 20 {
			s := strings.Repeat("x", before) + strings.Repeat(`\`, n) + `"`
			want := len(s)
			if n%2 != 0 {
				s += `"`
				want++
			}
			b := []byte(`"` + s + `,"after"`)
			if got := quotedEnd(b, 1); got != want+1 {
				t.Fatalf("quotedEnd(%q) = %d, want %d", b, got, want+1)
			}
			if end, escaped := nameQuote(b, 1); end != want || escaped != (n > 0) {
				t.Fatalf("nameQuote(%q) = %d, %v, want %d, %v", b, end, escaped, want, n > 0)
			}
		}
	}
}

func TestMembers(t *testing.T) {
	members := func(text string) (got []string) {
		m := ObjectMembers([]byte(text))
		for m.Next() {
			got = append(got, fmt.Sprintf("%s|%s|%s", m.RawKey(), m.KeyString(), m.Value()))
		}
		if m.Next() || len(m.RawKey()) != 0 || len(m.Value()) != 0 {
			t.Errorf("%q: not at its end", text)
		}
		return got
	}
	tests := []struct {
		text string
		want []string
	}{
		{`{}`, nil},
		{` { } `, nil},
		{`{"a":1}`, []string{"a|a|1"}},
		{` { "a" : 1 , "b" : [ 2 ] } `, []string{"a|a|1", "b|b|[ 2 ]"}},
		{`{"":"","a\u0062\n":{"x":"}"},"a":null}`, []string{`||""`, `a\u0062\n|ab` + "\n" + `|{"x":"}"}`, "a|a|null"}},
		{`{"a name of more than eight bytes":0,"one with \\":1}`, []string{
			"a name of more than eight bytes|a name of more than eight bytes|0", `one with \\|one with \|1`,
		}},
		{`[1]`, nil},
		{``, nil},
		{`1`, nil},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, members(tt.text)); diff != "" {
			t.Errorf("%q: -want +got:\n%s", tt.text, diff)
		}
	}
}

func TestKeyIs(t *testing.T) {
	tests := []struct {
		key, name string
		want      bool
	}{
		{`method`, "method", true},
		{`method`, "Method", false},
		{`m\u0065thod`, "method", true},
		{`m\u0065thod`, `m\u0065thod`, false},
		{`\u0000`, "\x00", true},
		{``, "", true},
		{``, "a", false},
		{`\ud83d`, "\ufffd", true},
	}
	for _, tt := range tests {
		m := ObjectMembers([]byte(`{"` + tt.key + `":0}`))
		if !m.Next() || m.KeyIs(tt.name) != tt.want {
			t.Errorf("name %q is %q: want %v", tt.key, tt.name, tt.want)
		}
	}
}

func TestElements(t *testing.T) {
	elements := func(text string) (got []string) {
		e := ArrayElements([]byte(text))
		for e.Next() {
			got = append(got, string(e.Value()))
		}
		if e.Next() || len(e.Value()) != 0 {
			t.Errorf("%q: not at its end", text)
		}
		return got
	}
	tests := []struct {
		text string
		want []string
	}{
		{`[]`, nil},
		{` [ ] `, nil},
		{`[1]`, []string{"1"}},
		{"\n[ 1 ,\t\"]\" , [ [] ] ,{ } ]", []string{"1", `"]"`, "[ [] ]", "{ }"}},
		{`{}`, nil},
		{``, nil},
		{`null`, nil},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, elements(tt.text)); diff != "" {
			t.Errorf("%q: -want +got:\n%s", tt.text, diff)
		}
	}
}

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

func TestIsInexact(t *testing.T) {
	for text, want := range map[string]bool{
		"0": false, "-1": false, "9007199254740991": false, "9007199254740992": true, "-9007199254740992": true, "1e400": true, `"9007199254740992"`: false, "true": false, "[1e400]": false,
	} {
		if got := IsInexact([]byte(text)); got != want {
			t.Errorf("%s is inexact: got %t, want %t", text, got, want)
		}
	}
}

package mcptest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustParse(t testing.TB, text string) value {
	t.Helper()
	v, err := parse(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func TestMatch(t *testing.T) {
	tests := []struct {
		name, want, got string
		problems        []string
	}{
		{"order and space", `{"a":1, "b":[true,null]}`, `{"b":[true,null],"a":1}`, nil},
		{"escapes", `{"\u0061":"\u00e9\n"}`, `{"a":"é\u000a"}`, nil},
		{"numbers", `[1,1.0,100,1e2,-0,0.5]`, `[1.0,1,1E+2,100,0,5e-1]`, nil},
		{"large numbers", `[9007199254740993,1e400]`, `[9007199254740992,1e401]`, []string{
			"[0]: got 9007199254740992, want 9007199254740993", "[1]: got 1e401, want 1e400"}},
		{"an absurd exponent", `1e9999999999`, `1e9999999999`, nil},
		{"two absurd exponents", `1e9999999999`, `10e9999999998`, nil},
		{"different absurd exponents", `1e9999999999`, `1e9999999998`, []string{"the message: got 1e9999999998, want 1e9999999999"}},
		{"sign", `-1`, `1`, []string{"the message: got 1, want -1"}},
		{"kinds", `{"id":1,"b":true,"n":null}`, `{"id":"1","b":false,"n":0}`, []string{
			`id: got "1", want 1`, "b: got false, want true", "n: got 0, want null"}},
		{"members", `{"a":{"b":1,"c":2}}`, `{"a":{"c":2,"d":[3]}}`, []string{
			"a.b: missing, want 1", "a.d: got [3], want no such member"}},
		{"null is not absent", `{"a":null}`, `{}`, []string{"a: missing, want null"}},
		{"elements", `[[1,2],[3]]`, `[[1],[3,4]]`, []string{
			"[0][1]: missing, want 2", "[1][1]: got 4, want no such element"}},
		{"a name that is not a word", `{"a/b":{"c":1}}`, `{"a/b":{"c":2}}`, []string{`["a/b"].c: got 2, want 1`}},
		{"twice", `{"a":1}`, `{"a":1,"a":1}`, []string{"a: appears twice"}},
		{"any", `{"a":"$any","b":["$any","$any"]}`, `{"a":{"x":1},"b":[null,"y"]}`, nil},
		{"any does not match a missing member", `{"a":"$any"}`, `{}`, []string{`a: missing, want "$any"`}},
		{"rest", `{"a":{"b":1,"$any":"$any"}}`, `{"a":{"b":2,"c":3}}`, []string{"a.b: got 2, want 1"}},
		{"empty rest", `{"$any":"$any"}`, `{}`, nil},
		{"rest of an array", `{"$any":"$any"}`, `[]`, []string{`the message: got [], want {"$any":"$any"}`}},
		{"capture", `["$x","$x"]`, `[{"a":1,"b":2},{"b":2.0,"a":1}]`, nil},
		{"capture differs", `["$x","$x"]`, `[1,2]`, []string{"[1]: got 2, want $x, which is 1"}},
		{"bound", `"$bound"`, `{"k":"$any"}`, nil},
		{"a bound value is not a pattern", `"$bound"`, `{"k":"v"}`, []string{`the message: got {"k":"v"}, want $bound, which is {"k":"$any"}`}},
		{"escaped", `["$$x","$$any","$$$x"]`, `["$x","$any","$$x"]`, nil},
		{"escaped name", `{"$$any":1,"$ref":2}`, `{"$any":1,"$ref":2}`, nil},
		{"no variables", `["$","$5","a$x","$x y"]`, `["$","$5","a$x","$x y"]`, nil},
		{"no variables, others", `["$","$5"]`, `["","5"]`, []string{`[0]: got "", want "$"`, `[1]: got "5", want "$5"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			vars := variables{"bound": mustParse(t, `{"k":"$any"}`)}
			m := compare(mustParse(t, tt.want), mustParse(t, tt.got), vars)
			if diff := cmp.Diff(tt.problems, m.diffs); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if len(vars) != 1 {
				t.Errorf("the former variables have changed: %s", vars.names())
			}
		})
	}
}

func TestManyProblems(t *testing.T) {
	m := compare(mustParse(t, "[]"), mustParse(t, "["+strings.Repeat("0,", 29)+"0]"), nil)
	text := m.diffText()
	if n := strings.Count(text, "\n"); n != maxDiffs+1 || !strings.HasSuffix(text, "    and 10 more\n") {
		t.Errorf("%d lines:\n%s", n, text)
	}
}

func TestExpand(t *testing.T) {
	vars := variables{"id": mustParse(t, `"a\u0062"`), "obj": mustParse(t, `{ "x": "$id" }`)}
	tests := []struct{ text, want, err string }{
		{` { "id" : "$id", "o": ["$obj"] } `, `{"id":"a\u0062","o":[{"x":"$id"}]}`, ""},
		{`{"a":"\u0061","n":1e2,"a":"$$id","$id":"$","d":"$$$x"}`, `{"a":"\u0061","n":1e2,"a":"$id","$id":"$","d":"$$x"}`, ""},
		{"[1,\n2]", "[1,2]", ""},
		{`["$no"]`, "", "$no has no value; those that have one: $id, $obj"},
		{`{"$id":["$any"]}`, "", "$any has no value; those that have one: $id, $obj"},
		{`{`, "", "invalid JSON at byte 1: unexpected end of text, want a member name in quotes"},
	}
	for _, tt := range tests {
		got, err := vars.expand(tt.text)
		if tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%s: error %v, want %s", tt.text, err, tt.err)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v, want %s", tt.text, got, err, tt.want)
		}
	}
}

func TestMerge(t *testing.T) {
	tests := []struct{ name, want, got, merged string }{
		{"nothing to keep", `{"a":1}`, `{"b":[ 2.0 ]}`, `{"b":[2.0]}`},
		{"any", `{"id":"$any","a":1}`, `{"id":7,"a":2}`, `{"id":"$any","a":2}`},
		{"rest", `{"a":{"x":1,"$any":"$any"}}`, `{"a":{"y":2,"x":3}}`, `{"a":{"x":3,"$any":"$any"}}`},
		{"elements", `["$any",1]`, `[1,2,3]`, `["$any",2,3]`},
		{"capture", `["$x","$x",1]`, `[5,5,6]`, `["$x","$x",6]`},
		{"capture differs", `["$x","$x",1]`, `[5,6,1]`, `["$x",6,1]`},
		{"a variable without a place", `{"a":{"b":"$x"}}`, `{"a":[1]}`, `{"a":[1]}`},
		{"texts that look like variables", `1`, `{"a":"$x","$any":"$any","b":["$$y","$5"]}`, `{"a":"$$x","$$any":"$$any","b":["$$$y","$5"]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, got := mustParse(t, tt.want), mustParse(t, tt.got)
			m := &match{vars: variables{}}
			merged := string(m.merge(nil, &want, got))
			if merged != tt.merged {
				t.Errorf("got %s, want %s", merged, tt.merged)
			}
			if again := compare(mustParse(t, merged), got, variables{}); len(again.diffs) > 0 {
				t.Errorf("the merged pattern does not match the message:\n%s", again.diffText())
			}
		})
	}
}

// FuzzMerge checks that a merged pattern matches the message with which it was merged.
func FuzzMerge(f *testing.F) {
	f.Add(`{"id":"$x","r":{"a":["$any",1],"$any":"$any"}}`, `{"id":1,"r":{"a":[2,"$$y"],"b":"$any","$any":2}}`)
	f.Add(`["$x","$x","$x"]`, `[1,1.0,"$x"]`)
	f.Add(`"$any"`, `1e400`)
	f.Add(`{"$any":"$any","$$any":1}`, `{"$any":1,"$$any":"\ud83d"}`)
	f.Fuzz(func(t *testing.T, pattern, message string) {
		want, err := parse(pattern)
		got, err2 := parse(message)
		if err != nil || err2 != nil {
			t.Skip()
		}
		same := match{verbatim: true}
		if same.compareValue("", got, got); len(same.diffs) > 0 {
			t.Skip() // no pattern matches a duplicate member
		}
		m := &match{vars: variables{}}
		merged := string(m.merge(nil, &want, got))
		again, err := parse(merged)
		if err != nil {
			t.Fatalf("%v: %s", err, merged)
		}
		if c := compare(again, got, variables{}); len(c.diffs) > 0 {
			t.Errorf("merged to %s, which does not match:\n%s", merged, c.diffText())
		}

		plain := string(new(match).merge(nil, nil, got))
		if c := compare(mustParse(t, plain), got, nil); len(c.diffs) > 0 {
			t.Errorf("escaped to %s, which does not match:\n%s", plain, c.diffText())
		}
	})
}

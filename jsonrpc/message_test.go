package jsonrpc

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parse(t testing.TB, frame string) *Message {
	t.Helper()
	var m Message
	if err := Parse([]byte(frame), &m, 0); err != nil {
		t.Fatalf("Parse(%s): %v", frame, err)
	}
	return &m
}

var paramTests = []struct {
	name   string
	params string
	want   map[string]string // value by name; "" is not found
	twice  bool
}{
	{"none", ``, map[string]string{"a": "", "": ""}, false},
	{"array", `["a",{"a":1}]`, map[string]string{"a": "", "0": ""}, false},
	{"empty", ` { } `, map[string]string{"a": ""}, false},
	{"one", `{"a":1}`, map[string]string{"a": "1", "A": "", "": ""}, false},
	{"white space", "{ \"a\" : { \"b\" : 2 } ,\n\"c\" : \"d\" }", map[string]string{"a": `{ "b" : 2 }`, "c": `"d"`, "b": ""}, false},
	{"empty name", `{"":1}`, map[string]string{"": "1"}, false},
	{"six", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}`, map[string]string{"a": "1", "f": "6", "g": ""}, false},
	{"seven", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7}`, map[string]string{"a": "1", "f": "6", "g": "7", "h": ""}, false},
	{"twenty", `{"` + strings.Join(strings.Split("abcdefghijklmnopqrst", ""), `":0,"`) + `":1}`, map[string]string{"a": "0", "s": "0", "t": "1"}, false},
	{"escaped", `{"\u0061":1,"b":2}`, map[string]string{"a": "1", "b": "2", `\u0061`: ""}, false},
	{"escaped behind others", `{"a":1,"b":2,"\u0063":3}`, map[string]string{"a": "1", "b": "2", "c": "3"}, false},
	{"twice", `{"a":1,"b":2,"a":3}`, map[string]string{"b": "2"}, true},
	{"twice, escaped", `{"a":1,"\u0061":3}`, map[string]string{}, true},
	{"both escaped", `{"\u0061":1,"b":0,"\u0061":3}`, map[string]string{"b": "0"}, true},
	{"twice among many", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"f":8}`, map[string]string{"g": "7"}, true},
	{"twice among those behind the index", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"g":8}`, map[string]string{"a": "1"}, true},
	{"twice inside a member", `{"a":{"b":1,"b":2}}`, map[string]string{"a": `{"b":1,"b":2}`}, false},
	{"names of like length", `{"ab":1,"cd":2,"` + strings.Repeat("x", 34) + `":3}`, map[string]string{"ab": "1", "cd": "2", "ef": "", strings.Repeat("x", 34): "3", strings.Repeat("y", 34): "", strings.Repeat("x", 66): ""}, false},
	{"names that only look alike", `{"a":1,"A":2,"a ":3}`, map[string]string{"a": "1", "A": "2", "a ": "3"}, false},
}

func TestParam(t *testing.T) {
	for _, test := range paramTests {
		t.Run(test.name, func(t *testing.T) {
			frame := `{"jsonrpc":"2.0","id":1,"method":"m"}`
			if test.params != "" {
				frame = `{"jsonrpc":"2.0","id":1,"params":` + test.params + `,"method":"m"}`
			}
			m := parse(t, frame)
			for _, c := range []*Message{m, m.Clone()} {
				for name, want := range test.want {
					got, ok := c.Param(name)
					if string(got) != want || ok != (want != "") {
						t.Errorf("Param(%q) = %s, %v; want %s", name, got, ok, want)
					}
				}
				if got := c.DuplicateParam(); got != test.twice {
					t.Errorf("DuplicateParam = %v, want %v", got, test.twice)
				}
			}
		})
	}
}

func TestParamAllocatesNothing(t *testing.T) {
	m := parse(t, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"b":2,"c":3,"d":4,"e":5}}`)
	if n := testing.AllocsPerRun(100, func() {
		m.Param("e")
		m.Param("f")
		m.DuplicateParam()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestClone(t *testing.T) {
	for _, test := range goodFrames {
		t.Run(test.name, func(t *testing.T) {
			// A frame in the middle of a larger buffer, as the reader hands it out.
			buf := append(bytes.Repeat([]byte("x"), 10), test.frame...)
			buf = append(buf, bytes.Repeat([]byte("y"), 10)...)
			frame := buf[10 : 10+len(test.frame)]
			var m Message
			if err := Parse(frame, &m, 0); err != nil {
				t.Fatal(err)
			}
			c := m.Clone()
			if diff := cmp.Diff(test.want, envelopeOf(c)); diff != "" {
				t.Errorf("clone (-want +got):\n%s", diff)
			}
			again := c.Clone()
			for i := range buf {
				buf[i] = '!'
			}
			for i := range c.text {
				c.text[i] = '?'
			}
			if diff := cmp.Diff(test.want, envelopeOf(again)); diff != "" {
				t.Errorf("clone of the clone depends on either (-want +got):\n%s", diff)
			}
		})
	}
	var empty Message
	if diff := cmp.Diff(envelope{}, envelopeOf(empty.Clone())); diff != "" {
		t.Errorf("clone of an empty message:\n%s", diff)
	}
}

func TestKindString(t *testing.T) {
	want := []string{"invalid message", "request", "notification", "response", "error response"}
	for i, s := range want {
		if got := Kind(i).String(); got != s {
			t.Errorf("Kind(%d) = %q, want %q", i, got, s)
		}
	}
}

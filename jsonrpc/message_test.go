package jsonrpc

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/json/jsonwire"
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
	want   map[string]string // value by name; empty if absent
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
	{"escaped after others", `{"a":1,"b":2,"\u0063":3}`, map[string]string{"a": "1", "b": "2", "c": "3"}, false},
	{"twice", `{"a":1,"b":2,"a":3}`, map[string]string{"b": "2"}, true},
	{"twice, escaped", `{"a":1,"\u0061":3}`, map[string]string{}, true},
	{"duplicate, both escaped", `{"\u0061":1,"b":0,"\u0061":3}`, map[string]string{"b": "0"}, true},
	{"duplicate among many", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"f":8}`, map[string]string{"g": "7"}, true},
	{"duplicate beyond the index", `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"g":8}`, map[string]string{"a": "1"}, true},
	{"duplicate inside a member", `{"a":{"b":1,"b":2}}`, map[string]string{"a": `{"b":1,"b":2}`}, false},
	{"names of equal length", `{"ab":1,"cd":2,"` + strings.Repeat("x", 34) + `":3}`, map[string]string{"ab": "1", "cd": "2", "ef": "", strings.Repeat("x", 34): "3", strings.Repeat("y", 34): "", strings.Repeat("x", 66): ""}, false},
	{"names that look alike", `{"a":1,"A":2,"a ":3}`, map[string]string{"a": "1", "A": "2", "a ": "3"}, false},
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
			// A frame in the middle of a larger buffer, as a reader returns it.
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
				t.Errorf("clone of a clone depends on its source (-want +got):\n%s", diff)
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

// idClasses are lists of ids of the same value.
var idClasses = [][]string{
	{`1`},
	{`"1"`, `"\u0031"`},
	{`0`, `-0`},
	{`-1`},
	{`9007199254740992`},
	{`9007199254740993`},
	{`9223372036854775807`},
	{`9223372036854775808`},
	{`-9223372036854775808`},
	{`18446744073709551616`},
	{`""`},
	{`" "`, `"\u0020"`},
	{`"ab"`, `"a\u0062"`, `"\u0061b"`, `"\u0061\u0062"`},
	{`"AB"`},
	{`"a/b"`, `"a\/b"`, `"a\u002fb"`, `"a\u002Fb"`},
	{`"\\"`, `"\u005c"`},
	{`"\""`, `"\u0022"`},
	{`"\n"`, `"\u000a"`, `"\u000A"`},
	{`"\u0000"`},
	{`"\b\f\t\r"`, `"\u0008\u000c\u0009\u000d"`},
	{"\"\u007f\"", `"\u007f"`},
	{"\"\u00e9\"", `"\u00e9"`},
	{"\"e\u0301\"", `"e\u0301"`}, // not normalized
	{"\"\u2028\"", `"\u2028"`},
	{"\"\U0001f600\"", `"\ud83d\ude00"`, `"\uD83D\uDE00"`},
	{"\"\ufffd\"", `"\ufffd"`, `"\ud83d"`, `"\udc00"`}, // an unpaired surrogate is not a character
	{`"<>&"`, `"\u003c\u003e\u0026"`},
	{`"null"`},
	{`"true"`},
}

func TestIDEqual(t *testing.T) {
	for i, class := range idClasses {
		for _, a := range class {
			if !ID(a).Valid() {
				t.Errorf("%s is not valid", a)
			}
			for k, other := range idClasses {
				for _, b := range other {
					if got := ID(a).Equal(ID(b)); got != (i == k) {
						t.Errorf("%s equal %s: %v", a, b, got)
					}
					if got := ID(a).Key() == ID(b).Key(); got != (i == k) {
						t.Errorf("%s and %s have the same key: %v", a, b, got)
					}
				}
			}
			if ID(a).Equal(nil) || ID(nil).Equal(ID(a)) || ID(a).Equal(nullID) {
				t.Errorf("%s equals none", a)
			}
		}
	}
	if !ID(nil).Equal(ID{}) {
		t.Error("zero ID does not equal zero ID")
	}
}

func TestIDValid(t *testing.T) {
	for _, text := range []string{"", "null", "true", "false", "1.0", "1e2", "-", "{}", "[]", `"`, "x"} {
		if ID(text).Valid() {
			t.Errorf("%q is valid", text)
		}
	}
}

func TestIDText(t *testing.T) {
	tests := []struct {
		id   ID
		text string
		ok   bool
	}{
		{ID(`"a\u0062"`), "ab", true},
		{ID(`""`), "", true},
		{ID(`1`), "", false},
		{ID(`null`), "", false},
		{nil, "", false},
		{StringID("a\"\n\u2028"), "a\"\n\u2028", true},
		{StringID("\xff"), "\ufffd", true},
		{IntID(-5), "", false},
	}
	for _, test := range tests {
		if text, ok := test.id.Text(); text != test.text || ok != test.ok {
			t.Errorf("%s: got %q, %v", test.id, text, ok)
		}
	}
	if got := IntID(-9223372036854775808).String(); got != "-9223372036854775808" {
		t.Errorf("IntID: %s", got)
	}
	if !nullID.IsNull() || IntID(0).IsNull() || ID(nil).IsNull() {
		t.Error("IsNull")
	}
}

func TestIDClone(t *testing.T) {
	text := []byte(`"abc"`)
	c := ID(text).Clone()
	text[1] = 'x'
	if c.String() != `"abc"` {
		t.Errorf("the clone depends on the frame: %s", c)
	}
}

// Spec: S1 S7 S8 S10 S11 S25 S63 C7 C18 C37
func TestAppend(t *testing.T) {
	e := &Error{Code: CodeInvalidParams, Message: "no \"x\"\n", Data: []byte(`{"a":1}`)}
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"request", AppendRequest(nil, IntID(1), "m", []byte(`{"a":1}`)), `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`},
		{"request without params", AppendRequest(nil, ID(`"a\u0062"`), "m", nil), `{"jsonrpc":"2.0","id":"a\u0062","method":"m"}`},
		{"method to be quoted", AppendRequest(nil, IntID(1), "a\"\xff\n", nil), `{"jsonrpc":"2.0","id":1,"method":"a\"` + "\ufffd" + `\n"}`},
		{"after other bytes", AppendRequest([]byte("x"), IntID(1), "", nil), `x{"jsonrpc":"2.0","id":1,"method":""}`},
		{"notification", AppendNotification(nil, "m", []byte(`[1]`)), `{"jsonrpc":"2.0","method":"m","params":[1]}`},
		{"notification without params", AppendNotification(nil, "m", nil), `{"jsonrpc":"2.0","method":"m"}`},
		{"result", AppendResult(nil, IntID(1), []byte(`null`)), `{"jsonrpc":"2.0","id":1,"result":null}`},
		{"error", AppendError(nil, IntID(1), e, false), `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no \"x\"\n","data":{"a":1}}}`},
		{"error without data", AppendError(nil, IntID(1), &Error{Code: 5}, false), `{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":""}}`},
		{"error with id null", AppendError(nil, nil, &Error{Code: CodeParseError, Message: "x"}, true), `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`},
		{"error without id", AppendError(nil, nil, &Error{Code: CodeParseError, Message: "x"}, false), `{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}`},
		{"code 0", AppendError(nil, IntID(1), &Error{Message: "x"}, false), `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x"}}`},
		{"one line already", jsonwire.OneLine([]byte(`{"a": "\n" }`)), `{"a": "\n" }`},
		{"made one line", jsonwire.OneLine([]byte("{\r\n  \"a b\": \" \\n\"\n}")), `{"a b":" \n"}`},
		{"nothing to be made one line", jsonwire.OneLine(nil), ``},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if string(test.got) != test.want {
				t.Errorf("got  %s\nwant %s", test.got, test.want)
			}
		})
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	id, params := ID(`"abc"`), []byte(`{"a":[1,2,3]}`)
	e := &Error{Code: CodeInvalidParams, Message: "message \u00e9", Data: params}
	buf := make([]byte, 0, 1<<10)
	tests := map[string]func(){
		"AppendRequest":      func() { buf = AppendRequest(buf[:0], id, "tools/call", params) },
		"AppendNotification": func() { buf = AppendNotification(buf[:0], "tools/call", params) },
		"AppendResult":       func() { buf = AppendResult(buf[:0], id, params) },
		"AppendError":        func() { buf = AppendError(buf[:0], id, e, true) },
		"OneLine":            func() { jsonwire.OneLine(params) },
	}
	for name, f := range tests {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

package jsonrpc

import "testing"

// idClasses are ids that stand for the same value, class by class.
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
	{"\"e\u0301\"", `"e\u0301"`}, // not normalised
	{"\"\u2028\"", `"\u2028"`},
	{"\"\U0001f600\"", `"\ud83d\ude00"`, `"\uD83D\uDE00"`},
	{"\"\ufffd\"", `"\ufffd"`, `"\ud83d"`, `"\udc00"`}, // an unpaired surrogate is no character
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
				}
			}
			if ID(a).Equal(nil) || ID(nil).Equal(ID(a)) || ID(a).Equal(nullID) {
				t.Errorf("%s equals none", a)
			}
		}
	}
	if !ID(nil).Equal(ID{}) {
		t.Error("none does not equal none")
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
		t.Errorf("clone depends on the frame: %s", c)
	}
}

package era

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Spec: C59 C62 C63
func TestEncodeHeaderValue(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="},
		{" padded ", "=?base64?IHBhZGRlZCA=?="},
		{"line1\nline2", "=?base64?bGluZTEKbGluZTI=?="},
		{"=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
		{"us west 1", "us west 1"},
		{"\tindented", "=?base64?CWluZGVudGVk?="},
		{"in\tside", "=?base64?aW4Jc2lkZQ==?="},
		{"a\r\nSet-Cookie: x", "=?base64?YQ0KU2V0LUNvb2tpZTogeA==?="},
		{"", ""},
		{" ", "=?base64?IA==?="},
		{"=?base64?=", "=?base64?="},           // the marks overlap
		{"=?BASE64?eA==?=", "=?BASE64?eA==?="}, // no mark
		{"\x7f", "=?base64?fw==?="},
	} {
		if got := EncodeHeaderValue(test.text); got != test.want {
			t.Errorf("EncodeHeaderValue(%q) = %q, want %q", test.text, got, test.want)
		}
		if got := string(AppendHeaderValue([]byte("x"), test.text)); got != "x"+test.want {
			t.Errorf("AppendHeaderValue(%q) = %q, want %q", test.text, got, "x"+test.want)
		}
		if got, err := DecodeHeaderValue(test.want); got != test.text || err != nil {
			t.Errorf("DecodeHeaderValue(%q) = %q, %v, want %q", test.want, got, err, test.text)
		}
	}
}

func TestEncodeHeaderArgument(t *testing.T) {
	for _, test := range []struct {
		text, want string
		ok         bool
	}{
		{`"us"`, "us", true},
		{`"\u00fc"`, "=?base64?w7w=?=", true},
		{`true`, "true", true},
		{`false`, "false", true},
		{`null`, "", false},
		{`{}`, "", false},
		{`[]`, "", false},
		{`42`, "42", true},
		{`42.0`, "42", true},
		{`4.2e1`, "42", true},
		{`-0.5`, "-0.5", true},
		{`9007199254740993`, "9007199254740993", true},
		{`1e300`, "1e300", true},
	} {
		if got, ok := EncodeHeaderArgument([]byte(test.text)); got != test.want || ok != test.ok {
			t.Errorf("EncodeHeaderArgument(%s) = %q, %v, want %q, %v", test.text, got, ok, test.want, test.ok)
		}
	}
}

func TestDecodeHeaderValue(t *testing.T) {
	for _, test := range []struct{ value, want string }{
		{"  foo\t", "foo"},
		{"=?base64??=", ""},
		{"=?base64?=", "=?base64?="},
		{"=?Base64?SGVsbG8=?=", "=?Base64?SGVsbG8=?="},
		{"=?base64?SGVsbG8=", "=?base64?SGVsbG8="},
		{"SGVsbG8=?=", "SGVsbG8=?="},
		{"in\tside", "in\tside"},
	} {
		if got, err := DecodeHeaderValue(test.value); got != test.want || err != nil {
			t.Errorf("DecodeHeaderValue(%q) = %q, %v, want %q", test.value, got, err, test.want)
		}
	}
	for _, value := range []string{
		"=?base64?SGVsbG8?=",      // no padding
		"=?base64?SGVs bG8=?=",    // a space
		"=?base64?SGV\tsbG8=?=",   // a tab
		"=?base64?SGVsbG9=?=",     // bits that mean nothing
		"=?base64?_-8=?=",         // the alphabet of URLs
		"=?base64?SGVsbG8=====?=", // too much padding
		"=?base64?//8=?=",         // no UTF-8
		"caf\xe9", "世界", "a\x00", "a\nb", "a\x7f",
	} {
		got, err := DecodeHeaderValue(value)
		if err == nil {
			t.Errorf("DecodeHeaderValue(%q) = %q, want an error", value, got)
		}
	}
}

func FuzzHeaderValue(f *testing.F) {
	for _, s := range []string{"", "plain", " x", "=?base64?SGVsbG8=?=", "=?base64?=", "世界", "a\r\nb", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		value := EncodeHeaderValue(s)
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) || strings.TrimSpace(value) != value {
			t.Fatalf("%q became %q, which does not survive in a header", s, value)
		}
		switch got, err := DecodeHeaderValue(value); {
		case !utf8.ValidString(s):
			if err == nil {
				t.Fatalf("%q is no UTF-8 and became %q", s, got)
			}
		case got != s || err != nil:
			t.Fatalf("%q became %q and then %q, %v", s, value, got, err)
		}
		if text, err := DecodeHeaderValue(s); err == nil && !utf8.ValidString(text) {
			t.Fatalf("%q was decoded to %q", s, text)
		}
	})
}

// TestPlainHeaderValue shows that a byte is valid or invalid regardless of its position.
func TestPlainHeaderValue(t *testing.T) {
	for n := 1; n <= 17; n++ {
		for at := range n {
			for c := range 256 {
				b := []byte(strings.Repeat("x", n))
				b[at] = byte(c)
				want := c >= ' ' && c <= '~' && (c != ' ' || at > 0 && at < n-1)
				if got := PlainHeaderValue(string(b)); got != want {
					t.Fatalf("PlainHeaderValue(%q) = %v", b, got)
				}
			}
		}
	}
}

package streamable

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
		if got := encodeHeaderValue(test.text); got != test.want {
			t.Errorf("encodeHeaderValue(%q) = %q, want %q", test.text, got, test.want)
		}
		if got := string(appendHeaderValue([]byte("x"), test.text)); got != "x"+test.want {
			t.Errorf("appendHeaderValue(%q) = %q, want %q", test.text, got, "x"+test.want)
		}
		if got, err := decodeHeaderValue(test.want); got != test.text || err != nil {
			t.Errorf("decodeHeaderValue(%q) = %q, %v, want %q", test.want, got, err, test.text)
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
		if got, err := decodeHeaderValue(test.value); got != test.want || err != nil {
			t.Errorf("decodeHeaderValue(%q) = %q, %v, want %q", test.value, got, err, test.want)
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
		got, err := decodeHeaderValue(value)
		if err == nil {
			t.Errorf("decodeHeaderValue(%q) = %q, want an error", value, got)
		}
	}
}

func FuzzHeaderValue(f *testing.F) {
	for _, s := range []string{"", "plain", " x", "=?base64?SGVsbG8=?=", "=?base64?=", "世界", "a\r\nb", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		value := encodeHeaderValue(s)
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) || strings.TrimSpace(value) != value {
			t.Fatalf("%q became %q, which does not survive in a header", s, value)
		}
		switch got, err := decodeHeaderValue(value); {
		case !utf8.ValidString(s):
			if err == nil {
				t.Fatalf("%q is no UTF-8 and became %q", s, got)
			}
		case got != s || err != nil:
			t.Fatalf("%q became %q and then %q, %v", s, value, got, err)
		}
		if text, err := decodeHeaderValue(s); err == nil && !utf8.ValidString(text) {
			t.Fatalf("%q was decoded to %q", s, text)
		}
	})
}

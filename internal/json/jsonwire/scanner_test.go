package jsonwire

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// trace drives a Scanner over text and records what it returns.
func trace(text string, maxDepth int) []string {
	var s Scanner
	s.Reset([]byte(text), maxDepth)
	var log []string
	var walk func()
	note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	failed := func(err error) bool {
		if err != nil {
			note("%v", err)
		}
		return err != nil
	}
	walk = func() {
		switch c := s.Peek(); c {
		case '{':
			more, err := s.EnterObject()
			note("{ %v", more)
			for ; more; more, err = s.NextMember() {
				raw, escaped, err := s.Key()
				if failed(err) {
					return
				}
				note("%s %v @%d", raw, escaped, s.Pos())
				walk()
			}
			if !failed(err) {
				note("} @%d", s.Pos())
			}
		case '[':
			more, err := s.EnterArray()
			note("[ %v", more)
			for ; more; more, err = s.NextElement() {
				walk()
			}
			if !failed(err) {
				note("] @%d", s.Pos())
			}
		case '"':
			if raw, escaped, err := s.String(); !failed(err) {
				note("%q %v @%d", raw, escaped, s.Pos())
			}
		default:
			start := s.Pos()
			if !failed(s.Skip()) {
				note("%c %s", c, text[start:s.Pos()])
			}
		}
	}
	walk()
	failed(s.End())
	return log
}

func TestScanner(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"scalar", " 12 ", []string{"1 12"}},
		{"string", `"a\n"`, []string{`"a\\n" true @5`}},
		{"empty containers", ` { } `, []string{"{ false", "} @4"}},
		{"object", `{"a" : 1 , "\u0062":[ ]}`, []string{
			"{ true", "a false @6", "1 1", `\u0062 true @20`, "[ false", "] @23", "} @24",
		}},
		{"array", "[true,\n\"x\" ,{}]", []string{
			"[ true", "t true", `"x" false @10`, "{ false", "} @14", "] @15",
		}},
		{"nothing", "  ", []string{
			"invalid JSON at byte 2: unexpected end of text, want a value",
		}},
		{"behind", "1 x", []string{"1 1", `invalid JSON at byte 2: unexpected 'x', want the end of the text`}},
		{"no colon", `{"a" 1}`, []string{
			"{ true", "invalid JSON at byte 5: unexpected '1', want ':' after a member name",
			`invalid JSON at byte 1: unexpected '"', want the end of the text`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, trace(tt.text, 0)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "invalid JSON at byte 0: unexpected end of text, want a value"},
		{"{", "invalid JSON at byte 1: unexpected end of text, want a member name in quotes"},
		{"[1", "invalid JSON at byte 2: unexpected end of text, want ',' or ']' after an element"},
		{`{"a":1]`, "invalid JSON at byte 6: unexpected ']', want ',' or '}' after a member"},
		{`"a`, "invalid JSON at byte 2: unexpected end of text, want the end of the string"},
		{"\"\n", "invalid JSON at byte 1: unescaped control character 0x0a in a string"},
		{`"\q"`, "invalid JSON at byte 1: invalid escape sequence in a string"},
		{"\"\xff\"", "invalid JSON at byte 1: invalid UTF-8 in a string, at byte 0xff"},
		{"-x", "invalid JSON at byte 1: unexpected 'x', want a digit"},
		{"nul", "invalid JSON at byte 3: unexpected end of text, want true, false or null"},
		{"\xef\xbb\xbf1", "invalid JSON at byte 0: byte order mark, want a value"},
		{"[\x00", "invalid JSON at byte 1: NUL byte, want a value"},
		{"1\x7f", "invalid JSON at byte 1: unexpected byte 0x7f, want the end of the text"},
		{"[[[1]]]", "invalid JSON at byte 2: nested too deeply"},
	}
	for _, tt := range tests {
		err := Valid([]byte(tt.text), 2)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

// TestOutOfOrder shows that a call that does not match the text returns an error at the position of
// the mismatch.
func TestOutOfOrder(t *testing.T) {
	calls := map[string]func(*Scanner) error{
		"String":      func(s *Scanner) error { _, _, err := s.String(); return err },
		"EnterObject": func(s *Scanner) error { _, err := s.EnterObject(); return err },
		"EnterArray":  func(s *Scanner) error { _, err := s.EnterArray(); return err },
		"Key":         func(s *Scanner) error { _, _, err := s.Key(); return err },
		"NextMember":  func(s *Scanner) error { _, err := s.NextMember(); return err },
		"NextElement": func(s *Scanner) error { _, err := s.NextElement(); return err },
		"Skip":        (*Scanner).Skip,
		"End":         (*Scanner).End,
	}
	for name, call := range calls {
		for _, text := range []string{" ?", " :", " \x00", " \xff"} {
			var s Scanner
			s.Reset([]byte(text), 0)
			if err := call(&s); offset(err) != 1 {
				t.Errorf("%s of %q: %v, want an error at 1", name, text, err)
			}
		}
		var zero Scanner
		if err := call(&zero); (err == nil) != (name == "End") {
			t.Errorf("%s of the zero Scanner: %v", name, err)
		}
		if c := zero.Peek(); c != 0 {
			t.Errorf("Peek of the zero Scanner: %d", c)
		}
	}
}

// TestDepthIsShared shows that containers that the caller has entered count toward the depth limit
// of Skip.
func TestDepthIsShared(t *testing.T) {
	var s Scanner
	s.Reset([]byte(`[[[]],[[0]],[[[]]]]`), 3)
	for range 2 {
		if more, err := s.EnterArray(); !more || err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Skip(); err != nil {
		t.Fatalf("depth 3 of 3: %v", err)
	}
	if more, err := s.NextElement(); more || err != nil {
		t.Fatal(more, err)
	}
	if more, err := s.NextElement(); !more || err != nil {
		t.Fatal(more, err)
	}
	if err := s.Skip(); err != nil {
		t.Fatalf("depth 3 of 3 again: %v", err)
	}
	if more, err := s.NextElement(); !more || err != nil {
		t.Fatal(more, err)
	}
	if err := s.Skip(); !isDepth(err) || offset(err) != 14 {
		t.Fatalf("depth 4 of 3: %v", err)
	}
	s.Reset([]byte(`[[]]`), 1)
	if _, err := s.EnterArray(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnterArray(); !isDepth(err) || offset(err) != 1 {
		t.Fatalf("depth 2 of 1: %v", err)
	}
	s.Reset([]byte(`{"a":{}}`), 1)
	if err := s.Skip(); !isDepth(err) {
		t.Fatalf("depth 2 of 1: %v", err)
	}
}

// TestAliasing shows that the returned slices alias the input and have no capacity beyond their
// value.
func TestAliasing(t *testing.T) {
	data := []byte(`{"name":"value"}`)
	var s Scanner
	s.Reset(data, 0)
	if _, err := s.EnterObject(); err != nil {
		t.Fatal(err)
	}
	key, _, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	value, _, err := s.String()
	if err != nil {
		t.Fatal(err)
	}
	if &key[0] != &data[2] || &value[0] != &data[9] {
		t.Error("copied")
	}
	if got := strings.ToUpper(string(key) + string(value)); got != "NAMEVALUE" {
		t.Error(got)
	}
}

// memberTexts returns objects and other values, with various bytes between the parts of members.
var memberTexts = []string{
	`{}`, ` { } `, `{"a":1}`, ` { "a" : 1 , "b":"x"} `, `{"a":{"b":[1,2]},"\u0061":null,"":true}`, `{"é":"日本"}`, `{"a":"x\ny","b":-1.5e3}`,
	`{"a"}`, `{"a" 1}`, `{"a":}`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a":1]`, `{"a":1 "b":2}`, `{a:1}`, `{"a`, `{"a"`, `{"a":"x`, `{"a":[1}`, `{"a":tru}`,
	`{"a":01}`, "{\"a\xff\":1}", "{\"a\":\"\x01\"}", `{"a":[[[]]]}`, `{"a":[[[[]]]]}`, `{,"a":1}`, `{"a"::1}`, `{"a":1,,"b":2}`,
}

// TestMember shows that Member finds the same members and errors as Key, Skip and NextMember.
func TestMember(t *testing.T) {
	for _, text := range memberTexts {
		var one, all Scanner
		one.Reset([]byte(text), 4)
		all.Reset([]byte(text), 4)
		more, err := one.EnterObject()
		if _, e := all.EnterObject(); e != nil {
			continue
		}
		for more && err == nil {
			var got, want Member
			more, err = one.Member(&got)
			wantMore, wantErr := stepwise(&all, &want)
			if more != wantMore || faultOf(err) != faultOf(wantErr) || err == nil && got != want {
				t.Fatalf("%s: got %+v, %v, %v; want %+v, %v, %v", text, got, more, err, want, wantMore, wantErr)
			}
			if err == nil && one.Pos() != all.Pos() {
				t.Fatalf("%s: at %d, want %d", text, one.Pos(), all.Pos())
			}
		}
		if err == nil && faultOf(one.End()) != faultOf(all.End()) {
			t.Errorf("%s: ends otherwise", text)
		}
	}
}

// stepwise does the work of Member with the separate methods.
func stepwise(s *Scanner, m *Member) (more bool, err error) {
	raw, escaped, err := s.Key()
	if err != nil {
		return false, err
	}
	m.NameStart = cap(s.data) - cap(raw)
	m.NameEnd, m.Escaped = m.NameStart+len(raw), escaped
	s.Peek()
	m.Start = s.Pos()
	if err := s.Skip(); err != nil {
		return false, err
	}
	m.End = s.Pos()
	return s.NextMember()
}

// faultOf returns an error's text with its position.
func faultOf(err error) string {
	var e *SyntaxError
	if !errors.As(err, &e) {
		return ""
	}
	return e.Error()
}

func TestTry(t *testing.T) {
	for _, tt := range []struct {
		text, quoted string
		want         int // position after it; zero if absent
	}{
		{`{"a":1}`, `"a":`, 5},
		{`{ "a":1}`, `"a":`, 6},
		{`{"a" :1}`, `"a":`, 0},
		{`{"\u0061":1}`, `"a":`, 0},
		{`{"ab":1}`, `"a":`, 0},
		{`{"a"`, `"a":`, 0},
		{`{"a":1,"b":2}`, `"a":1,`, 7},
	} {
		var s Scanner
		s.Reset([]byte(tt.text), 0)
		if _, err := s.EnterObject(); err != nil {
			t.Fatal(err)
		}
		before := s.Pos()
		got := s.TryLiteral(tt.quoted)
		if got != (tt.want > 0) || got && s.Pos() != tt.want || !got && s.Pos() != before {
			t.Errorf("%s: %v, at %d; want %d", tt.text, got, s.Pos(), tt.want)
		}
	}
}

var intTests = []struct {
	text string
	want int64
	ok   bool
}{
	{"0", 0, true},
	{"-0", 0, true},
	{"7", 7, true},
	{"-12", -12, true},
	{"9007199254740993", 1<<53 + 1, true},
	{"9223372036854775807", math.MaxInt64, true},
	{"-9223372036854775808", math.MinInt64, true},
	{"9223372036854775808", 0, false},
	{"-9223372036854775809", 0, false},
	{"9999999999999999999", 0, false},
	{"99999999999999999999", 0, false},
	{"18446744073709551616", 0, false},
	{"", 0, false},
	{"-", 0, false},
	{"+1", 0, false},
	{"01", 0, false},
	{"-01", 0, false},
	{"--1", 0, false},
	{"1.0", 0, false},
	{"1e2", 0, false},
	{" 1", 0, false},
	{"1 ", 0, false},
	{"0x1", 0, false},
	{"1_0", 0, false},
	{"/", 0, false},
	{":", 0, false},
	{"null", 0, false},
	{`"1"`, 0, false},
}

func TestParseInt(t *testing.T) {
	for _, tt := range intTests {
		if got, ok := ParseInt([]byte(tt.text)); got != tt.want || ok != tt.ok {
			t.Errorf("ParseInt(%q) = %d, %v, want %d, %v", tt.text, got, ok, tt.want, tt.ok)
		}
	}
}

package jsonwire

import (
	"errors"
	"testing"
)

// memberTexts are objects, and what is none, with one thing or another between the parts of their members.
var memberTexts = []string{
	`{}`, ` { } `, `{"a":1}`, ` { "a" : 1 , "b":"x"} `, `{"a":{"b":[1,2]},"\u0061":null,"":true}`, `{"é":"日本"}`, `{"a":"x\ny","b":-1.5e3}`,
	`{"a"}`, `{"a" 1}`, `{"a":}`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a":1]`, `{"a":1 "b":2}`, `{a:1}`, `{"a`, `{"a"`, `{"a":"x`, `{"a":[1}`, `{"a":tru}`,
	`{"a":01}`, "{\"a\xff\":1}", "{\"a\":\"\x01\"}", `{"a":[[[]]]}`, `{"a":[[[[]]]]}`, `{,"a":1}`, `{"a"::1}`, `{"a":1,,"b":2}`,
}

// Member finds what Key, Skip and NextMember find, and the same mistakes at the same places.
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

// stepwise is Member by the methods that it stands for.
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

// faultOf returns what an error says and where, as one text.
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
		want         int // position behind it; 0 if it is not there
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

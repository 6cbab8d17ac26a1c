package jsonwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"
)

// jsonDepth is the depth limit of encoding/json.
const jsonDepth = 10000

// FuzzScan compares every reader of this package with encoding/json.
func FuzzScan(f *testing.F) {
	for _, v := range results {
		f.Add([]byte(v.text))
	}
	f.Add([]byte(callText))
	f.Add([]byte(indented(callText)))
	f.Add(nested(600, "[", "]"))
	f.Add(nested(70, `{"a":[`, `]}`))
	for _, r := range benchStrings[:len(benchStrings)-1] {
		f.Add([]byte(`{"` + r.raw[:min(len(r.raw), 300)] + `":1}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want := json.Valid(data) && utf8.Valid(data)
		err := Valid(data, jsonDepth)
		if got := err == nil; got != want {
			t.Fatalf("Valid = %v, want valid %v\n%q", err, want, data)
		}
		checkDrive(t, data, jsonDepth, err)
		checkDefaultDepth(t, data, err)
		if err != nil {
			walkGarbage(data)
			return
		}
		checkTrusted(t, data)
	})
}

// checkDrive checks that a caller that steps through data gets the same error as from Skip.
func checkDrive(t *testing.T, data []byte, maxDepth int, want error) {
	t.Helper()
	var s Scanner
	s.Reset(data, maxDepth)
	err := drive(&s)
	if err == nil {
		err = s.End()
	}
	if (err == nil) != (want == nil) || err != nil && *err.(*SyntaxError) != *want.(*SyntaxError) {
		t.Fatalf("stepped through: %v, by Skip: %v\n%q", err, want, data)
	}
}

// checkDefaultDepth checks that the default depth limit gives the same error, unless the text
// exceeds it.
func checkDefaultDepth(t *testing.T, data []byte, wide error) {
	t.Helper()
	err := Valid(data, 0)
	var se, ws *SyntaxError
	errors.As(wide, &ws)
	switch {
	case err == nil:
		if wide != nil {
			t.Fatalf("valid at depth 512, at %d: %v", jsonDepth, wide)
		}
	case !errors.As(err, &se):
		t.Fatalf("%T is no *SyntaxError", err)
	case se.Depth:
		if openAt(data[:se.Offset]) != DefaultMaxDepth {
			t.Fatalf("%v: %d containers are open there", err, openAt(data[:se.Offset]))
		}
	case ws == nil || *ws != *se:
		t.Fatalf("depth 512: %v, depth %d: %v", err, jsonDepth, wide)
	}
}

// openAt counts the open containers at the end of a valid prefix of a text.
func openAt(data []byte) int {
	n := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '[', '{':
			n++
		case ']', '}':
			n--
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		}
	}
	return n
}

// checkTrusted compares the functions for valid JSON with the Scanner on a valid text.
func checkTrusted(t *testing.T, data []byte) {
	t.Helper()
	var s Scanner
	s.Reset(data, jsonDepth)
	if err := s.Skip(); err != nil {
		t.Fatal(err)
	}
	if got := SkipValue(data, 0); got != s.Pos() {
		t.Fatalf("SkipValue = %d, the scanner ends at %d\n%q", got, s.Pos(), data)
	}
	var want bytes.Buffer
	if err := json.Compact(&want, data); err != nil {
		t.Fatal(err)
	}
	if got := AppendCompact([]byte("x"), data); string(got) != "x"+want.String() {
		t.Fatalf("AppendCompact\n got %q\nwant %q", got[1:], want.Bytes())
	}
	if got, want := HasSpace(data), want.Len() != len(data); got != want {
		t.Fatalf("HasSpace = %v, want %v\n%q", got, want, data)
	}
	inPlace := bytes.Clone(data)
	if got := AppendCompact(inPlace[:0], inPlace); string(got) != want.String() {
		t.Fatalf("AppendCompact in place\n got %q\nwant %q", got, want.Bytes())
	}
	s.Reset(data, jsonDepth)
	compareWalk(t, &s, data)
}

// compareWalk reads a value with the scanner and checks that Members and Elements return the same.
func compareWalk(t *testing.T, s *Scanner, data []byte) {
	t.Helper()
	c := s.Peek()
	start := s.Pos()
	end := SkipValue(data, start)
	switch c {
	case '{':
		m := ObjectMembers(data[start:end])
		more, err := s.EnterObject()
		for ; more; more, err = s.NextMember() {
			raw, escaped, err := s.Key()
			if err != nil || !m.Next() {
				t.Fatalf("member %q: %v, Members has ended", raw, err)
			}
			if string(m.RawKey()) != string(raw) || m.escaped != escaped {
				t.Fatalf("key %q escaped %v, want %q %v", m.RawKey(), m.escaped, raw, escaped)
			}
			if name := UnquoteString(raw); !m.KeyIs(name) || m.KeyString() != name || m.KeyIs(name+"x") {
				t.Fatalf("KeyIs, KeyString of %q", raw)
			}
			s.Peek()
			from := s.Pos()
			compareWalk(t, s, data)
			if got, want := m.Value(), data[from:s.Pos()]; string(got) != string(want) {
				t.Fatalf("member value %q, want %q", got, want)
			}
		}
		if err != nil || m.Next() || m.Next() {
			t.Fatalf("end of object: %v, Members continues", err)
		}
	case '[':
		e := ArrayElements(data[start:end])
		more, err := s.EnterArray()
		for ; more; more, err = s.NextElement() {
			if !e.Next() {
				t.Fatal("Elements has ended")
			}
			s.Peek()
			from := s.Pos()
			compareWalk(t, s, data)
			if got, want := e.Value(), data[from:s.Pos()]; string(got) != string(want) {
				t.Fatalf("element %q, want %q", got, want)
			}
		}
		if err != nil || e.Next() || e.Next() {
			t.Fatalf("end of array: %v, Elements continues", err)
		}
	default:
		if err := s.Skip(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Pos() != end {
		t.Fatalf("SkipValue ends at %d, the scanner at %d", end, s.Pos())
	}
}

// drive reads one value step by step, with Skip for scalars only.
func drive(s *Scanner) error {
	var more bool
	var err error
	switch s.Peek() {
	case '{':
		for more, err = s.EnterObject(); more && err == nil; more, err = s.NextMember() {
			if _, _, err = s.Key(); err != nil {
				return err
			}
			if err = drive(s); err != nil {
				return err
			}
		}
		return err
	case '[':
		for more, err = s.EnterArray(); more && err == nil; more, err = s.NextElement() {
			if err = drive(s); err != nil {
				return err
			}
		}
		return err
	case '"':
		_, _, err = s.String()
		return err
	}
	return s.Skip()
}

// walkGarbage passes invalid text to the functions for valid JSON. They may return anything, but
// must return.
func walkGarbage(data []byte) {
	for i := 0; i <= len(data); i = max(i+1, i+len(data)/16) {
		if end := SkipValue(data, i); end < i || end > len(data) {
			panic("SkipValue out of range")
		}
	}
	m := ObjectMembers(data)
	for m.Next() {
		_ = m.KeyIs("name")
		_ = m.KeyString()
		e := ArrayElements(m.Value())
		for e.Next() {
			_ = e.Value()
		}
	}
	m.RawKey()
	m.Value()
	e := ArrayElements(data)
	for e.Next() {
		m := ObjectMembers(e.Value())
		for m.Next() {
			_ = m.Value()
		}
	}
	e.Value()
	AppendUnquote(nil, data)
	UnquoteString(data)
	RawEqual(data, "garbage")
	AppendCompact(nil, data)
	HasSpace(data)
	ParseInt(data)
}

// FuzzQuote quotes any string and reads it back.
func FuzzQuote(f *testing.F) {
	for _, s := range oddStrings {
		f.Add(s)
	}
	for _, r := range benchStrings {
		f.Add(UnquoteString([]byte(r.raw[:min(len(r.raw), 252)])))
	}
	f.Fuzz(checkQuote)
}

func checkQuote(t *testing.T, s string) {
	t.Helper()
	got := AppendQuote([]byte("pre"), s)
	if string(got[:3]) != "pre" {
		t.Fatalf("dst changed: %q", got)
	}
	got = got[3:]
	if other := AppendQuote(nil, []byte(s)); !bytes.Equal(got, other) {
		t.Fatalf("of a string %q\nof bytes    %q", got, other)
	}
	if err := Valid(got, 0); err != nil {
		t.Fatalf("%v\n%q", err, got)
	}
	want := string([]rune(s)) // U+FFFD for each invalid byte
	var back string
	if err := json.Unmarshal(got, &back); err != nil || back != want {
		t.Fatalf("encoding/json reads it as %q, %v\nwant %q", back, err, want)
	}
	if ref := referenceQuote(want); string(got) != ref {
		t.Fatalf("AppendQuote(%q)\n got %s\nwant %s", s, got, ref)
	}
	if back := UnquoteString(got[1 : len(got)-1]); back != want {
		t.Fatalf("UnquoteString = %q\nwant %q", back, want)
	}
}

// FuzzUnquote compares UnquoteString with encoding/json. For string content that encoding/json
// rejects, it must return.
func FuzzUnquote(f *testing.F) {
	for _, s := range oddStrings {
		f.Add([]byte(referenceQuote(s)))
	}
	for _, r := range benchStrings {
		f.Add([]byte(r.raw[:min(len(r.raw), 300)]))
	}
	f.Add([]byte(`\ud83d\ude00\ud83d\ud83d\ude00\ude00\ud83dx`))
	f.Fuzz(checkUnquote)
}

func checkUnquote(t *testing.T, raw []byte) {
	t.Helper()
	quoted := append(append([]byte{'"'}, raw...), '"')
	if Valid(quoted, 0) != nil {
		walkGarbage(raw)
		return
	}
	var want string
	if err := json.Unmarshal(quoted, &want); err != nil {
		t.Fatal(err)
	}
	if got := UnquoteString(raw); got != want {
		t.Fatalf("UnquoteString(%q)\n got %q\nwant %q", raw, got, want)
	}
	if got := AppendUnquote([]byte("pre"), raw); string(got) != "pre"+want {
		t.Fatalf("AppendUnquote(%q)\n got %q\nwant %q", raw, got[3:], want)
	}
	if !RawEqual(raw, want) || RawEqual(raw, want+"x") || want != "" && RawEqual(raw, want[1:]) {
		t.Fatalf("RawEqual(%q, %q) and AppendUnquote disagree", raw, want)
	}
}

// FuzzParseInt compares with encoding/json.
func FuzzParseInt(f *testing.F) {
	for _, c := range intTests {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want int64
		ok := json.Unmarshal(text, &want) == nil && !bytes.ContainsAny(text, " \t\r\nnul")
		got, gotOK := ParseInt(text)
		if gotOK != ok || ok && got != want {
			t.Fatalf("ParseInt(%q) = %d, %v, want %d, %v", text, got, gotOK, want, ok)
		}
	})
}

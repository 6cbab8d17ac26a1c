// Package jsonedit replaces values within JSON text and keeps all other bytes. Texts must be valid
// JSON.
//
// # Concurrency
//
// The functions are safe for concurrent use.
package jsonedit

import (
	"strconv"

	"mcpwire/internal/json/jsonwire"
)

// A Range is the position of a value in a text. The zero value means that nothing was found.
type Range struct{ Start, End int }

// Found reports if r is the position of a value.
func (r Range) Found() bool { return r.End > 0 }

// Of returns the value in the text that r was located in. It aliases text, and is empty if nothing
// was found.
func (r Range) Of(text []byte) []byte { return text[r.Start:r.End] }

// Locate returns the position of the value at a path of member names and of indexes of arrays. Of
// duplicate names the first counts, as for jsonrpc.Message.
func Locate(text []byte, path ...string) Range {
	whole := Range{0, len(text)}
	for _, name := range path {
		var ok bool
		if whole, ok = memberOf(text, whole, name); !ok {
			return Range{}
		}
	}
	return whole
}

// memberOf returns the position of the named member's value in the object at a position, or of an
// element if there is an array.
func memberOf(text []byte, object Range, name string) (Range, bool) {
	part := object.Of(text)
	var s jsonwire.Scanner
	s.Reset(part, 0)
	switch s.Peek() {
	case '[':
		more, err := s.EnterArray()
		for i := 0; more && err == nil; i++ {
			s.Peek()
			start := s.Pos()
			if err = s.Skip(); err == nil && strconv.Itoa(i) == name {
				return Range{object.Start + start, object.Start + s.Pos()}, true
			}
			if err == nil {
				more, err = s.NextElement()
			}
		}
		return Range{}, false
	case '{':
	default:
		return Range{}, false
	}
	more, err := s.EnterObject()
	var m jsonwire.Member
	for more && err == nil {
		more, err = s.Member(&m)
		if err == nil && jsonwire.RawEqual(part[m.NameStart:m.NameEnd], name) {
			return Range{object.Start + m.Start, object.Start + m.End}, true
		}
	}
	return Range{}, false
}

// Splice returns a copy of text with the bytes at a position replaced by value.
func Splice(text []byte, at Range, value []byte) []byte {
	out := make([]byte, 0, len(text)+len(value)-(at.End-at.Start))
	out = append(out, text[:at.Start]...)
	out = append(out, value...)
	return append(out, text[at.End:]...)
}

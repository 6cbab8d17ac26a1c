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
		start, end := within(whole.Of(text), name)
		if end == 0 {
			return Range{}
		}
		whole = Range{whole.Start + start, whole.Start + end}
	}
	return whole
}

// within returns where the value of a member of an object, or an element of an array, begins and
// ends. end is 0 if there is none.
func within(text []byte, name string) (start, end int) {
	for m := jsonwire.ObjectMembers(text); m.Next(); {
		if m.KeyIs(name) {
			return m.Span()
		}
	}
	i := 0
	for e := jsonwire.ArrayElements(text); e.Next(); i++ {
		if strconv.Itoa(i) == name {
			return e.Span()
		}
	}
	return 0, 0
}

// Splice returns a copy of text with the bytes at a position replaced by value.
func Splice(text []byte, at Range, value []byte) []byte {
	out := make([]byte, 0, len(text)+len(value)-(at.End-at.Start))
	out = append(out, text[:at.Start]...)
	out = append(out, value...)
	return append(out, text[at.End:]...)
}

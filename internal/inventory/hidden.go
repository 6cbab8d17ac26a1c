package inventory

import (
	"bytes"

	"mcpwire/internal/jsonwire"
)

// redacted is what the places begin with in which a capture has something hidden, see
// doc/capture-format.md.
const redacted = "~redacted:"

// matchesRedacted reports whether one of two texts can be the other, with parts of it hidden.
func (c *comparison) matchesRedacted(a, b string) bool {
	return c.opts.MatchesRedacted != nil && (c.opts.MatchesRedacted(a, b) || c.opts.MatchesRedacted(b, a))
}

// fillBoth returns two JSON texts with what was hidden in the one replaced by what the other has in
// the same place, where it can be that: nobody can tell whether it was the same.
func (c *comparison) fillBoth(a, b []byte) (x, y []byte) {
	return c.fill(a, b), c.fill(b, a)
}

// fill is reveal for the first text.
func (c *comparison) fill(a, b []byte) []byte {
	a, b = bytes.TrimSpace(a), bytes.TrimSpace(b)
	if c.opts.MatchesRedacted == nil || !bytes.Contains(a, []byte(redacted)) || jsonwire.Valid(a, maxNested) != nil || jsonwire.Valid(b, maxNested) != nil {
		return a
	}
	return c.appendFilled(make([]byte, 0, len(a)), a, b)
}

// maxNested is how deep a text may be in which hidden places are looked for.
const maxNested = 512

// appendFilled appends a, which is valid as b is.
func (c *comparison) appendFilled(dst, a, b []byte) []byte {
	switch {
	case a[0] == '{' && b[0] == '{':
		theirs := map[string][]byte{}
		for p := jsonwire.ObjectMembers(b); p.Next(); {
			theirs[p.KeyString()] = p.Value()
		}
		dst = append(dst, '{')
		members := jsonwire.ObjectMembers(a)
		for i := 0; members.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, '"'), members.RawKey()...), '"', ':')
			if other, ok := theirs[members.KeyString()]; ok {
				dst = c.appendFilled(dst, members.Value(), other)
			} else {
				dst = append(dst, members.Value()...)
			}
		}
		return append(dst, '}')
	case a[0] == '[' && b[0] == '[':
		dst = append(dst, '[')
		elements, others := jsonwire.ArrayElements(a), jsonwire.ArrayElements(b)
		for i := 0; elements.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			if others.Next() {
				dst = c.appendFilled(dst, elements.Value(), others.Value())
			} else {
				dst = append(dst, elements.Value()...)
			}
		}
		return append(dst, ']')
	case a[0] == '"' && bytes.Contains(a, []byte(redacted)):
		// What a placeholder stands for alone may have been of any type: it fits texts that nobody
		// hides.
		text := jsonwire.Text(a)
		if b[0] == '"' && c.opts.MatchesRedacted(text, jsonwire.Text(b)) || b[0] != '"' && c.opts.MatchesRedacted(text, "\x00") {
			return append(dst, b...)
		}
	}
	return append(dst, a...)
}

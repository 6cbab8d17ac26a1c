package schema

import (
	"sort"

	"mcpwire/internal/jsonwire"
)

// appendCanonical appends a text that is the same for two JSON values exactly
// if JSON Schema calls them equal: numbers by value, strings by what they
// decode to, objects without regard to the order of members. Lone surrogates
// all count as U+FFFD.
func appendCanonical(dst, text []byte) []byte {
	c := cursor{b: text}
	return c.appendCanonical(dst, canonicalDepth)
}

// canonicalDepth is how deep values are compared as values. Deeper parts are
// compared as text; no scanner with its default limit lets them through.
const canonicalDepth = 1000

func (c *cursor) appendCanonical(dst []byte, room int) []byte {
	ch := c.space()
	if room == 0 {
		return append(dst, c.value()...)
	}
	switch ch {
	case '"':
		raw, escaped := c.str()
		return appendCanonicalString(dst, raw, escaped)
	case '{':
		return c.canonicalObject(dst, room-1)
	case '[':
		dst = append(dst, '[')
		if c.open() {
			for {
				dst = append(c.appendCanonical(dst, room-1), ',')
				if !c.more() {
					break
				}
			}
		}
		return append(dst, ']')
	case 't', 'f', 'n', 0:
		return append(dst, c.value()...)
	default:
		return parseDecimal(c.number()).appendCanonical(dst)
	}
}

func appendCanonicalString(dst, raw []byte, escaped bool) []byte {
	if !escaped {
		dst = append(append(dst, '"'), raw...)
		return append(dst, '"')
	}
	return jsonwire.AppendQuote(dst, jsonwire.AppendUnquote(nil, raw))
}

func (c *cursor) canonicalObject(dst []byte, room int) []byte {
	type member struct{ name, text string }
	var members []member
	if c.open() {
		for {
			raw, escaped := c.name()
			m := member{name: string(appendCanonicalString(nil, raw, escaped))}
			m.text = string(c.appendCanonical(nil, room))
			members = append(members, m)
			if !c.more() {
				break
			}
		}
	}
	sort.SliceStable(members, func(i, j int) bool { return members[i].name < members[j].name }) // of package sort, which is one copy of the code for all types
	dst = append(dst, '{')
	for _, m := range members {
		dst = append(append(dst, m.name...), ':')
		dst = append(append(dst, m.text...), ',')
	}
	return append(dst, '}')
}

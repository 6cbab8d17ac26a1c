package schema

import (
	"fmt"
	"sort"

	"mcpwire/internal/json/decimal"
	"mcpwire/internal/json/jsonwire"
)

// Duplicate member names are refused wherever they stand. Parsers disagree on
// which one counts, so that what was checked would not be what is used.

// maxLinearNames is up to how many names comparing each pair is faster than a map.
const maxLinearNames = 16

// nameRange is where a member's name stands, between its quotes.
type nameRange struct {
	start, end int
	escaped    bool
}

func (s nameRange) name(text []byte) []byte {
	return unquoted(text[s.start:s.end], s.escaped)
}

// nameSet collects the member names of one object. As long as they are few they
// are on a stack of names shared by all objects that are open, from base on;
// the caller takes them off when the object ends.
type nameSet struct {
	base int
	all  map[string]struct{} // instead, if there are more
}

// add adds the name n of text to the set and reports whether it is new.
func (s *nameSet) add(text []byte, names []nameRange, n nameRange) ([]nameRange, bool) {
	if s.all == nil {
		for _, other := range names[s.base:] {
			if other.escaped || n.escaped {
				if string(other.name(text)) == string(n.name(text)) {
					return names, false
				}
			} else if other.end-other.start == n.end-n.start && string(text[other.start:other.end]) == string(text[n.start:n.end]) {
				return names, false
			}
		}
		if len(names)-s.base < maxLinearNames {
			return append(names, n), true
		}
		s.all = make(map[string]struct{}, 4*maxLinearNames)
		for _, other := range names[s.base:] {
			s.all[string(other.name(text))] = struct{}{}
		}
	}
	name := string(n.name(text))
	if _, ok := s.all[name]; ok {
		return names, false
	}
	s.all[name] = struct{}{}
	return names, true
}

// nameRange is name for a [nameSet].
func (c *cursor) nameRange() nameRange {
	start := min(c.i+1, len(c.b))
	raw, escaped := c.name()
	return nameRange{start, start + len(raw), escaped}
}

// duplicates finds the duplicate member names in the value at the cursor, at
// any depth, and passes the value. It reports at most limit.
func (c *cursor) duplicates(limit int) (found []finding) {
	type frame struct {
		object bool
		set    nameSet
	}
	var frameBuf [8]frame
	var nameBuf [24]nameRange
	frames, names := append(frameBuf[:0], frame{}), nameBuf[:0]
	for {
		if top := &frames[len(frames)-1]; top.object {
			start := c.i
			n := c.nameRange()
			var ok bool
			if names, ok = top.set.add(c.b, names, n); !ok && len(found) < limit {
				found = append(found, finding{at: start, msg: duplicateProperty(c.b[n.start:n.end])})
			}
		}
		switch ch := c.space(); ch {
		case '{', '[':
			if c.open() {
				frames = append(frames, frame{object: ch == '{', set: nameSet{base: len(names)}})
				continue
			}
		default:
			c.skip()
		}
		for len(frames) > 1 && !c.more() {
			names = names[:frames[len(frames)-1].set.base]
			frames = frames[:len(frames)-1]
		}
		if len(frames) == 1 {
			return found
		}
	}
}

// equalItems returns a message if two elements of the array text are equal, else "". It costs about
// as much as reading the text a few times, whatever the number of elements. If spend is not nil, it
// is called with the number of bytes read, and ends the search by returning false.
func equalItems(text []byte, spend func(bytes int) bool) string {
	seen := map[string]int{}
	var buf []byte
	c := cursor{b: text}
	c.space()
	k := 0
	for more := c.open(); more; more = c.more() {
		start := c.i
		buf = c.appendCanonical(buf[:0], canonicalDepth)
		if spend != nil && !spend(c.i-start) {
			return ""
		}
		if first, dup := seen[string(buf)]; dup {
			return fmt.Sprintf("expected unique items, but items %d and %d are equal", first, k)
		}
		seen[string(buf)] = k
		k++
	}
	return ""
}

// appendCanonical appends a text that is the same for two JSON values exactly if JSON Schema calls
// them equal: numbers by value, strings by what they decode to, objects without regard to the order
// of members. Lone surrogates all count as U+FFFD.
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
		return decimal.Parse(c.number()).AppendCanonical(dst)
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
	// Package sort has one copy of its code for all types, unlike package slices.
	sort.SliceStable(members, func(i, j int) bool { return members[i].name < members[j].name })
	dst = append(dst, '{')
	for _, m := range members {
		dst = append(append(dst, m.name...), ':')
		dst = append(append(dst, m.text...), ',')
	}
	return append(dst, '}')
}

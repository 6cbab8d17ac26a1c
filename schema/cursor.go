package schema

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
)

// cursor moves forward over JSON text that has been validated before. It
// checks nothing. On anything else it yields nonsense, but it stays inside b
// and every step that reports progress moves on.
type cursor struct {
	b []byte
	i int
}

// space moves to the next byte that is not white space and returns it, or 0 at the end.
func (c *cursor) space() byte {
	if c.i < len(c.b) {
		if ch := c.b[c.i]; ch > ' ' {
			return ch
		}
	}
	return c.spaces()
}

func (c *cursor) spaces() byte {
	for c.i < len(c.b) {
		if ch := c.b[c.i]; ch > ' ' {
			return ch
		}
		c.i++
	}
	return 0
}

// str passes the string whose opening quote is at the cursor and returns its
// content, aliasing the text, and whether that has escapes.
func (c *cursor) str() (raw []byte, escaped bool) {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	b, start := c.b, min(c.i+1, len(c.b))
	i := start
	// Up to 64 bytes go eight at a time. Of the bytes marked, the first is
	// surely a quote or a backslash; any behind it may be false.
	for short := min(start+64, len(b)-8); i <= short; i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^ones*'"', w^ones*'\\'
		m := ((quote-ones)&^quote | (slash-ones)&^slash) & high
		if m == 0 {
			continue
		}
		if i += bits.TrailingZeros64(m) / 8; b[i] == '\\' {
			return c.strSlow(start)
		}
		c.i = i + 1
		return b[start:i], false
	}
	if len(b)-i >= 8 {
		return c.strSlow(start)
	}
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			c.i = i + 1
			return b[start:i], false
		case '\\':
			return c.strSlow(start)
		}
	}
	return c.strSlow(start)
}

func (c *cursor) strSlow(start int) (raw []byte, escaped bool) {
	c.i = jsonwire.SkipValue(c.b, start-1)
	end := max(c.i-1, start)
	raw = c.b[start:min(end, len(c.b))]
	return raw, bytes.IndexByte(raw, '\\') >= 0
}

// unquoted decodes the content of a string.
func unquoted(raw []byte, escaped bool) []byte {
	if escaped {
		return jsonwire.AppendUnquote(nil, raw)
	}
	return raw
}

// unquotedString decodes the content of a string, which it copies.
func unquotedString(raw []byte, escaped bool) string {
	if escaped {
		return jsonwire.UnquoteString(raw)
	}
	return string(raw)
}

// number passes the number at the cursor and returns its text.
func (c *cursor) number() []byte {
	start := c.i
	for c.i++; c.i < len(c.b); c.i++ {
		if ch := c.b[c.i]; ch-'0' > 9 && ch != '.' && ch|0x20 != 'e' && ch != '+' && ch != '-' {
			break
		}
	}
	return c.b[start:min(c.i, len(c.b))]
}

// skip passes the value at the cursor. It moves by at least one byte unless at the end.
func (c *cursor) skip() {
	i := c.i
	c.i = jsonwire.SkipValue(c.b, i)
	if c.i == i && i < len(c.b) {
		c.i++
	}
}

// value passes the value at the cursor and returns its text without white space around it.
func (c *cursor) value() []byte {
	c.space()
	start := c.i
	c.skip()
	return c.b[start:c.i]
}

// name passes a member's name and the colon behind it.
func (c *cursor) name() (raw []byte, escaped bool) {
	raw, escaped = c.str()
	c.colon()
	return raw, escaped
}

// colon passes the colon behind a member's name, up to the value.
func (c *cursor) colon() {
	if c.space() == ':' {
		c.i++
	}
	c.space()
}

// more is called behind a member or an element. It passes a comma and moves to
// what follows, or passes the closing bracket, and reports which. It also moves
// on by at least one byte, so that loops over it end on any text.
func (c *cursor) more() bool {
	ch := c.space()
	c.i = min(c.i+1, len(c.b))
	if ch != ',' {
		return false
	}
	return c.space() != 0
}

// open passes the opening bracket at the cursor, and the closing one of an
// empty container. It reports whether there is a member or an element.
func (c *cursor) open() bool {
	c.i++
	switch c.space() {
	case '}', ']':
		c.i++
		return false
	case 0:
		return false
	}
	return true
}

// first returns the byte at the cursor, or 0 at the end.
func (c *cursor) first() byte {
	if c.i < len(c.b) {
		return c.b[c.i]
	}
	return 0
}

// maxToken is how much of one member name goes into a Problem's pointer.
const maxToken = 128

// pointerAt returns the JSON pointer of the value that starts at text[at], or of the object if a
// member name stands there. Offsets are all a check keeps while it runs; walking the text once more
// for each of the few problems of a failed check costs nothing when there is none.
//
// text may end anywhere from at on, so that it works on output that could not be finished.
func pointerAt(text []byte, at int) string {
	type frame struct {
		name  []byte // the current member's, nil outside a value
		index int    // the current element's, -1 in an object
	}
	var stack []frame
	c := cursor{b: text}
	for ch := c.space(); c.i < at && ch != 0; ch = c.space() {
		switch ch {
		case '{':
			stack = append(stack, frame{index: -1})
			c.i++
		case '[':
			stack = append(stack, frame{})
			c.i++
		case '}', ']':
			if len(stack) > 0 {
				stack = stack[:len(stack)-1]
			}
			c.i++
		case ',':
			if n := len(stack) - 1; n >= 0 && stack[n].index >= 0 {
				stack[n].index++
			} else if n >= 0 {
				stack[n].name = nil
			}
			c.i++
		case '"':
			start := c.i
			raw, _ := c.str()
			if n := len(stack) - 1; n >= 0 && stack[n].index < 0 && stack[n].name == nil && c.space() == ':' {
				c.i++
				stack[n].name = text[start+1 : start+1+len(raw)]
			}
		default:
			c.skip()
		}
	}
	var b strings.Builder
	for _, f := range stack {
		switch {
		case f.index >= 0:
			b.WriteByte('/')
			b.WriteString(strconv.Itoa(f.index))
		case f.name != nil:
			b.WriteByte('/')
			b.WriteString(pointerToken(f.name))
		}
	}
	return b.String()
}

// pointerToken decodes and escapes a member name for a JSON pointer, cut if it is too long.
func pointerToken(raw []byte) string {
	cut := clipRaw(raw, maxToken)
	tok := jsonwire.UnquoteString(cut)
	if len(cut) < len(raw) {
		tok += "…"
	}
	return jsonpointer.Escape(tok)
}

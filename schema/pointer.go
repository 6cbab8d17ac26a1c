package schema

import (
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
)

// maxToken is how much of one member name goes into a Problem's pointer.
const maxToken = 128

// pointerAt returns the JSON pointer of the value that starts at text[at], or
// of the object if a member name stands there. Offsets are all a check keeps
// while it runs; walking the text once more for each of the few problems of a
// failed check costs nothing when there is none.
//
// text may end anywhere from at on, so that it works on output that could not
// be finished.
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

// pointerToken decodes and escapes a member name for a JSON pointer, cut if it
// is too long.
func pointerToken(raw []byte) string {
	cut := clipRaw(raw, maxToken)
	tok := jsonwire.UnquoteString(cut)
	if len(cut) < len(raw) {
		tok += "…"
	}
	return strings.ReplaceAll(strings.ReplaceAll(tok, "~", "~0"), "/", "~1")
}

package jsonwire

import (
	"fmt"
	"strconv"
)

// SyntaxError says where and why a text is not valid JSON. It is returned as a
// *SyntaxError.
type SyntaxError struct {
	// Offset is the index of the first byte that cannot be part of a valid
	// text, or the length of the text if the text ends too early.
	Offset int
	// Msg says what is wrong there, without the offset.
	Msg string
	// Depth is set if the text was refused only because it nests deeper than
	// the limit. What lies beyond was not looked at.
	Depth bool
}

// Error returns "invalid JSON at byte 17: ...".
func (e *SyntaxError) Error() string {
	return "invalid JSON at byte " + strconv.Itoa(e.Offset) + ": " + e.Msg
}

// fault names what the scanner wanted where it stopped. The hot functions
// return an offset and a fault; the text is made only when it is needed.
type fault uint8

const (
	faultNone fault = iota
	faultDepth
	faultValue
	faultName
	faultColon
	faultMember // faultElement - 1, see containerEnd
	faultElement
	faultObject
	faultArray
	faultStringStart
	faultString
	faultNumber
	faultLiteral
	faultEnd
)

var faultWant = [...]string{
	faultNone:        "nothing",
	faultDepth:       "a shallower text",
	faultValue:       "a value",
	faultName:        "a member name in quotes",
	faultColon:       "':' after a member name",
	faultMember:      "',' or '}' after a member",
	faultElement:     "',' or ']' after an element",
	faultObject:      "'{'",
	faultArray:       "'['",
	faultStringStart: "'\"'",
	faultString:      "the end of the string",
	faultNumber:      "a digit",
	faultLiteral:     "true, false or null",
	faultEnd:         "the end of the text",
}

// newError describes the fault at b[at:].
func newError(b []byte, at int, f fault) *SyntaxError {
	e := &SyntaxError{Offset: at}
	switch {
	case f == faultDepth:
		e.Depth = true
		e.Msg = "nested too deeply"
	case at >= len(b):
		e.Offset = len(b)
		e.Msg = "unexpected end of text, want " + faultWant[f]
	case f == faultString:
		e.Msg = stringFault(b[at])
	case b[at] == 0:
		e.Msg = "NUL byte, want " + faultWant[f]
	case len(b)-at >= 3 && string(b[at:at+3]) == "\xef\xbb\xbf":
		e.Msg = "byte order mark, want " + faultWant[f]
	case b[at] < 0x20 || b[at] >= 0x7f:
		e.Msg = fmt.Sprintf("unexpected byte 0x%02x, want %s", b[at], faultWant[f])
	default:
		e.Msg = fmt.Sprintf("unexpected %q, want %s", b[at], faultWant[f])
	}
	return e
}

// stringFault describes the byte a string scan stopped at.
func stringFault(c byte) string {
	switch {
	case c == '\\':
		return "invalid escape sequence in a string"
	case c < 0x20:
		return fmt.Sprintf("unescaped control character 0x%02x in a string", c)
	default:
		return fmt.Sprintf("invalid UTF-8 in a string, at byte 0x%02x", c)
	}
}

package jsonrpc

import (
	"bytes"
	"strconv"

	"mcpwire/internal/jsonwire"
)

// ID is the exact JSON text of a request id, as it stood on the wire: `7`, `9007199254740993`, `"a\u0062"`. It is echoed byte for byte.
// An empty ID means that there was none; `null` occurs only in error responses to requests whose id nobody could read.
type ID []byte

var nullID = ID("null")

// IntID returns the id with the given number.
func IntID(n int64) ID { return strconv.AppendInt(nil, n, 10) }

// StringID returns the id with the given string.
func StringID(s string) ID { return jsonwire.AppendQuote(nil, s) }

// IsNull reports whether the id is the JSON value null.
func (id ID) IsNull() bool { return string(id) == "null" }

// Valid reports whether the id may stand in a request: a string or an integer, never null, a fraction, a boolean, an array or an object.
func (id ID) Valid() bool {
	if len(id) == 0 {
		return false
	}
	if id[0] == '"' {
		return len(id) >= 2 && id[len(id)-1] == '"'
	}
	return isInteger(id)
}

// Equal reports whether two ids are the same JSON value: `"a\u0062"` equals `"ab"`, and `1` does not equal `"1"`.
func (id ID) Equal(other ID) bool {
	return bytes.Equal(id, other) || bytes.Equal(id.canonical(), other.canonical())
}

// Clone returns a copy that does not alias the frame.
func (id ID) Clone() ID { return bytes.Clone(id) }

// String returns the id's JSON text.
func (id ID) String() string { return string(id) }

// Text returns a string id's decoded value; ok is false for any other id.
func (id ID) Text() (s string, ok bool) {
	if len(id) < 2 || id[0] != '"' {
		return "", false
	}
	return jsonwire.UnquoteString(id[1 : len(id)-1]), true
}

// canonical returns a text that is the same for equal ids. It aliases the id unless the id is spelled in an unusual way.
func (id ID) canonical() []byte {
	if len(id) == 0 {
		return nil
	}
	if id[0] == '"' {
		if bytes.IndexByte(id, '\\') < 0 {
			return id
		}
		s, _ := id.Text()
		return jsonwire.AppendQuote(nil, s)
	}
	if string(id) == "-0" {
		return id[1:]
	}
	return id
}

// isInteger reports whether a JSON number's text has neither fraction nor exponent.
func isInteger(text []byte) bool {
	if len(text) > 0 && text[0] == '-' {
		text = text[1:]
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(text) > 0
}

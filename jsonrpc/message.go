package jsonrpc

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"mcpwire/internal/json/jsonwire"
)

// Kind is the kind of a message.
type Kind uint8

// The kinds of message. The zero Kind is an invalid message.
const (
	KindInvalid      Kind = iota
	KindRequest           // has a method and an id, needs a response
	KindNotification      // has a method and no id: must not be answered
	KindResponse          // has a result
	KindError             // has an error
)

func (k Kind) String() string {
	switch k {
	case KindRequest:
		return "request"
	case KindNotification:
		return "notification"
	case KindResponse:
		return "response"
	case KindError:
		return "error response"
	}
	return "invalid message"
}

// Direction is the direction of a message.
type Direction uint8

// The directions.
const (
	Incoming Direction = iota
	Outgoing
)

// A Message is one JSON-RPC message. Its slices alias the frame it was parsed from, and hold JSON
// text unless noted. The slice of an absent member is nil.
type Message struct {
	Kind Kind
	// ID is the exact JSON text. It is empty in notifications.
	ID ID
	// Method is the decoded name, not JSON text.
	Method []byte
	// Params is an object or an array. "params":null counts as absent.
	Params []byte
	Result []byte
	// Error is the error object; see Err.
	Error []byte

	// text is the text that the ranges below refer to.
	text    []byte
	nparams uint8
	// unindexed says that the index is incomplete: members are found by scanning Params.
	unindexed bool
	// duplicate says that a member name occurs twice in Params.
	duplicate bool
	// nameLengths is the set of the lengths of the names in Params, see lengthBit. It answers most
	// lookups of absent members.
	nameLengths uint32
	params      [maxIndexed]member
}

// maxIndexed is how many members of params are indexed while the frame is validated, so that a
// server need not scan it again. MCP's objects have at most five; larger ones are scanned a second
// time.
const maxIndexed = 6

type textRange struct{ start, end int32 }

type member struct{ key, value textRange }

// Param returns the JSON text of the named member of Params. It aliases the frame. It finds nothing
// if Params is an array.
func (m *Message) Param(name string) (value []byte, ok bool) {
	if m.nameLengths&lengthBit(len(name)) == 0 {
		return nil, false
	}
	return m.param(name)
}

func (m *Message) param(name string) (value []byte, ok bool) {
	if m.unindexed {
		return m.scanParam(name)
	}
	for i := range m.params[:m.nparams] {
		p := &m.params[i]
		if int(p.key.end-p.key.start) == len(name) && string(m.text[p.key.start:p.key.end]) == name {
			return m.text[p.value.start:p.value.end], true
		}
	}
	return nil, false
}

// lengthBit returns the bit of Message.nameLengths for names of n bytes.
func lengthBit(n int) uint32 { return 1 << (uint(n) & 31) }

func (m *Message) resetIndex() {
	m.nparams, m.unindexed, m.duplicate, m.nameLengths = 0, false, false, 0
}

func (m *Message) disableIndex() { m.unindexed, m.nameLengths = true, math.MaxUint32 }

func (m *Message) scanParam(name string) ([]byte, bool) {
	members := jsonwire.ObjectMembers(m.Params)
	for members.Next() {
		if members.KeyIs(name) {
			return members.Value(), true
		}
	}
	return nil, false
}

// DuplicateParam reports whether a member name occurs twice in Params. Readers may disagree on
// which one counts, which can be used to bypass a filter, so a server should reject such a message.
func (m *Message) DuplicateParam() bool {
	if !m.unindexed {
		return m.duplicate
	}
	seen := make(map[string]struct{})
	members := jsonwire.ObjectMembers(m.Params)
	for members.Next() {
		name := members.KeyString()
		if _, dup := seen[name]; dup {
			return true
		}
		seen[name] = struct{}{}
	}
	return false
}

// setText makes the message alias text, a copy of the text it was parsed from.
func (m *Message) setText(text []byte) {
	old := m.text
	move := func(b []byte) []byte {
		if b == nil || cap(old) < cap(b) {
			return b // absent, or decoded into separate memory
		}
		off := cap(old) - cap(b)
		if off+len(b) > len(old) || len(b) > 0 && &old[off] != &b[0] {
			return b
		}
		return text[off : off+len(b)]
	}
	m.ID, m.Method = move(m.ID), move(m.Method)
	m.Params, m.Result, m.Error = move(m.Params), move(m.Result), move(m.Error)
	m.text = text
}

// Raw returns the JSON text that the message was parsed from. It aliases the frame.
func (m *Message) Raw() []byte { return m.text }

// Clone returns a copy that shares no memory with the frame.
func (m *Message) Clone() *Message {
	c := *m
	c.Move(nil)
	return &c
}

// Move copies the message's text to dst[:0], which grows if necessary, makes the message alias the
// copy, and returns it.
func (m *Message) Move(dst []byte) []byte {
	dst = append(dst[:0], m.text...)
	m.setText(dst)
	return dst
}

// ID is the exact JSON text of a request id, as on the wire: `7`, `9007199254740993`, `"a\u0062"`.
// It is echoed byte for byte. An empty ID means an absent id. `null` occurs only in error
// responses to requests with an unreadable id.
type ID []byte

var nullID = ID("null")

// IntID returns the id with the given number.
func IntID(n int64) ID { return strconv.AppendInt(nil, n, 10) }

// StringID returns the id with the given string.
func StringID(s string) ID { return jsonwire.AppendQuote(nil, s) }

// IsNull reports whether the id is the JSON value null.
func (id ID) IsNull() bool { return string(id) == "null" }

// Valid reports whether the id is valid in a request: a string or an integer.
func (id ID) Valid() bool {
	if len(id) == 0 {
		return false
	}
	if id[0] == '"' {
		return len(id) >= 2 && id[len(id)-1] == '"'
	}
	return isInteger(id)
}

// Equal reports whether two ids are the same JSON value: `"a\u0062"` equals `"ab"`, and `1` does
// not equal `"1"`.
func (id ID) Equal(other ID) bool {
	return bytes.Equal(id, other) || bytes.Equal(id.Canonical(), other.Canonical())
}

// Key returns [ID.Canonical] as a string, a key for maps: it is the same for equal ids and for no
// others.
func (id ID) Key() string { return string(id.Canonical()) }

// Clone returns a copy that does not alias the frame.
func (id ID) Clone() ID { return bytes.Clone(id) }

// String returns the id's JSON text.
func (id ID) String() string { return string(id) }

// Text returns the decoded value of a string id. ok is false for any other id.
func (id ID) Text() (s string, ok bool) {
	if len(id) < 2 || id[0] != '"' {
		return "", false
	}
	return jsonwire.UnquoteString(id[1 : len(id)-1]), true
}

// Canonical returns the usual spelling of the id, which is the same for equal ids and for no
// others. It aliases the id unless the id has an unusual spelling.
func (id ID) Canonical() ID {
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

// appendOverhead is the number of bytes that AppendRequest appends in addition to its arguments, if
// the method needs no escapes. The other functions append no more.
const appendOverhead = len(`{"jsonrpc":"2.0","id":,"method":"","params":}`)

// AppendRequest appends a request, without framing, to dst. It omits nil params. It checks nothing:
// id and params must be valid JSON without raw line breaks.
func AppendRequest(dst []byte, id ID, method string, params []byte) []byte {
	dst = slices.Grow(dst, appendOverhead+len(id)+len(method)+len(params))
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	return appendMethod(append(dst, ','), method, params)
}

// AppendNotification appends a notification to dst. params is as in [AppendRequest].
func AppendNotification(dst []byte, method string, params []byte) []byte {
	dst = slices.Grow(dst, appendOverhead+len(method)+len(params))
	return appendMethod(append(dst, `{"jsonrpc":"2.0",`...), method, params)
}

func appendMethod(dst []byte, method string, params []byte) []byte {
	dst = jsonwire.AppendQuote(append(dst, `"method":`...), method)
	if params != nil {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// AppendResult appends a response with a result to dst. It checks nothing: id and result must be
// valid JSON without raw line breaks.
func AppendResult(dst []byte, id ID, result []byte) []byte {
	dst = slices.Grow(dst, appendOverhead+len(id)+len(result))
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(append(dst, `,"result":`...), result...)
	return append(dst, '}')
}

// AppendError appends an error response to dst. An empty id is written as null if nullID is set,
// and otherwise omitted: JSON-RPC requires null, but newer revisions of MCP have no null id in
// their schemas. It checks nothing: id and e.Data must be valid JSON without raw line breaks, which
// [ErrorOf] makes sure of.
func AppendError(dst []byte, id ID, e *Error, nullID bool) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if len(id) > 0 {
		dst = append(append(append(dst, `"id":`...), id...), ',')
	} else if nullID {
		dst = append(dst, `"id":null,`...)
	}
	code := e.Code
	if code == 0 {
		code = CodeInternalError // no path sends code 0
	}
	dst = strconv.AppendInt(append(dst, `"error":{"code":`...), int64(code), 10)
	dst = jsonwire.AppendQuote(append(dst, `,"message":`...), e.Message)
	if len(e.Data) > 0 {
		dst = append(append(dst, `,"data":`...), e.Data...)
	}
	return append(dst, "}}"...)
}

package jsonrpc

import (
	"bytes"
	"math"

	"mcpwire/internal/jsonwire"
)

// Kind tells what a message is.
type Kind uint8

// The kinds of message. The zero Kind is a message that is none of them.
const (
	KindInvalid      Kind = iota
	KindRequest           // has a method and an id: wants an answer
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

// A Message is one JSON-RPC envelope. Its slices alias the frame it was parsed from, and hold JSON text unless said otherwise; a member
// that was absent is nil.
type Message struct {
	Kind   Kind
	ID     ID     // exact text; empty in notifications
	Method []byte // the decoded name, not JSON text
	Params []byte // an object or an array; "params":null counts as absent
	Result []byte
	Error  []byte // the error object; Err decodes it

	text        []byte // what the spans below point into
	nparams     uint8
	unindexed   bool   // the index is incomplete: look members up by walking Params
	duplicate   bool   // a member of Params stands there twice
	nameLengths uint32 // of the names of Params, see lengthBit: most that are asked for and are not there are of another
	params      [maxIndexed]member
}

// The members of params are found while the frame is validated, so that a server need not look at it again. Objects with more members than
// this (MCP's have at most five) are walked a second time.
const maxIndexed = 6

type textRange struct{ start, end int32 }

type member struct{ key, value textRange }

// Param returns the JSON text of the named member of Params. It aliases the frame. It finds nothing when Params is an array.
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

// lengthBit is the bit of Message.lengths for names of n bytes.
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

// DuplicateParam reports whether a member name stands twice in Params. Readers that disagree on which of the two counts are how a filter is
// passed by, so a server should refuse such a message.
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
			return b // absent, or decoded into memory of its own
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

// Clone returns a copy that shares no memory with the frame.
func (m *Message) Clone() *Message {
	c := *m
	c.setText(bytes.Clone(m.text))
	return &c
}

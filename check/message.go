package check

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// A kind is what a message seems to be. Kinds are bits, so that rules can name several.
type kind uint8

const (
	kindRequest      kind = 1 << iota // has a method and an id, be it null
	kindNotification                  // has a method and no id
	kindResult                        // has no method, and a result
	kindError                         // has no method and no result, but an error
	kindOther                         // JSON, but none of these

	kindCall     = kindRequest | kindNotification
	kindResponse = kindResult | kindError
	kindAny      = kindCall | kindResponse | kindOther
)

// A message is a JSON-RPC message, or what is in the place of one: unlike jsonrpc.Parse it takes what is malformed, since that is what rules are about. Its slices
// alias the event's data. A member that is absent is nil.
type message struct {
	kind      kind
	raw       []byte
	version   []byte // member jsonrpc
	id        jsonrpc.ID
	method    string
	name      []byte // member method, as JSON text
	params    []byte
	result    []byte
	err       []byte
	duplicate string // an envelope's member that stands twice
	batch     bool
	index     int // in a batch
}

// parseMessage reads a message from JSON text that has been validated.
func parseMessage(raw []byte) message {
	m := message{kind: kindOther, raw: raw}
	if !isObject(raw) {
		return m
	}
	set := func(field *[]byte, name string, v []byte) {
		if *field != nil {
			m.duplicate = name
			return
		}
		*field = v
	}
	for o := jsonwire.ObjectMembers(raw); o.Next(); {
		v := o.Value()
		switch {
		case o.KeyIs("jsonrpc"):
			set(&m.version, "jsonrpc", v)
		case o.KeyIs("id"):
			set((*[]byte)(&m.id), "id", v)
		case o.KeyIs("method"):
			set(&m.name, "method", v)
		case o.KeyIs("params"):
			set(&m.params, "params", v)
		case o.KeyIs("result"):
			set(&m.result, "result", v)
		case o.KeyIs("error"):
			set(&m.err, "error", v)
		}
	}
	m.method = stringValue(m.name)
	switch {
	case m.name != nil && m.id != nil:
		m.kind = kindRequest
	case m.name != nil:
		m.kind = kindNotification
	case m.result != nil:
		m.kind = kindResult
	case m.err != nil:
		m.kind = kindError
	}
	return m
}

// is reports whether the message is of one of the kinds.
func (m *message) is(k kind) bool { return m.kind&k != 0 }

// paired reports whether the message has an id by which a request and its response can find each other.
func (m *message) paired() bool {
	return len(m.id) > 0 && len(m.id) <= maxPairedID && !m.id.IsNull() && m.is(kindRequest|kindResponse)
}

// maxPairedID is what a capture.Pairer takes.
const maxPairedID = 1 << 10

// appendPairable appends a message that a capture.Pairer takes for m, whatever is wrong with m.
func (m *message) appendPairable(dst []byte) []byte {
	id := m.id
	if !id.Valid() {
		id = jsonrpc.StringID("~" + string(id))
	}
	switch {
	case m.is(kindRequest):
		return jsonrpc.AppendRequest(dst, id, clipBytes(m.method, maxPairedID), nil)
	case m.is(kindError):
		return jsonrpc.AppendError(dst, id, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}, false)
	}
	return jsonrpc.AppendResult(dst, id, []byte("{}"))
}

// code returns the code of an error, 0 if there is none.
func (m *message) code() int64 {
	n, _ := jsonwire.ParseInt(member(m.err, "code"))
	return n
}

package check

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

// A kind classifies a message. Kinds are bits, so that rules can name several.
type kind uint8

const (
	kindRequest      kind = 1 << iota // method and id, possibly null
	kindNotification                  // method, no id
	kindResult                        // result, no method
	kindError                         // error, no method or result
	kindOther                         // JSON, but none of these

	kindCall     = kindRequest | kindNotification
	kindResponse = kindResult | kindError
	kindAny      = kindCall | kindResponse | kindOther
)

// A message is a JSON-RPC message or anything found in place of one. Unlike jsonrpc.Parse, it
// accepts malformed messages, because rules are about those. Its slices alias the event's data. An
// absent member is nil.
type message struct {
	kind kind
	raw  []byte
	// version is the member jsonrpc.
	version []byte
	id      jsonrpc.ID
	method  string
	// badMethod is the member method as JSON text if it is not a string.
	badMethod []byte
	params    []byte
	result    []byte
	err       []byte
	// duplicate is the name of an envelope member that occurs twice.
	duplicate string
	batch     bool
	// index is the position in the batch.
	index int
}

// usualVersion is the only valid value of the member jsonrpc.
var usualVersion = []byte(`"2.0"`)

// messageOf returns the message that jsonrpc.Parse has found in a text.
func messageOf(parsed *jsonrpc.Message, raw []byte) message {
	m := message{raw: raw, version: usualVersion, id: parsed.ID, params: parsed.Params, result: parsed.Result, err: parsed.Error}
	switch parsed.Kind {
	case jsonrpc.KindResponse:
		m.kind = kindResult
		return m
	case jsonrpc.KindError:
		m.kind = kindError
		return m
	case jsonrpc.KindRequest:
		m.kind = kindRequest
	default:
		m.kind = kindNotification
	}
	if m.method = string(parsed.Method); m.params == nil {
		// jsonrpc.Parse reads null as absent.
		m.params = jsonwire.Lookup(raw, "params")
	}
	return m
}

// parseMessage parses valid JSON text as a message that jsonrpc.Parse rejects.
func parseMessage(raw []byte) message {
	m := message{kind: kindOther, raw: raw}
	if !isObject(raw) {
		return m
	}
	var method []byte
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
			set(&method, "method", v)
		case o.KeyIs("params"):
			set(&m.params, "params", v)
		case o.KeyIs("result"):
			set(&m.result, "result", v)
		case o.KeyIs("error"):
			set(&m.err, "error", v)
		}
	}
	if m.method = jsonwire.Text(method); !isString(method) {
		m.badMethod = method
	}
	switch {
	case method != nil && m.id != nil:
		m.kind = kindRequest
	case method != nil:
		m.kind = kindNotification
	case m.result != nil:
		m.kind = kindResult
	case m.err != nil:
		m.kind = kindError
	}
	return m
}

// is reports whether the message has one of the kinds.
func (m *message) is(k kind) bool { return m.kind&k != 0 }

// paired reports whether the message has an id that can match a request with its response.
func (m *message) paired() bool {
	return len(m.id) > 0 && len(m.id) <= maxPairedID && !m.id.IsNull() && m.is(kindRequest|kindResponse)
}

// maxPairedID is the longest id that is paired, in bytes.
const maxPairedID = 1 << 10

// code returns the code of an error, or 0.
func (m *message) code() int64 {
	n, _ := jsonwire.ParseInt(jsonwire.Lookup(m.err, "code"))
	return n
}

// An invalidLine is a line of a stdio stream that is not valid JSON.
type invalidLine struct {
	n uint64
	// data is truncated and does not alias the event's data.
	data []byte
}

// invalidLines classifies lines that are not valid JSON, once it is known whether they were the
// fragments of one message.
type invalidLines struct {
	// stray lines belong to no message.
	stray []invalidLine
	// fragments are the lines of one message with line breaks in it.
	fragments []invalidLine
}

// partials holds, for each direction, the lines that may be fragments of one message.
type partials struct {
	of map[capture.Dir]*partial
}

type partial struct {
	buf   []byte
	lines []invalidLine
}

const (
	maxPartial      = 1 << 20 // bytes
	maxPartialLines = 1000
)

// classifyInvalid classifies an event with bytes that are not valid JSON.
func classifyInvalid(v *view) invalidLines {
	e := v.e
	if v.session.transport != transportStdio || e.Part > 0 || len(trim(e.Data)) == 0 || notUTF8(e.Data) >= 0 && looksJSON(e.Data) {
		return invalidLines{}
	}
	p := partialOf(v.session, e.Dir)
	if cutOff(e) {
		return invalidLines{stray: p.flush()}
	}
	line := invalidLine{e.N, append([]byte(nil), e.Data[:min(len(e.Data), 2*maxShown)]...)}
	if len(p.lines) > 0 {
		p.buf = append(append(p.buf, '\n'), e.Data...)
		p.lines = append(p.lines, line)
		switch more, whole := incomplete(p.buf); {
		case whole:
			return invalidLines{fragments: p.flush()}
		case more && len(p.buf) <= maxPartial && len(p.lines) < maxPartialLines:
			return invalidLines{}
		}
		return invalidLines{stray: p.flush()}
	}
	if more, _ := incomplete(e.Data); more && looksJSON(e.Data) && len(e.Data) <= maxPartial && len(e.Redacted) == 0 {
		p.buf, p.lines = append(p.buf[:0], e.Data...), append(p.lines[:0], line)
		return invalidLines{}
	}
	return invalidLines{stray: []invalidLine{line}}
}

// cutOff reports whether the stream ended in the middle of the event's message.
func cutOff(e *capture.Event) bool {
	more, _ := incomplete(e.Data)
	return e.Framing == capture.FramingNone && more && looksJSON(e.Data)
}

func partialOf(s *session, dir capture.Dir) *partial {
	all := stateOf[partials](&s.state)
	if all.of[dir] == nil {
		sparse.Set(&all.of, dir, new(partial))
	}
	return all.of[dir]
}

// flush gives up waiting for the rest of a message.
func (p *partial) flush() []invalidLine {
	lines := p.lines
	*p = partial{}
	return lines
}

// incomplete reports whether a text is the beginning of a JSON text (more) or a complete one
// (whole).
func incomplete(text []byte) (more, whole bool) {
	err := jsonwire.Valid(text, 0)
	syntax, ok := errors.AsType[*jsonwire.SyntaxError](err)
	return ok && syntax.Offset >= len(text), err == nil
}

// The functions below read JSON text that is known to be valid, and copy nothing.

func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' }
func isArray(v []byte) bool  { return len(v) > 0 && v[0] == '[' }
func isString(v []byte) bool { return len(v) > 0 && v[0] == '"' }
func isNull(v []byte) bool   { return string(v) == "null" }
func isNumber(v []byte) bool { return len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9') }

// elements yields the indexes and elements of an array, and nothing for other types.
func elements(v []byte) func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		if !isArray(v) {
			return
		}
		i := 0
		for e := jsonwire.ArrayElements(v); e.Next(); i++ {
			if !yield(i, e.Value()) {
				return
			}
		}
	}
}

// count returns the number of elements of an array, and 0 for other types.
func count(v []byte) (n int) {
	for range elements(v) {
		n++
	}
	return n
}

// members yields the members of an object, and nothing for other types.
func members(v []byte) func(yield func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		if !isObject(v) {
			return
		}
		for m := jsonwire.ObjectMembers(v); m.Next(); {
			if !yield(m.KeyString(), m.Value()) {
				return
			}
		}
	}
}

// pointer builds a JSON pointer (https://www.rfc-editor.org/rfc/rfc6901) from names and indexes.
func pointer(path ...any) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		switch p := p.(type) {
		case int:
			b.WriteString(strconv.Itoa(p))
		case string:
			b.WriteString(jsonpointer.Escape(clip.Prefix(p, 128)))
		}
	}
	return b.String()
}

// An index has the places of an object's members, so that all rules together read it once.
type index struct {
	// object is the text with the members, or nil before the first use.
	object  []byte
	members []indexed
	// large reports that the object has too many members for an index.
	large bool
}

type indexed struct{ name, value []byte }

// maxIndexed limits the members in an index.
const maxIndexed = 64

// reset makes the index forget its object.
func (x *index) reset() { x.object = nil }

// member is like the function member. The object must be the same until the next reset.
func (x *index) member(object []byte, name string) []byte {
	if x.object == nil {
		x.build(object)
	}
	if x.large {
		return jsonwire.Lookup(object, name)
	}
	for i := range x.members {
		if string(x.members[i].name) == name {
			return x.members[i].value
		}
	}
	return nil
}

func (x *index) build(object []byte) {
	x.object, x.members, x.large = object, x.members[:0], false
	if !isObject(object) {
		return
	}
	for m := jsonwire.ObjectMembers(object); m.Next(); {
		if len(x.members) == maxIndexed {
			x.large = true
			return
		}
		name := m.RawKey()
		if bytes.IndexByte(name, '\\') >= 0 {
			name = jsonwire.AppendUnquote(nil, name)
		}
		x.members = append(x.members, indexed{name, m.Value()})
	}
}

// idKey returns a canonical text for an id or token. The keys of 1 and "1" differ.
func idKey(id []byte) string { return jsonrpc.ID(id).Key() }

// validated returns v if it is valid JSON, else nil.
func validated(v []byte) []byte {
	if v = trim(v); jsonwire.Valid(v, 0) != nil {
		return nil
	}
	return v
}

// notUTF8 returns the index of the first invalid UTF-8 byte, or -1.
func notUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return -1
}

// looksJSON reports whether b begins like a message or a batch.
func looksJSON(b []byte) bool {
	b = trim(b)
	return len(b) > 0 && (b[0] == '{' || b[0] == '[')
}

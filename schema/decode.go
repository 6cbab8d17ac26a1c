package schema

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"mcpwire/internal/jsonwire"
)

// decoder checks and decodes one text in one pass. Its methods read the value
// at the cursor, pass it whatever they think of it, and note what is wrong as a
// finding. After the last finding there is room for, full makes loops end.
type decoder struct {
	cursor
	plan  *plan
	depth int
	found []finding
	limit bool
}

func (d *decoder) full() bool { return len(d.found) >= maxProblems || d.limit }

// fail notes a problem with the value that starts at an offset.
func (d *decoder) fail(at int, msg string) {
	if !d.full() {
		d.found = append(d.found, finding{at, msg})
	}
}

// mismatch notes that the value at the cursor is not what was wanted, and passes
// it.
func (d *decoder) mismatch(want string) {
	d.fail(d.i, expected(want, d.b, d.i))
	d.skip()
}

// enter counts a level of nesting. It reports false, with everything at an end,
// if that is one too many.
func (d *decoder) enter() bool {
	if d.depth++; d.depth <= d.plan.opts.MaxDepth {
		return true
	}
	if !d.full() {
		d.fail(d.i, tooDeep(d.plan.opts.MaxDepth))
		d.limit = true
	}
	d.skip()
	d.depth--
	return false
}

// value decodes the value at or after the cursor into the variable at a.
func (d *decoder) value(n *node, a address) {
	ch := d.space()
	if n.custom != nil && !d.customSchema(n) {
		return
	}
	switch n.dec {
	case opString:
		d.str(n, a, ch)
	case opInt, opUint, opFloat, opNumber, opBigInt:
		d.numeric(n, a, ch)
	case opBool:
		d.boolean(a, ch)
	case opStruct:
		d.object(n.fields, a, ch)
	case opPointer:
		d.pointer(n, a, ch)
	case opSlice:
		d.slice(n, a, ch)
	case opArray:
		d.array(n, a, ch)
	case opMap:
		d.mapping(n, a, ch)
	case opAny:
		*as[any](a) = d.any(ch)
	case opRaw:
		d.raw(a)
	case opBytes:
		d.bytes(a, ch)
	case opTime:
		d.time(a, ch)
	case opText:
		d.text(n, a, ch)
	case opJSON:
		d.json(n, a)
	default:
		d.fail(d.i, fmt.Sprintf("values of the Go type %s can only be sent, not received", n.typ))
		d.skip()
	}
}

// customSchema holds the value against the schema that its type gives. On a
// problem it passes the value and reports false.
func (d *decoder) customSchema(n *node) bool {
	found, limit := n.custom.findings(d.b, d.i)
	if len(found) == 0 {
		return true
	}
	for _, f := range found {
		d.fail(f.at, f.msg)
	}
	d.limit = d.limit || limit
	d.skip()
	return false
}

func (d *decoder) str(n *node, a address, ch byte) {
	if ch != '"' {
		d.mismatch(wantString(n))
		return
	}
	at := d.i
	raw, escaped := d.cursor.str()
	if n.enum != nil {
		s, ok := n.enum.lookup(raw, escaped)
		if !ok {
			d.fail(at, n.enum.message(d.b, at))
		}
		*as[string](a) = s
		return
	}
	if n.str != nil {
		if msg := n.str.checkRaw(raw, escaped, false); msg != "" {
			d.fail(at, msg)
			return
		}
	}
	if escaped {
		*as[string](a) = jsonwire.UnquoteString(raw)
	} else {
		*as[string](a) = string(raw)
	}
}

func wantString(n *node) string {
	if n.enum != nil {
		return "one of " + listTexts(n.enum.texts)
	}
	return "string"
}

func (d *decoder) boolean(a address, ch byte) {
	switch ch {
	case 't':
		*as[bool](a) = true
	case 'f':
		*as[bool](a) = false
	default:
		d.mismatch("boolean")
		return
	}
	d.skip()
}

func (d *decoder) pointer(n *node, a address, ch byte) {
	if ch == 'n' && !n.required {
		d.skip()
		return // the variable is nil already
	}
	p := newAddress(n.elem.typ)
	a.store(p)
	d.value(n.elem, p)
}

func (d *decoder) bytes(a address, ch byte) {
	const want = "string of base64"
	if ch != '"' {
		d.mismatch(want)
		return
	}
	at := d.i
	text, escaped := d.cursor.str()
	if escaped {
		text = jsonwire.AppendUnquote(nil, text)
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	k, err := base64.StdEncoding.Decode(b, text)
	if err != nil {
		d.fail(at, expected(want, d.b, at))
		return
	}
	*as[[]byte](a) = b[:k]
}

func (d *decoder) time(a address, ch byte) {
	const want = "RFC 3339 date-time such as 2006-01-02T15:04:05Z"
	if ch != '"' {
		d.mismatch(want)
		return
	}
	at := d.i
	text, escaped := d.cursor.str()
	if escaped {
		text = jsonwire.AppendUnquote(nil, text)
	}
	if err := as[time.Time](a).UnmarshalText(text); err != nil {
		d.fail(at, expected(want, d.b, at))
	}
}

// text decodes through UnmarshalText.
func (d *decoder) text(n *node, a address, ch byte) {
	if ch != '"' {
		d.mismatch(wantString(n))
		return
	}
	at := d.i
	raw, escaped := d.cursor.str()
	if n.enum != nil {
		if _, ok := n.enum.lookup(raw, escaped); !ok {
			d.fail(at, n.enum.message(d.b, at))
			return
		}
	}
	if n.str != nil {
		if msg := n.str.checkRaw(raw, escaped, false); msg != "" {
			d.fail(at, msg)
			return
		}
	}
	text := jsonwire.AppendUnquote(nil, raw) // a copy, lest the method keep it
	if err := a.pointer(n.typ).(encoding.TextUnmarshaler).UnmarshalText(text); err != nil {
		d.fail(at, "invalid string "+quoteRaw(raw)+": "+clipError(err))
	}
}

// json decodes through UnmarshalJSON.
func (d *decoder) json(n *node, a address) {
	at := d.i
	if !d.checkedSkip() {
		return
	}
	text := slices.Clone(d.b[at:d.i])
	if err := a.pointer(n.typ).(json.Unmarshaler).UnmarshalJSON(text); err != nil {
		d.fail(at, "invalid value: "+clipError(err))
	}
}

func (d *decoder) raw(a address) {
	at := d.i
	if d.checkedSkip() {
		*as[json.RawMessage](a) = slices.Clone(d.b[at:d.i])
	}
}

// checkedSkip passes a value that is not decoded here and reports whether its
// member names are unique.
func (d *decoder) checkedSkip() bool {
	if ch := d.first(); ch != '{' && ch != '[' {
		d.skip()
		return true
	}
	found := d.duplicates(maxProblems)
	for _, f := range found {
		d.fail(f.at, f.msg)
	}
	return len(found) == 0
}

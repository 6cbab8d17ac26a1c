package schema

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"time"
	"unicode/utf8"

	"mcpwire/internal/json/jsonwire"
)

// encoder appends one value to dst. Its methods append a complete value even if
// it breaks a constraint, which they note; err, set by the first thing that
// cannot be written at all, ends everything.
type encoder struct {
	dst   []byte
	start int // where this value starts in dst
	plan  *plan
	depth int       // containers
	hops  int       // interfaces
	found []finding // offsets are from start
	limit bool
	err   error
}

// toError turns what was noted into the error of Append.
func (e *encoder) toError() error {
	if e.err != nil {
		return e.err
	}
	err := newError(e.dst[e.start:], e.found, e.limit)
	err.Root = "result"
	return err
}

// fail notes a problem with the value that was or will be written at an offset of dst.
func (e *encoder) fail(at int, msg string) {
	if len(e.found) < maxProblems {
		e.found = append(e.found, finding{at - e.start, msg})
	}
}

// check notes the problem msg unless it is "".
func (e *encoder) check(at int, msg string) {
	if msg != "" {
		e.fail(at, msg)
	}
}

func (e *encoder) done() bool { return e.err != nil || e.limit || len(e.found) >= maxProblems }

// abort ends the encoding because of what a method returned.
func (e *encoder) abort(n *node, method string, err error) {
	where := "result" + string(appendPath(nil, pointerAt(e.dst[e.start:], len(e.dst)-e.start)))
	e.err = fmt.Errorf("schema: %s: %s of %s: %w", where, method, n.typ, err)
}

func (e *encoder) enter() bool {
	if e.depth++; e.depth <= e.plan.opts.MaxDepth {
		return true
	}
	if !e.limit {
		e.fail(len(e.dst), tooDeep(e.plan.opts.MaxDepth))
	}
	e.limit = true
	e.depth--
	return false
}

// value appends the variable at a.
func (e *encoder) value(n *node, a address) {
	at := len(e.dst)
	switch n.enc {
	case opString:
		e.str(n, *as[string](a))
	case opInt:
		e.integer(n, a)
	case opUint:
		e.unsigned(n, a)
	case opStruct:
		e.object(n.fields, a)
	case opBool:
		e.dst = strconv.AppendBool(e.dst, *as[bool](a))
	case opFloat:
		e.float(n, a)
	case opPointer:
		e.pointer(n, a)
	case opSlice, opArray:
		e.array(n, a)
	case opMap:
		e.mapping(n, a)
	case opAny:
		e.any(*as[any](a))
	case opRaw:
		e.raw(*as[json.RawMessage](a))
	case opBytes:
		e.dst = append(e.dst, '"')
		e.dst = base64.StdEncoding.AppendEncode(e.dst, *as[[]byte](a))
		e.dst = append(e.dst, '"')
	case opNumber:
		e.number(n, *as[json.Number](a))
	case opBigInt:
		e.dst = as[big.Int](a).Append(e.dst, 10)
		e.checkNumber(n, at)
	default:
		e.uncommon(n, a)
	}
	if n.custom != nil && !e.done() {
		e.customSchema(n, at)
	}
}

// uncommon appends the values of rare kinds.
func (e *encoder) uncommon(n *node, a address) {
	switch n.enc {
	case opTime:
		b, err := as[time.Time](a).AppendText(append(e.dst, '"'))
		if err != nil {
			e.abort(n, "AppendText", err)
			return
		}
		e.dst = append(b, '"')
	case opText:
		text, err := a.pointer(n.typ).(encoding.TextMarshaler).MarshalText()
		if err != nil {
			e.abort(n, "MarshalText", err)
			return
		}
		e.str(n, string(text))
	case opJSON:
		text, err := a.pointer(n.typ).(json.Marshaler).MarshalJSON()
		if err == nil {
			err = jsonwire.Valid(text, e.plan.opts.MaxDepth)
		}
		if err != nil {
			e.abort(n, "MarshalJSON", err)
			return
		}
		e.dst = jsonwire.AppendCompact(e.dst, text)
	case opEither:
		e.either(n, a)
	default:
		e.err = fmt.Errorf("schema: values of type %s can only be received, not sent", n.typ)
	}
}

// customSchema validates the text from an offset on against the schema that the
// type of the value provides.
func (e *encoder) customSchema(n *node, at int) {
	found, limit := n.custom.findings(e.dst, at)
	for _, f := range found {
		e.fail(f.at, f.msg)
	}
	e.limit = e.limit || limit
}

func (e *encoder) str(n *node, s string) {
	at := len(e.dst)
	e.dst = jsonwire.AppendQuote(e.dst, s)
	switch {
	case n.enum != nil && !n.enum.hasString(s):
		e.fail(at, n.enum.message(e.dst, at))
	case n.str != nil:
		e.check(at, n.str.checkString(s))
	}
}

func (e *encoder) integer(n *node, a address) {
	at := len(e.dst)
	v := a.getInt(n.size)
	e.dst = strconv.AppendInt(e.dst, v, 10)
	e.checkInteger(n, at, v < n.lo || v > n.hi)
}

func (e *encoder) unsigned(n *node, a address) {
	at := len(e.dst)
	v := a.getUint(n.size)
	e.dst = strconv.AppendUint(e.dst, v, 10)
	e.checkInteger(n, at, v < n.ulo || v > n.uhi)
}

func (e *encoder) checkInteger(n *node, at int, outOfRange bool) {
	if outOfRange {
		e.fail(at, n.outOfRange(e.dst[at:], false))
	}
	if n.num != nil || n.enum != nil {
		e.checkNumber(n, at)
	}
}

// checkNumber checks the number that was appended from an offset on.
func (e *encoder) checkNumber(n *node, at int) {
	tok := e.dst[at:]
	if n.num != nil {
		e.check(at, n.num.check(tok, false))
	}
	if n.enum != nil && !n.enum.has(tok) {
		e.fail(at, n.enum.message(e.dst, at))
	}
}

func (e *encoder) number(n *node, v json.Number) {
	at := len(e.dst)
	if v == "" {
		v = "0" // as in encoding/json
	}
	if !isNumber([]byte(v)) {
		e.fail(at, "expected a number in the json.Number, got "+quote(string(v)))
		e.dst = append(e.dst, '0')
		return
	}
	e.dst = append(e.dst, v...)
	e.checkNumber(n, at)
}

func (e *encoder) float(n *node, a address) {
	var f float64
	if n.size == 4 {
		f = float64(*as[float32](a))
	} else {
		f = *as[float64](a)
	}
	at := len(e.dst)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		e.fail(at, fmt.Sprintf("expected a finite number, got %v, which JSON cannot express", f))
		e.dst = append(e.dst, '0')
		return
	}
	e.dst = appendFloat(e.dst, f, 8*int(n.size))
	if n.num != nil || n.enum != nil {
		e.checkNumber(n, at)
	}
}

// appendFloat formats like JavaScript does, with the fewest digits that read
// back as the same value.
func appendFloat(dst []byte, f float64, bits int) []byte {
	abs := math.Abs(f)
	tiny, huge := 1e-6, 1e21
	if bits == 32 {
		tiny, huge = float64(float32(tiny)), float64(float32(huge))
	}
	if abs == 0 || abs >= tiny && abs < huge {
		return strconv.AppendFloat(dst, f, 'f', -1, bits)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, bits)
	if n := len(dst); dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst = append(dst[:n-2], dst[n-1]) // e-09 is e-9
	}
	return dst
}

func (e *encoder) pointer(n *node, a address) {
	target, ok := a.load()
	switch {
	case ok:
		e.value(n.elem, target)
	case n.required:
		e.fail(len(e.dst), "expected a value, got a nil "+n.typ.String())
		e.dst = append(e.dst, "null"...)
	default:
		e.dst = append(e.dst, "null"...)
	}
}

// object appends the fields of a struct.
func (e *encoder) object(s *structPlan, a address) {
	if !e.enter() {
		return
	}
	sep := byte('{')
	for i := range s.fields {
		f := &s.fields[i]
		from := a.field(f.offset)
		if f.hops != nil {
			var ok bool
			if from, ok = f.at(a, false); !ok {
				continue
			}
		}
		if f.omitted != nil && f.omitted(from) {
			continue
		}
		e.dst = append(append(append(e.dst, sep), f.quoted...), ':')
		sep = ','
		e.value(f.node, from)
		if e.done() {
			return
		}
	}
	if sep == '{' {
		e.dst = append(e.dst, '{')
	}
	e.dst = append(e.dst, '}')
	e.depth--
}

// array appends a slice or an array.
func (e *encoder) array(n *node, a address) {
	if !e.enter() {
		return
	}
	at := len(e.dst)
	v := a.value(n.typ)
	count := v.Len()
	e.dst = append(e.dst, '[')
	for i := range count {
		if i > 0 {
			e.dst = append(e.dst, ',')
		}
		e.value(n.elem, addressIn(v.Index(i)))
		if e.done() {
			return
		}
	}
	e.dst = append(e.dst, ']')
	e.depth--
	if n.count != nil {
		e.check(at, n.count.check(count, "item", false))
	}
	if n.unique {
		e.check(at, equalItems(e.dst[at:], nil))
	}
}

// mapping appends a map, sorted by name so that the same map is always the same text.
func (e *encoder) mapping(n *node, a address) {
	if !e.enter() {
		return
	}
	type entry struct {
		name  string
		value reflect.Value
	}
	at := len(e.dst)
	v := a.value(n.typ)
	entries := make([]entry, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		name, err := n.key.name(it.Key())
		if err != nil {
			e.abort(n, "MarshalText of the key", err)
			return
		}
		entries = append(entries, entry{name, it.Value()})
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].name < entries[j].name })
	elem := reflect.New(n.elem.typ).Elem()
	e.dst = append(e.dst, '{')
	for i, x := range entries {
		if i > 0 {
			e.dst = append(e.dst, ',')
			if x.name == entries[i-1].name {
				e.fail(at, "duplicate property "+quote(x.name))
			}
		}
		e.dst = append(jsonwire.AppendQuote(e.dst, x.name), ':')
		elem.Set(x.value)
		e.value(n.elem, addressIn(elem))
		if e.done() {
			return
		}
	}
	e.dst = append(e.dst, '}')
	e.depth--
	if n.count != nil {
		e.check(at, n.count.check(len(entries), "property", false))
	}
}

// validText returns s with U+FFFD for each byte that is not part of valid UTF-8,
// as it will be on the wire.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// name returns the member name for a key. It is made valid UTF-8 here, so that
// names which become equal are noticed.
func (k *keyPlan) name(key reflect.Value) (string, error) {
	switch k.op {
	case opInt:
		return strconv.FormatInt(key.Int(), 10), nil
	case opUint:
		return strconv.FormatUint(key.Uint(), 10), nil
	case opText:
		if key.Kind() == reflect.Pointer && key.IsNil() {
			return "", nil
		}
		text, err := key.Interface().(encoding.TextMarshaler).MarshalText()
		return validText(string(text)), err
	}
	return validText(key.String()), nil
}

// any appends a value whose type only it knows.
func (e *encoder) any(v any) {
	switch v := v.(type) {
	case nil:
		e.dst = append(e.dst, "null"...)
	case string:
		e.dst = jsonwire.AppendQuote(e.dst, v)
	case bool:
		e.dst = strconv.AppendBool(e.dst, v)
	case int:
		e.dst = strconv.AppendInt(e.dst, int64(v), 10)
	case json.RawMessage:
		e.raw(v)
	case map[string]any:
		e.anyMap(v)
	case []any:
		e.anySlice(v)
	default:
		e.dynamic(v)
	}
}

// dynamic appends a value by the plan of its type, made when first needed.
func (e *encoder) dynamic(v any) {
	rv := reflect.ValueOf(v)
	n, err := e.plan.node(rv.Type())
	if err != nil {
		e.err = fmt.Errorf("schema: cannot encode a value of type %s: %w", rv.Type(), err)
		return
	}
	// A cycle of pointers in interfaces has no container to count.
	if e.hops++; e.hops > 4*e.plan.opts.MaxDepth {
		e.depth = e.plan.opts.MaxDepth
		e.enter()
		return
	}
	p := reflect.New(rv.Type())
	p.Elem().Set(rv)
	e.value(n, addressIn(p.Elem()))
	e.hops--
}

func (e *encoder) anyMap(m map[string]any) {
	if !e.enter() {
		return
	}
	e.dst = append(e.dst, '{')
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			e.dst = append(e.dst, ',')
		}
		e.dst = append(jsonwire.AppendQuote(e.dst, name), ':')
		e.any(m[name])
		if e.done() {
			return
		}
	}
	e.dst = append(e.dst, '}')
	e.depth--
}

func (e *encoder) anySlice(list []any) {
	if !e.enter() {
		return
	}
	e.dst = append(e.dst, '[')
	for i, v := range list {
		if i > 0 {
			e.dst = append(e.dst, ',')
		}
		e.any(v)
		if e.done() {
			return
		}
	}
	e.dst = append(e.dst, ']')
	e.depth--
}

// raw appends text that is JSON already, if it is.
func (e *encoder) raw(text json.RawMessage) {
	if text == nil {
		e.dst = append(e.dst, "null"...)
		return
	}
	if err := jsonwire.Valid(text, e.plan.opts.MaxDepth); err != nil {
		e.abort(&node{typ: typeRaw}, "text", err)
		return
	}
	e.dst = jsonwire.AppendCompact(e.dst, text)
}

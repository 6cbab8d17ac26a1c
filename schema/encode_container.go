package schema

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"unicode/utf8"

	"mcpwire/internal/jsonwire"
)

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
		if msg := n.count.check(count, "item", false); msg != "" {
			e.fail(at, msg)
		}
	}
	if n.unique {
		if i, j, ok := equalItems(e.dst[at:], nil); ok {
			e.fail(at, itemsEqual(i, j))
		}
	}
}

// mapping appends a map, sorted by name so that the same map is always the same
// text.
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
				e.fail(at, "duplicate property "+quoteClipped(x.name))
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
		if msg := n.count.check(len(entries), "property", false); msg != "" {
			e.fail(at, msg)
		}
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

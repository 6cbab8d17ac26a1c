package schema

import (
	"encoding"
	"reflect"
	"strconv"

	"mcpwire/internal/jsonwire"
)

var (
	typeAnyMap    = reflect.TypeFor[map[string]any]()
	typeStringMap = reflect.TypeFor[map[string]string]()
)

// mapping decodes an object into a new map.
func (d *decoder) mapping(n *node, a address, ch byte) {
	if ch != '{' {
		d.mismatch("object")
		return
	}
	at, count := d.i, 0
	switch {
	case n.typ == typeAnyMap:
		m := map[string]any{}
		*as[map[string]any](a) = m
		count = d.members(
			func(name string) { m[name] = d.any(d.space()) },
			func(name string) bool { _, ok := m[name]; return ok })
	case n.typ == typeStringMap:
		m := map[string]string{}
		*as[map[string]string](a) = m
		count = d.members(
			func(name string) {
				var s string
				d.value(n.elem, addressOf(&s))
				m[name] = s
			},
			func(name string) bool { _, ok := m[name]; return ok })
	default:
		count = d.anyMapping(n, a)
	}
	if n.count != nil && !d.full() {
		if msg := n.count.check(count, "property", false); msg != "" {
			d.fail(at, msg)
		}
	}
}

// anyMapping is mapping for any type of map.
func (d *decoder) anyMapping(n *node, a address) (count int) {
	m := reflect.MakeMap(n.typ)
	a.value(n.typ).Set(m)
	if !d.enter() {
		return 0
	}
	elem := reflect.New(n.elem.typ).Elem()
	for more := d.open(); more && !d.full(); more = d.more() {
		start := d.i
		raw, escaped := d.name()
		count++
		key := reflect.New(n.key.typ).Elem()
		if msg := n.key.set(key, raw, escaped); msg != "" {
			d.fail(start, "property name "+quoteRaw(raw)+": "+msg)
			d.skip()
			continue
		}
		if m.MapIndex(key).IsValid() {
			d.fail(start, duplicateProperty(raw))
			d.skip()
			continue
		}
		elem.SetZero()
		d.value(n.elem, addressIn(elem))
		m.SetMapIndex(key, elem)
	}
	d.depth--
	return count
}

// set stores the member name raw in key, or says what is wrong with it.
func (k *keyPlan) set(key reflect.Value, raw []byte, escaped bool) string {
	var name string
	if escaped {
		name = jsonwire.UnquoteString(raw)
	} else {
		name = string(raw)
	}
	switch k.op {
	case opString:
		key.SetString(name)
	case opText:
		u := key.Addr().Interface().(encoding.TextUnmarshaler)
		if err := u.UnmarshalText([]byte(name)); err != nil {
			return clipError(err)
		}
	case opInt:
		v, err := strconv.ParseInt(name, 10, 8*int(k.size))
		if err != nil || strconv.FormatInt(v, 10) != name {
			return "expected an integer of " + strconv.Itoa(8*int(k.size)) + " bits"
		}
		key.SetInt(v)
	case opUint:
		v, err := strconv.ParseUint(name, 10, 8*int(k.size))
		if err != nil || strconv.FormatUint(v, 10) != name {
			return "expected an integer of " + strconv.Itoa(8*int(k.size)) + " bits and no sign"
		}
		key.SetUint(v)
	}
	return ""
}

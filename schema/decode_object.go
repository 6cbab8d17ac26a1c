package schema

import (
	"math/bits"

	"mcpwire/internal/jsonwire"
)

// object decodes the members of a struct.
func (d *decoder) object(s *structPlan, a address, ch byte) {
	if ch != '{' {
		d.mismatch("object")
		return
	}
	if !d.enter() {
		return
	}
	at := d.i
	var small [4]uint64
	seen := small[:]
	if len(s.required) > len(small) {
		seen = make([]uint64, len(s.required))
	}
	var unknown unknownNames
	next := 0 // members mostly come in the order of the schema
	for more := d.open(); more && !d.full(); more = d.more() {
		start := d.i
		k, raw, escaped := d.member(s, next)
		if k < 0 {
			d.unknown(s, &unknown, start, raw, escaped)
			continue
		}
		f := &s.fields[k]
		next = k + 1
		if seen[k/64]>>(k%64)&1 != 0 {
			d.fail(start, "duplicate property "+quoteClipped(f.name))
			d.skip()
			continue
		}
		seen[k/64] |= 1 << (k % 64)
		to, _ := f.at(a, true)
		d.value(f.node, to)
	}
	d.depth--
	for w, required := range s.required {
		if missing := required &^ seen[w]; missing != 0 {
			d.missing(s, at, w, missing)
		}
		if absent := s.defaults[w] &^ seen[w]; absent != 0 {
			d.setDefaults(s, a, w, absent)
		}
	}
}

// member passes a member's name and returns which field has it, or -1.
func (d *decoder) member(s *structPlan, next int) (k int, raw []byte, escaped bool) {
	if next < len(s.fields) {
		q := s.fields[next].quoted
		if len(d.b)-d.i >= len(q) && string(d.b[d.i:d.i+len(q)]) == q {
			d.i += len(q)
			d.colon()
			return next, nil, false
		}
	}
	raw, escaped = d.name()
	return s.find(raw, escaped), raw, escaped
}

// find returns the index of the field with the name raw, or -1.
func (s *structPlan) find(raw []byte, escaped bool) int {
	if s.byName != nil {
		if escaped {
			raw = jsonwire.AppendUnquote(nil, raw)
		}
		if k, ok := s.byName[string(raw)]; ok {
			return k
		}
		return -1
	}
	for k := range s.fields {
		name := s.fields[k].name
		if !escaped && string(raw) == name || escaped && jsonwire.RawEqual(raw, name) {
			return k
		}
	}
	return -1
}

// unknown handles a member that no field stands for.
func (d *decoder) unknown(s *structPlan, seen *unknownNames, start int, raw []byte, escaped bool) {
	if !s.lenient {
		d.fail(start, unknownProperty(raw, s.names))
		d.skip()
		return
	}
	var ok bool
	seen.names, ok = seen.set.add(d.b, seen.names, nameRange{start + 1, start + 1 + len(raw), escaped})
	if !ok {
		d.fail(start, duplicateProperty(raw))
		d.skip()
		return
	}
	d.checkedSkip()
}

// unknownNames is the ignored members of an object.
type unknownNames struct {
	set   nameSet
	names []nameRange
}

func (d *decoder) missing(s *structPlan, at, word int, set uint64) {
	for ; set != 0; set &= set - 1 {
		k := word*64 + bits.TrailingZeros64(set)
		d.fail(at, missingProperty(s.fields[k].name))
	}
}

// setDefaults decodes the defaults of absent members.
func (d *decoder) setDefaults(s *structPlan, a address, word int, set uint64) {
	for ; set != 0 && !d.full(); set &= set - 1 {
		f := &s.fields[word*64+bits.TrailingZeros64(set)]
		to, ok := f.at(a, false)
		if !ok {
			continue // its embedded struct is absent as a whole
		}
		in := decoder{cursor: cursor{b: f.defaultValue}, plan: d.plan}
		in.value(f.node, to)
	}
}

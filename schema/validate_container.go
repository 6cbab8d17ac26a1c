package schema

import (
	"fmt"

	"mcpwire/internal/jsonwire"
)

// object checks the members of the object at an offset, each once.
func (r *run) object(o *objectRule, at int) (end int, ok bool) {
	var small [4]uint64
	seen := small[:]
	if len(o.members) > 64*len(small) {
		seen = make([]uint64, (len(o.members)+63)/64)
	}
	ok = true
	count := 0
	c := cursor{b: r.b, i: at}
	for more := c.open(); more; more = c.more() {
		count++
		nameAt := c.i
		raw, escaped := c.name()
		known := -1
		if len(o.members) > 0 || len(o.patterns) > 0 {
			name := raw
			if escaped {
				name = jsonwire.AppendUnquote(nil, raw)
			}
			if known = o.member(name); known >= 0 {
				seen[known/64] |= 1 << (known % 64)
			}
		}
		if o.propName != nil && !r.propertyName(o.propName, nameAt, raw) {
			ok = false
		}
		valueEnd, valid := r.memberValue(o, known, nameAt, c.i)
		ok = ok && valid
		if !r.spend(1) || !ok && r.quiet > 0 {
			return unknownEnd, false
		}
		if valueEnd == unknownEnd {
			valueEnd = r.skip(c.i)
		}
		c.i = max(valueEnd, c.i)
	}
	if o.count != nil {
		if msg := o.count.check(count, "property", r.quiet > 0); msg != "" {
			ok = r.fail(at, msg)
		}
	}
	return c.i, r.presence(o, seen, at) && ok
}

// propertyName holds a member's name against propertyNames. A name in its quotes
// is a JSON string like any other.
func (r *run) propertyName(s *subschema, nameAt int, raw []byte) bool {
	if r.try(s, nameAt) {
		return true
	}
	if r.quiet > 0 || r.dead {
		return false
	}
	outer := r.found
	r.found = nil
	r.nested(s, nameAt)
	if r.limit {
		r.found = append(outer, r.found[len(r.found)-1])
		return false
	}
	r.dead = false
	msg := "property name " + quoteRaw(raw)
	if len(r.found) > 0 {
		msg += ": " + r.found[0].msg
	}
	r.found = outer
	return r.fail(nameAt, msg)
}

// memberValue holds a member's value against the schemas its name selects.
func (r *run) memberValue(o *objectRule, known, nameAt, at int) (end int, ok bool) {
	end, ok = unknownEnd, true
	selected := false
	if known >= 0 && o.members[known].schema != nil {
		selected = true
		end, ok = r.nested(o.members[known].schema, at)
	}
	if len(o.patterns) > 0 {
		c := cursor{b: r.b, i: nameAt}
		name, escaped := c.str()
		if escaped {
			name = jsonwire.AppendUnquote(nil, name)
		}
		for _, p := range o.patterns {
			if !r.spend((len(name) + 1) * p.cost) {
				return end, false
			}
			if p.re.Match(name) {
				selected = true
				e, valid := r.nested(p.schema, at)
				end, ok = max(end, e), ok && valid
			}
		}
	}
	if selected || o.others == nil {
		return end, ok
	}
	if o.others.never {
		if r.quiet > 0 || r.dead {
			return end, false
		}
		c := cursor{b: r.b, i: nameAt}
		raw, _ := c.str()
		return end, r.fail(nameAt, unknownProperty(raw, o.names))
	}
	return r.nested(o.others, at)
}

// presence checks what depends on which members there are.
func (r *run) presence(o *objectRule, seen []uint64, at int) bool {
	ok := true
	has := func(k int) bool { return seen[k/64]>>(k%64)&1 != 0 }
	for _, k := range o.required {
		if has(k) {
			continue
		}
		if r.quiet > 0 {
			return false
		}
		ok = r.fail(at, missingProperty(o.members[k].name))
	}
	for _, d := range o.needs {
		if !has(d.name) {
			continue
		}
		for _, k := range d.needs {
			if !has(k) {
				if r.quiet > 0 {
					return false
				}
				ok = r.fail(at, missingProperty(o.members[k].name)+", which "+quoteClipped(o.members[d.name].name)+" requires")
			}
		}
		if d.schema != nil {
			_, valid := r.nested(d.schema, at)
			if ok = ok && valid; !ok && r.quiet > 0 {
				return false
			}
		}
	}
	return ok
}

// array checks the elements of the array at an offset.
func (r *run) array(a *arrayRule, at int) (end int, ok bool) {
	ok = true
	count, matching := 0, 0
	c := cursor{b: r.b, i: at}
	for more := c.open(); more; more = c.more() {
		var s *subschema
		switch {
		case count < len(a.prefix):
			s = a.prefix[count]
		case a.items != nil && a.items.never:
			return unknownEnd, r.tooManyItems(a, c.i)
		default:
			s = a.items
		}
		itemEnd := unknownEnd
		if s != nil {
			var valid bool
			itemEnd, valid = r.nested(s, c.i)
			ok = ok && valid
		}
		if a.contains != nil && r.try(a.contains, c.i) {
			matching++
		}
		count++
		if !r.spend(1) || !ok && r.quiet > 0 {
			return unknownEnd, false
		}
		if itemEnd == unknownEnd {
			itemEnd = r.skip(c.i)
		}
		c.i = max(itemEnd, c.i)
	}
	if a.count != nil {
		if msg := a.count.check(count, "item", r.quiet > 0); msg != "" {
			ok = r.fail(at, msg)
		}
	}
	if a.contains != nil {
		if msg := a.found.check(matching, "item", r.quiet > 0); msg != "" {
			ok = r.fail(at, msg+" matching the schema of contains")
		}
	}
	if a.unique && !r.unique(at, c.i) {
		ok = false
	}
	return c.i, ok
}

func (r *run) tooManyItems(a *arrayRule, at int) bool {
	if len(a.prefix) == 0 {
		return r.fail(at, "no items are allowed here")
	}
	return r.fail(at, fmt.Sprintf("expected at most %s", plural(len(a.prefix), "item")))
}

func (r *run) unique(at, end int) bool {
	i, j, equal := equalItems(r.b[at:end], func(bytes int) bool { return r.spend(1 + bytes/8) })
	if r.dead {
		return false
	}
	if equal {
		return r.quiet == 0 && r.fail(at, itemsEqual(i, j))
	}
	return true
}

package schema

import (
	"fmt"

	"mcpwire/internal/jsonwire"
)

// object checks the members of the object at an offset, each once.
func (v *validation) object(o *objectRule, at int) (end int, ok bool) {
	var small [4]uint64
	seen := small[:]
	if len(o.members) > 64*len(small) {
		seen = make([]uint64, (len(o.members)+63)/64)
	}
	ok = true
	count := 0
	c := cursor{b: v.b, i: at}
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
		if o.propName != nil && !v.propertyName(o.propName, nameAt, raw) {
			ok = false
		}
		valueEnd, valid := v.memberValue(o, known, nameAt, c.i)
		ok = ok && valid
		if !v.spend(1) || !ok && v.muted > 0 {
			return endUnknown, false
		}
		if valueEnd == endUnknown {
			valueEnd = v.skip(c.i)
		}
		c.i = max(valueEnd, c.i)
	}
	if o.count != nil {
		if msg := o.count.check(count, "property", v.muted > 0); msg != "" {
			ok = v.fail(at, msg)
		}
	}
	return c.i, v.presence(o, seen, at) && ok
}

// propertyName holds a member's name against propertyNames. A name in its quotes
// is a JSON string like any other.
func (v *validation) propertyName(s *subschema, nameAt int, raw []byte) bool {
	if v.matches(s, nameAt) {
		return true
	}
	if v.muted > 0 || v.stopped {
		return false
	}
	outer := v.found
	v.found = nil
	v.evalNested(s, nameAt)
	if v.limit {
		v.found = append(outer, v.found[len(v.found)-1])
		return false
	}
	v.stopped = false
	msg := "property name " + quoteRaw(raw)
	if len(v.found) > 0 {
		msg += ": " + v.found[0].msg
	}
	v.found = outer
	return v.fail(nameAt, msg)
}

// memberValue holds a member's value against the schemas its name selects.
func (v *validation) memberValue(o *objectRule, known, nameAt, at int) (end int, ok bool) {
	end, ok = endUnknown, true
	selected := false
	if known >= 0 && o.members[known].schema != nil {
		selected = true
		end, ok = v.evalNested(o.members[known].schema, at)
	}
	if len(o.patterns) > 0 {
		c := cursor{b: v.b, i: nameAt}
		name, escaped := c.str()
		if escaped {
			name = jsonwire.AppendUnquote(nil, name)
		}
		for _, p := range o.patterns {
			if !v.spend((len(name) + 1) * p.cost) {
				return end, false
			}
			if p.re.Match(name) {
				selected = true
				e, valid := v.evalNested(p.schema, at)
				end, ok = max(end, e), ok && valid
			}
		}
	}
	if selected || o.additional == nil {
		return end, ok
	}
	if o.additional.never {
		if v.muted > 0 || v.stopped {
			return end, false
		}
		c := cursor{b: v.b, i: nameAt}
		raw, _ := c.str()
		return end, v.fail(nameAt, unknownProperty(raw, o.names))
	}
	return v.evalNested(o.additional, at)
}

// presence checks what depends on which members there are.
func (v *validation) presence(o *objectRule, seen []uint64, at int) bool {
	ok := true
	has := func(k int) bool { return seen[k/64]>>(k%64)&1 != 0 }
	for _, k := range o.required {
		if has(k) {
			continue
		}
		if v.muted > 0 {
			return false
		}
		ok = v.fail(at, missingProperty(o.members[k].name))
	}
	for _, d := range o.dependencies {
		if !has(d.name) {
			continue
		}
		for _, k := range d.required {
			if !has(k) {
				if v.muted > 0 {
					return false
				}
				ok = v.fail(at, missingProperty(o.members[k].name)+", which "+quoteClipped(o.members[d.name].name)+" requires")
			}
		}
		if d.schema != nil {
			_, valid := v.evalNested(d.schema, at)
			if ok = ok && valid; !ok && v.muted > 0 {
				return false
			}
		}
	}
	return ok
}

// array checks the elements of the array at an offset.
func (v *validation) array(a *arrayRule, at int) (end int, ok bool) {
	ok = true
	count, matching := 0, 0
	c := cursor{b: v.b, i: at}
	for more := c.open(); more; more = c.more() {
		var s *subschema
		switch {
		case count < len(a.prefix):
			s = a.prefix[count]
		case a.items != nil && a.items.never:
			return endUnknown, v.tooManyItems(a, c.i)
		default:
			s = a.items
		}
		itemEnd := endUnknown
		if s != nil {
			var valid bool
			itemEnd, valid = v.evalNested(s, c.i)
			ok = ok && valid
		}
		if a.contains != nil && v.matches(a.contains, c.i) {
			matching++
		}
		count++
		if !v.spend(1) || !ok && v.muted > 0 {
			return endUnknown, false
		}
		if itemEnd == endUnknown {
			itemEnd = v.skip(c.i)
		}
		c.i = max(itemEnd, c.i)
	}
	if a.count != nil {
		if msg := a.count.check(count, "item", v.muted > 0); msg != "" {
			ok = v.fail(at, msg)
		}
	}
	if a.contains != nil {
		if msg := a.matches.check(matching, "item", v.muted > 0); msg != "" {
			ok = v.fail(at, msg+" matching the schema of contains")
		}
	}
	if a.unique && !v.unique(at, c.i) {
		ok = false
	}
	return c.i, ok
}

func (v *validation) tooManyItems(a *arrayRule, at int) bool {
	if len(a.prefix) == 0 {
		return v.fail(at, "no items are allowed here")
	}
	return v.fail(at, fmt.Sprintf("expected at most %s", plural(len(a.prefix), "item")))
}

func (v *validation) unique(at, end int) bool {
	i, j, equal := equalItems(v.b[at:end], func(bytes int) bool { return v.spend(1 + bytes/8) })
	if v.stopped {
		return false
	}
	if equal {
		return v.muted == 0 && v.fail(at, itemsEqual(i, j))
	}
	return true
}

package main

import (
	"encoding/json"
	"slices"
	"strings"
)

// property adds a property of a schema to a type.
func (m *model) property(d *document, t *goType, path, name string, parent *schema) {
	s := parent.Properties[name]
	f := t.fields[name]
	if f == nil {
		f = &field{name: name, needed: map[rev]int{}}
		t.fields[name] = f
	}
	f.revs |= setOf(d.rev)
	if slices.Contains(parent.Required, name) {
		f.needed[d.rev]++
	}
	if path != "" {
		m.setOutcome(d.rev, path+"."+name, "field "+t.name+"."+name)
		path += "." + name
	}
	k := m.kindOf(t.name, name, s)
	if k.form == 0 || k.form == formList && k.elem == "" {
		k = m.inline(d, t.name, name, path, s)
	} else if path != "" {
		m.skipAll(d.rev, path, s, "JSON text of "+t.name+"."+name)
	}
	if k.form == formObject && s.open() {
		f.open |= setOf(d.rev)
	}
	if k.form == formObject && k.revisionTest == "" || k.revisionTest != "" && s.Properties["type"] != nil {
		f.closed |= setOf(d.rev)
	}
	m.unify(t, f, k)
	if s.Ref == "" {
		m.enum(d.rev, t.name+"."+name, "", s)
	}
}

// inline adds a type that is defined in place, and returns the kind of the property.
func (m *model) inline(d *document, typ, name, path string, s *schema) kind {
	where := typ + "." + name
	elem, ok := inlineTypes[where]
	if !ok {
		where = "*." + name
		elem, ok = inlineTypes[where]
	}
	if !ok {
		m.fail("%s.%s: a type in place, without a name", typ, name)
		return kind{form: formRaw}
	}
	m.use("inline", where)
	k := kind{form: formStruct, elem: elem}
	if s.Items != nil {
		k.form, s = formList, s.Items
	}
	if path == "" {
		path = where
	}
	m.merge(d, elem, path, s, true)
	return k
}

// unify makes one kind of what the revisions say.
func (m *model) unify(t *goType, f *field, k kind) {
	old := f.kind
	switch {
	case old.form == 0, old.form == formObject && (k.form == formStruct || k.form == formRaw):
		f.kind = k
	case old == k, k.form == formObject && (old.form == formStruct || old.form == formRaw):
	default:
		m.fail("%s.%s: %s in one revision, %s in another", t.name, f.name, old.goType(false), k.goType(false))
	}
}

// enum adds the values that a definition or a property may have. typ is the constants' type, if they have one.
func (m *model) enum(r rev, where, typ string, s *schema) {
	if same, ok := sameEnums[where]; ok {
		m.use("sameEnums", where)
		where = same
	}
	prefix, ok := enums[where]
	if s.Enum == nil {
		return
	}
	if !ok {
		m.fail("%s: an enum without constants", where)
		return
	}
	m.use("enums", where)
	e := m.enums[prefix]
	if e == nil {
		e = &enum{prefix: prefix, typ: typ, values: map[string]revs{}}
		m.enums[prefix] = e
	}
	for _, v := range s.Enum {
		e.values[v] |= setOf(r)
	}
}

// resolve works out what only all revisions together tell.
func (m *model) resolve(t *goType) {
	for name, f := range t.fields {
		where := t.name + "." + name
		switch f.kind.form {
		case formStruct:
			if inner := m.types[f.kind.elem]; inner != nil {
				inner.revs |= f.open
			}
		case formRaw:
			if f.closed != 0 {
				f.kind.revisionTest = "isObject"
			}
		case formConst:
			if err := json.Unmarshal([]byte(f.kind.text), &f.kind.text); err != nil {
				m.fail("%s: a constant that is no string", where)
			}
		}
		if allRevisions[where] != "" {
			m.use("everywhere", where)
			f.revs = t.revs
		}
	}
}

// required reports whether the property must be there in all revisions that have the type.
func (t *goType) required(f *field) bool {
	if optionalNames[f.name] && f.kind.form != formIntNull && f.kind.form != formConst || f.kind.pointer {
		return false
	}
	for r := range rev(len(dates)) {
		if t.revs.has(r) && (f.needed[r] == 0 || f.needed[r] != t.merged[r]) {
			return false
		}
	}
	return true
}

// condition is when the revision r has the field, if it is one that has the type; "" is always.
func (m *model) condition(t *goType, f *field) string {
	missing := t.revs &^ f.revs
	if missing == 0 {
		return ""
	}
	first, last := f.revs.first(), f.revs.last()
	var parts []string
	if missing.first() < first {
		parts = append(parts, "r.since("+first.ident()+")")
	}
	if missing.last() > last {
		parts = append(parts, "r.until("+last.ident()+")")
	}
	for r := first; r <= last; r++ {
		if missing.has(r) {
			m.fail("%s.%s: comes and goes", t.name, f.name)
		}
	}
	if len(parts) == 2 && first == last {
		return "r.is(" + first.ident() + ")"
	}
	return strings.Join(parts, " && ")
}

// sorted returns the fields in order.
func (t *goType) sorted() []*field {
	head, tail := firstProps, lastProps
	if order := orders[t.name]; order != nil {
		head, tail = order, nil
	}
	rank := func(f *field) int {
		if i := slices.Index(head, f.name); i >= 0 {
			return i - len(head)
		}
		return slices.Index(tail, f.name) + 1 // 0 if it is in neither
	}
	var all []*field
	for _, name := range sortedKeys(t.fields) {
		all = append(all, t.fields[name])
	}
	slices.SortStableFunc(all, func(a, b *field) int { return rank(a) - rank(b) })
	return all
}

// checkRules fails for each rule that no schema needs.
func (m *model) checkRules() {
	check := func(table string, keys []string) {
		for _, key := range keys {
			if !m.used[table+" "+key] {
				m.fail("rule %q of %s is not used", key, table)
			}
		}
	}
	check("skipped", sortedKeys(skipped))
	check("renamed", sortedKeys(renamed))
	check("enums", sortedKeys(enums))
	check("sameEnums", sortedKeys(sameEnums))
	check("refKinds", sortedKeys(refKinds))
	check("kinds", sortedKeys(kinds))
	check("pointers", sortedKeys(pointerFields))
	check("everywhere", sortedKeys(allRevisions))
	check("inline", sortedKeys(inlineTypes))
	check("added", sortedKeys(addedFields))
	for where := range lenientArrays {
		typ, name, _ := strings.Cut(where, ".")
		if t := m.types[typ]; t == nil || t.fields[name] == nil || !t.required(t.fields[name]) {
			m.fail("rule %q of lenient is not used", where)
		}
	}
	for _, name := range sortedKeys(valueTypes) {
		if m.types[name] == nil {
			m.fail("rule %q of byValue is not used", name)
		}
	}
	for name := range orders {
		if m.types[name] == nil {
			m.fail("rule %q of orders is not used", name)
		}
	}
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A model merges the schemas of all revisions.
type model struct {
	docs  []*document
	types map[string]*goType
	// enums is indexed by the prefix of the constants.
	enums map[string]*enum
	// outcomes records the treatment of each definition and property, by revision and name, such as
	// "Tool.inputSchema.type".
	outcomes map[rev]map[string]string
	used     map[string]bool
	errs     []error
}

// A goType is a struct.
type goType struct {
	name string
	// defs lists the definitions that it merges.
	defs []string
	revs revs
	// embed is an embedded struct, or "".
	embed  string
	fields map[string]*field
	// merged counts the merged definitions by revision.
	merged map[rev]int
}

// A field is a property of a goType.
type field struct {
	// name is the name on the wire.
	name string
	kind kind
	revs revs
	// open is the revisions in which it is an object with unknown members.
	open revs
	// closed is the revisions in which it must be an object, although others allow any value.
	closed revs
	// needed counts the definitions of a revision that require it.
	needed map[rev]int
}

// An enum is a set of values.
type enum struct {
	prefix, typ string
	values      map[string]revs
}

func newModel(docs []*document) *model {
	return &model{docs: docs, types: map[string]*goType{}, enums: map[string]*enum{}, outcomes: map[rev]map[string]string{}, used: map[string]bool{}}
}

func (m *model) fail(format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf(format, args...))
}

func (m *model) use(table, key string) { m.used[table+" "+key] = true }

func (m *model) setOutcome(r rev, part, outcome string) {
	if m.outcomes[r] == nil {
		m.outcomes[r] = map[string]string{}
	}
	if m.outcomes[r][part] == "" {
		m.outcomes[r][part] = outcome
	}
}

// build merges all definitions.
func (m *model) build() {
	for _, d := range m.docs {
		for _, name := range d.names() {
			m.define(d, name, d.def(name))
		}
	}
	for _, where := range sortedKeys(addedFields) {
		typ, name, _ := strings.Cut(where, ".")
		if t := m.types[typ]; t != nil && t.fields[name] == nil {
			m.use("added", where)
			t.fields[name] = &field{name: name, kind: addedFields[where].kind, revs: t.revs}
		}
	}
	for _, t := range m.types {
		m.resolve(t)
	}
}

// define dispatches a definition by its form.
func (m *model) define(d *document, name string, s *schema) {
	if reason := m.skip(name, s); reason != "" {
		m.setOutcome(d.rev, name, "skipped: "+reason)
		m.skipAll(d.rev, name, s, "skipped: "+reason)
		return
	}
	switch prefix := enums[name]; {
	case prefix != "":
		m.setOutcome(d.rev, name, "type "+name)
		m.enum(d.rev, name, s)
	case s.Properties["error"] != nil:
		m.errorEnvelope(d, name, s)
	case s.Properties["method"] != nil && s.Properties["method"].Const != nil:
		m.envelope(d, name, s)
	default:
		m.merge(d, m.typeName(name), name, s, true)
	}
}

// skip returns why a definition has no Go type, or "".
func (m *model) skip(name string, s *schema) string {
	if to, ok := renamed[name]; ok && s.Properties == nil {
		return "a union; see " + to
	}
	if s.AnyOf != nil && s.Properties == nil && m.isType(name) {
		return "a union, which is one type"
	}
	for pattern, reason := range skipped {
		if pattern == name || strings.HasPrefix(pattern, "*") && strings.HasSuffix(name, pattern[1:]) ||
			strings.HasSuffix(pattern, "*") && strings.HasPrefix(name, strings.TrimSuffix(pattern, "*")) {
			m.use("skipped", pattern)
			return reason
		}
	}
	return ""
}

// isType reports whether a definition is renamed to name.
func (m *model) isType(name string) bool {
	for _, to := range renamed {
		if to == name {
			return true
		}
	}
	return false
}

// skipAll records an outcome for all properties below a definition.
func (m *model) skipAll(r rev, path string, s *schema, outcome string) {
	for name, p := range s.Properties {
		m.setOutcome(r, path+"."+name, outcome)
		m.skipAll(r, path+"."+name, p, outcome)
	}
	for _, part := range slices.Concat(s.AllOf, s.AnyOf) {
		m.skipAll(r, path, part, outcome)
	}
	if s.Items != nil {
		m.skipAll(r, path, s.Items, outcome)
	}
	if s.Additional != nil {
		m.skipAll(r, path, &s.Additional.schema, outcome)
	}
}

func (m *model) typeName(def string) string {
	if to, ok := renamed[def]; ok {
		m.use("renamed", def)
		return to
	}
	return def
}

// envelope adds the params of a request or notification.
func (m *model) envelope(d *document, name string, s *schema) {
	m.setOutcome(d.rev, name, "jsonrpc.Message with method "+string(s.Properties["method"].Const))
	for _, p := range []string{"jsonrpc", "id", "method"} {
		if s.Properties[p] != nil {
			m.setOutcome(d.rev, name+"."+p, "jsonrpc.Message")
		}
	}
	params := s.Properties["params"]
	if params == nil {
		m.fail("%s: no params", name)
		return
	}
	typ := m.paramsType(name)
	m.setOutcome(d.rev, name+".params", "type "+typ)
	if params.Ref != "" {
		return
	}
	m.merge(d, typ, name+".params", params, true)
	m.merge(d, typ, "", d.baseParams(strings.HasSuffix(name, "Notification")), false)
}

// paramsType returns the type name of the params, from the definition of some revision or else from
// the envelope's name.
func (m *model) paramsType(name string) string {
	for _, d := range m.docs {
		if s := d.def(name); s != nil && s.Properties["params"].Ref != "" {
			return m.typeName(s.Properties["params"].def())
		}
	}
	return name + "Params"
}

// baseParams returns the members of all params. Inline definitions of params omit them.
func (d *document) baseParams(notification bool) *schema {
	name := "Request"
	if notification {
		name = "Notification"
	}
	if s := d.def(name + "Params"); s != nil {
		return s
	}
	return d.def(name).Properties["params"]
}

// errorEnvelope adds the data of an error response.
func (m *model) errorEnvelope(d *document, name string, s *schema) {
	m.setOutcome(d.rev, name, "jsonrpc.Error")
	for p := range s.Properties {
		m.setOutcome(d.rev, name+"."+p, "jsonrpc.Message")
	}
	for _, part := range s.Properties["error"].AllOf {
		if part.Properties["code"] != nil {
			m.setOutcome(d.rev, name+".error.code", "jsonrpc.Error")
		}
		if data := part.Properties["data"]; data != nil {
			typ := strings.TrimSuffix(name, "Error") + "Data"
			m.setOutcome(d.rev, name+".error.data", "type "+typ)
			m.merge(d, typ, name+".error.data", data, true)
		}
	}
}

// merge adds a revision's schema to a type. path is the location of the schema, or "" if its
// outcome is recorded elsewhere. whole is false for a part of a definition.
func (m *model) merge(d *document, typ, path string, s *schema, whole bool) {
	t := m.types[typ]
	if t == nil {
		t = &goType{name: typ, fields: map[string]*field{}, merged: map[rev]int{}}
		m.types[typ] = t
	}
	t.revs |= setOf(d.rev)
	if whole {
		t.merged[d.rev]++
		m.setOutcome(d.rev, path, "type "+typ)
		if def, _, _ := strings.Cut(path, "."); !slices.Contains(t.defs, def) {
			t.defs = append(t.defs, def)
		}
	}
	for _, part := range s.AllOf {
		switch ref := part.def(); {
		case ref == "":
			m.merge(d, typ, path, part, false)
		case ref == "Result" || ref == "NotificationParams":
			m.merge(d, typ, "", d.def(ref), false)
		default:
			t.embed = ref
		}
	}
	for _, name := range sortedKeys(s.Properties) {
		m.property(d, t, path, name, s)
	}
}

func (t *goType) String() string { return t.name }

// finish returns the collected errors, including unused rules.
func (m *model) finish() error {
	m.checkRules()
	return errors.Join(m.errs...)
}

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
	if e := enumType(t.name + "." + name); e != "" && k.form == formString {
		k.elem = e
	}
	m.unify(t, f, k)
	if s.Ref == "" {
		m.enum(d.rev, t.name+"."+name, s)
	}
}

// inline adds an inline type and returns the kind of the property.
func (m *model) inline(d *document, typ, name, path string, s *schema) kind {
	where := typ + "." + name
	elem, ok := inlineTypes[where]
	if !ok {
		where = "*." + name
		elem, ok = inlineTypes[where]
	}
	if !ok {
		m.fail("%s.%s: an inline type without a name", typ, name)
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

// unify merges the kind of a property in a revision with that of earlier ones.
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

// enumType returns the type of the values of a definition or a property, or "".
func enumType(where string) string {
	if same, ok := sameEnums[where]; ok {
		where = same
	}
	prefix := enums[where]
	if name, ok := enumTypes[prefix]; ok {
		return name
	}
	return prefix
}

// enum adds the values of a definition or a property.
func (m *model) enum(r rev, where string, s *schema) {
	typ := enumType(where)
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
	if _, ok := enumTypes[prefix]; ok {
		m.use("enumTypes", prefix)
	}
	e := m.enums[prefix]
	if e == nil {
		e = &enum{prefix: prefix, typ: typ, values: map[string]revs{}}
		m.enums[prefix] = e
	}
	for _, v := range s.Enum {
		e.values[v] |= setOf(r)
	}
}

// resolve derives the facts that depend on all revisions.
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
				m.fail("%s: a constant that is not a string", where)
			}
		}
		if allRevisions[where] != "" {
			m.use("everywhere", where)
			f.revs = t.revs
		}
	}
}

// required reports whether all revisions that have the type require the property.
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

// condition returns the Go condition under which the revision r, which has the type, has the field,
// or "" if always.
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
			m.fail("%s.%s: removed and added again", t.name, f.name)
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

// checkRules reports each unused rule as an error.
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
	check("stringTypes", sortedKeys(stringTypes))
	check("enumTypes", sortedKeys(enumTypes))
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

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A model is what all revisions say together.
type model struct {
	docs  []*document
	types map[string]*goType
	enums map[string]*enum // by the prefix of the constants
	// outcomes says what became of each definition and property, by revision and name, such as "Tool.inputSchema.type".
	outcomes map[rev]map[string]string
	used     map[string]bool
	errs     []error
}

// A goType is a struct.
type goType struct {
	name   string
	defs   []string // the definitions that it is made of
	revs   revs
	embed  string // an embedded struct
	fields map[string]*field
	merged map[rev]int // how many definitions of a revision
}

// A field is a property of a goType.
type field struct {
	name   string // on the wire
	kind   kind
	revs   revs
	open   revs        // where it is an object of which nothing is known
	closed revs        // where it is an object, though any value is allowed elsewhere
	needed map[rev]int // how many definitions of a revision need it
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

// define finds out what a definition is.
func (m *model) define(d *document, name string, s *schema) {
	if reason := m.skip(name, s); reason != "" {
		m.setOutcome(d.rev, name, "skipped: "+reason)
		m.skipAll(d.rev, name, s, "skipped: "+reason)
		return
	}
	switch prefix := enums[name]; {
	case prefix != "":
		m.setOutcome(d.rev, name, "type "+name)
		m.enum(d.rev, name, name, s)
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

// isType reports whether some definition is renamed to that name.
func (m *model) isType(name string) bool {
	for _, to := range renamed {
		if to == name {
			return true
		}
	}
	return false
}

// skipAll notes the same for all properties below a definition.
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

// envelope takes the params out of a request or notification.
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

// paramsType is the name of the params: as some revision has it, or made from the envelope's.
func (m *model) paramsType(name string) string {
	for _, d := range m.docs {
		if s := d.def(name); s != nil && s.Properties["params"].Ref != "" {
			return m.typeName(s.Properties["params"].def())
		}
	}
	return name + "Params"
}

// baseParams are what all params have. The definitions that give them in place leave it out.
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

// errorEnvelope takes the data out of an error response.
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

// merge adds what a revision's schema says to a type. path is where the schema stands, or "" if that is noted elsewhere. whole is false for what is
// only a part of a definition.
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

// finish returns what went wrong, unused rules included.
func (m *model) finish() error {
	m.checkRules()
	return errors.Join(m.errs...)
}

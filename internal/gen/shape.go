package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A shapeModel is what package internal/shape knows: the definitions of all revisions by the names that the specification gives them. Unlike model, it
// keeps unions apart and what each revision says of a member.
type shapeModel struct {
	docs     []*document
	defs     map[string]*shapeDef
	numbers  map[string]int // of defs, in order
	exprs    []string       // as Go text
	index    map[string]int
	messages map[string]*shapeMessage
	failures map[string]*shapeFailure
	extra    map[string]shapeAddition
	used     map[string]bool
	errs     []error
}

// A shapeAddition is what shapeadditions.json says of a revision.
type shapeAddition struct {
	Define map[string]*schema `json:"define"`
	Extend map[string]*schema `json:"extend"`
}

type shapeDef struct {
	name    string
	in      revs
	fields  map[string][]*shapeField
	aliases []shapeVariant
}

type shapeField struct {
	in, need revs
	expr     shapeExpr
}

type shapeVariant struct {
	in   revs
	expr shapeExpr
}

// A shapeExpr says what a value may be. It is comparable by its text.
type shapeExpr struct {
	kind             string // a constant of package shape without "Kind"
	def              string // of Named
	elem             *shapeExpr
	alts             []shapeExpr
	values           []string
	format           string
	minimum, maximum *int
	items            int
}

func newShapeModel(docs []*document) (*shapeModel, error) {
	m := &shapeModel{docs: docs, defs: map[string]*shapeDef{}, index: map[string]int{}, messages: map[string]*shapeMessage{},
		failures: map[string]*shapeFailure{}, used: map[string]bool{}}
	if err := json.Unmarshal(shapeAdditionsText, &m.extra); err != nil {
		return nil, fmt.Errorf("shapeadditions.json: %w", err)
	}
	for _, d := range docs {
		m.document(d)
	}
	for date := range m.extra {
		if !slices.Contains(dates, date) {
			m.fail("shapeadditions.json: no revision %s", date)
		}
	}
	for pattern := range unshaped {
		if !m.used[pattern] {
			m.fail("rule %q of unshaped is not used", pattern)
		}
	}
	for _, where := range fractionFields {
		if !m.used[where] {
			m.fail("rule %q of fractions is not used", where)
		}
	}
	for _, t := range m.defs {
		t.aliases = slices.DeleteFunc(t.aliases, func(v shapeVariant) bool { return v.in == 0 })
	}
	return m, errors.Join(m.errs...)
}

func (m *shapeModel) fail(format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf(format, args...))
}

// document adds what a revision says.
func (m *shapeModel) document(d *document) {
	all := maps.Clone(d.defs)
	for name, s := range d.added {
		if all[name] == nil {
			all[name] = s
		}
	}
	more := m.extra[dates[d.rev]]
	maps.Copy(all, more.Define)
	d = &document{rev: d.rev, defs: all}
	for _, name := range sortedKeys(all) {
		pattern, reason := unshapedReason(name)
		if reason == "" {
			m.define(d, name, all[name])
		}
		m.used[pattern] = true
	}
	m.methods(d)
	for _, name := range sortedKeys(more.Extend) {
		if m.defs[name] == nil || !m.defs[name].in.has(d.rev) {
			m.fail("shapeadditions.json: %s has no %s", dates[d.rev], name)
			continue
		}
		for i := range m.defs[name].aliases { // it is no longer just any object
			m.defs[name].aliases[i].in &^= setOf(d.rev)
		}
		m.object(d, name, more.Extend[name])
	}
}

func (m *shapeModel) def(d *document, name string) *shapeDef {
	t := m.defs[name]
	if t == nil {
		t = &shapeDef{name: name, fields: map[string][]*shapeField{}}
		m.defs[name] = t
	}
	t.in |= setOf(d.rev)
	return t
}

// define adds a definition.
func (m *shapeModel) define(d *document, name string, s *schema) {
	if len(s.Properties) > 0 || s.AllOf != nil {
		m.def(d, name)
		m.object(d, name, s)
		return
	}
	t := m.def(d, name)
	e := m.expr(d, name, s)
	for i := range t.aliases {
		if t.aliases[i].expr.text() == e.text() {
			t.aliases[i].in |= setOf(d.rev)
			return
		}
	}
	t.aliases = append(t.aliases, shapeVariant{setOf(d.rev), e})
}

// object adds the members of an object, and of all that it is made of.
func (m *shapeModel) object(d *document, name string, s *schema) {
	if s.Ref != "" {
		s = d.def(s.def())
	}
	for _, part := range s.AllOf {
		m.object(d, name, part)
	}
	for _, p := range sortedKeys(s.Properties) {
		m.field(d, name, p, m.expr(d, name+"."+p, s.Properties[p]), slices.Contains(s.Required, p))
	}
}

// field adds a member. A member that a revision describes twice needs to be there only if both say so, and the more exact description holds.
func (m *shapeModel) field(d *document, typ, name string, e shapeExpr, need bool) {
	t := m.def(d, typ)
	r := setOf(d.rev)
	for _, f := range t.fields[name] {
		if f.in&r == 0 {
			continue
		}
		if f.expr.text() != e.text() && !(e.kind == "Object" || f.expr.kind == "Object") && name != "_meta" {
			m.fail("%s: %s.%s is %s and %s", dates[d.rev], typ, name, f.expr.text(), e.text())
		}
		if f.expr.text() == e.text() || e.kind == "Object" {
			if !need {
				f.need &^= r
			}
			return
		}
		f.in &^= r
		f.need &^= r
	}
	t.fields[name] = slices.DeleteFunc(t.fields[name], func(f *shapeField) bool { return f.in == 0 })
	for _, f := range t.fields[name] {
		if f.expr.text() == e.text() {
			f.in |= r
			if need {
				f.need |= r
			}
			return
		}
	}
	f := &shapeField{in: r, expr: e}
	if need {
		f.need = r
	}
	t.fields[name] = append(t.fields[name], f)
}

// expr translates a schema. path is where it stands.
func (m *shapeModel) expr(d *document, path string, s *schema) shapeExpr {
	switch name := s.def(); name {
	case "":
	case "JSONValue":
		return shapeExpr{kind: "Any"}
	case "JSONObject":
		return shapeExpr{kind: "Object"}
	default:
		if d.def(name) == nil {
			m.fail("%s: %s: no %s", dates[d.rev], path, name)
		}
		return shapeExpr{kind: "Named", def: name}
	}
	switch {
	case s.AnyOf != nil:
		return m.union(d, path, s.AnyOf)
	case s.Const != nil:
		var text string
		if json.Unmarshal(s.Const, &text) != nil {
			m.fail("%s: %s: a constant that is no string", dates[d.rev], path)
		}
		return shapeExpr{kind: "Enum", values: []string{text}}
	case s.Enum != nil:
		return shapeExpr{kind: "Enum", values: s.Enum}
	case len(s.Type) > 1:
		var alts []*schema
		for _, name := range s.Type {
			alts = append(alts, &schema{Type: []string{name}})
		}
		return m.union(d, path, alts)
	case s.Type.is("array"):
		elem := shapeExpr{kind: "Any"}
		if s.Items != nil {
			elem = m.expr(d, path, s.Items)
		}
		return shapeExpr{kind: "Array", elem: &elem, items: s.MaxItems}
	case s.Type.is("object"):
		return m.objectExpr(d, path, s)
	case len(s.Type) == 1:
		return m.primitive(path, s)
	}
	return shapeExpr{kind: "Any"}
}

func (m *shapeModel) primitive(path string, s *schema) shapeExpr {
	name := s.Type[0]
	for _, where := range fractionFields {
		if name == "integer" && path == where {
			name = "number"
			m.used[where] = true
		}
	}
	return shapeExpr{kind: strings.ToUpper(name[:1]) + name[1:], format: s.Format, minimum: s.Minimum, maximum: s.Maximum}
}

func (m *shapeModel) union(d *document, path string, parts []*schema) shapeExpr {
	u := shapeExpr{kind: "Union"}
	for _, part := range parts {
		e := m.expr(d, path, part)
		if e.kind == "Union" {
			u.alts = append(u.alts, e.alts...)
		} else {
			u.alts = append(u.alts, e)
		}
	}
	return u
}

// objectExpr translates an object that stands in place. What it has gets a definition, by the name that later revisions have, or by where it stands.
func (m *shapeModel) objectExpr(d *document, path string, s *schema) shapeExpr {
	name := path
	switch _, last, _ := cutLast(path); {
	case last == "_meta" && len(s.Properties) > 0:
		name = "RequestMetaObject"
	case last == "_meta" && d.defs["MetaObject"] != nil:
		return shapeExpr{kind: "Named", def: "MetaObject"}
	case last == "annotations" && d.defs["Annotations"] == nil:
		name = "Annotations"
	}
	if len(s.Properties) > 0 {
		m.def(d, name)
		m.object(d, name, s)
		return shapeExpr{kind: "Named", def: name}
	}
	if s.Additional == nil || s.Additional.free() || s.Additional.def() == "JSONValue" {
		return shapeExpr{kind: "Object"}
	}
	elem := m.expr(d, path, &s.Additional.schema)
	return shapeExpr{kind: "Map", elem: &elem}
}

func cutLast(path string) (before, last string, found bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// text is the expression in a form that tells it from others.
func (e shapeExpr) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s(%s %s %d", e.kind, e.def, e.format, e.items)
	if e.elem != nil {
		b.WriteString(e.elem.text())
	}
	for _, alt := range e.alts {
		b.WriteString("|" + alt.text())
	}
	for _, v := range e.values {
		fmt.Fprintf(&b, " %q", v)
	}
	for _, limit := range []*int{e.minimum, e.maximum} {
		if limit != nil {
			fmt.Fprintf(&b, " %d", *limit)
		} else {
			b.WriteString(" -")
		}
	}
	return b.String() + ")"
}

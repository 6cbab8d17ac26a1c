package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A shapeModel holds the definitions of all revisions, by their names in the specification, for
// package internal/era/shape. Unlike model, it keeps unions and the revisions of a member apart.
type shapeModel struct {
	docs []*document
	defs map[string]*shapeDef
	// numbers maps the sorted names of defs to their indexes.
	numbers map[string]int
	// exprs holds the Go text of the expressions.
	exprs    []string
	index    map[string]int
	messages map[string]*shapeMessage
	failures map[string]*shapeFailure
	extra    map[string]shapeAddition
	used     map[string]bool
	errs     []error
}

// A shapeAddition is the part of shapeadditions.json for one revision.
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

// A shapeExpr describes the allowed values. Equal ones have equal text.
type shapeExpr struct {
	// kind is a constant of package shape without "Kind".
	kind string
	// def is the definition of a Named.
	def              string
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

// document adds the definitions of a revision.
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
		// It now has members, so the alias for any object ends.
		for i := range m.defs[name].aliases {
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

// object adds the members of an object and of its parts.
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

// field adds a member. If a revision describes a member twice, it is required only if both
// descriptions require it, and the more exact one is kept.
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

// expr translates a schema. path is its location.
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
			m.fail("%s: %s: a constant that is not a string", dates[d.rev], path)
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

// objectExpr translates an inline object. Its members become a definition, with the name in later
// revisions or else named by its location.
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

// text returns a text that identifies the expression.
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

// A shapeMessage merges the definitions of a method in all revisions.
type shapeMessage struct {
	name                                   string
	notification                           bool
	client, server, extension, input, bare revs
	params, results                        []shapeVariant
}

// A shapeFailure merges the definitions of an error in all revisions.
type shapeFailure struct {
	code string
	name string
	in   revs
	need bool
	data string
}

func (m *shapeModel) message(name string) *shapeMessage {
	if m.messages[name] == nil {
		m.messages[name] = &shapeMessage{name: name}
	}
	return m.messages[name]
}

// methods adds the messages of a revision.
func (m *shapeModel) methods(d *document) {
	r := setOf(d.rev)
	if old := d.def("JSONRPCError"); old != nil && d.def("Error") == nil {
		m.define(d, "Error", old.Properties["error"])
	}
	for _, name := range sortedKeys(d.defs) {
		s := d.defs[name]
		switch {
		case s.Properties["method"] != nil && s.Properties["method"].Const != nil && name != "ClientNotification":
			m.method(d, name, s)
		case s.Properties["error"] != nil && s.Properties["error"].AllOf != nil:
			m.failure(d, name, s.Properties["error"].AllOf[1])
		}
	}
	for union, set := range map[string]func(*shapeMessage){
		"ClientRequest":      func(msg *shapeMessage) { msg.client |= r },
		"ServerRequest":      func(msg *shapeMessage) { msg.server |= r },
		"ClientNotification": func(msg *shapeMessage) { msg.client |= r },
		"ServerNotification": func(msg *shapeMessage) { msg.server |= r },
	} {
		s := d.def(union)
		if s == nil {
			continue
		}
		parts := s.AnyOf
		if parts == nil {
			parts = []*schema{s}
		}
		for _, part := range parts {
			if part.Ref != "" {
				part = d.def(part.def())
			}
			set(m.message(constOf(part.Properties["method"])))
		}
	}
	for _, x := range shapeExtension {
		if d.def(x.params) == nil || d.def("ExtensionTask") == nil {
			continue
		}
		msg := m.message(x.name)
		msg.notification = x.notification
		msg.extension |= r
		if x.client {
			msg.client |= r
		}
		if x.server {
			msg.server |= r
		}
		msg.params = addVariant(msg.params, r, shapeExpr{kind: "Named", def: x.params})
		if x.result != "" {
			msg.results = addVariant(msg.results, r, shapeExpr{kind: "Named", def: x.result})
		}
	}
}

func constOf(s *schema) string {
	var text string
	// A value that is not a string leads to an error elsewhere.
	_ = json.Unmarshal(s.Const, &text)
	return text
}

// method adds an envelope.
func (m *shapeModel) method(d *document, name string, s *schema) {
	r := setOf(d.rev)
	msg := m.message(constOf(s.Properties["method"]))
	msg.notification = strings.HasSuffix(name, "Notification")
	if !slices.Contains(s.Required, "params") {
		msg.bare |= r
	}
	msg.params = addVariant(msg.params, r, shapeExpr{kind: "Named", def: m.paramsOf(d, name, s.Properties["params"])})
	if msg.notification {
		return
	}
	if slices.Contains(shapeInputs, name) && d.def("InputRequest") != nil {
		msg.input |= r
		m.def(d, name)
		m.field(d, name, "method", m.expr(d, name, s.Properties["method"]), true)
		m.field(d, name, "params", shapeExpr{kind: "Named", def: msg.params[len(msg.params)-1].expr.def}, msg.bare&r == 0)
	}
	result := strings.TrimSuffix(name, "Request") + "Result"
	if d.def(result) == nil {
		result = "EmptyResult"
	}
	msg.results = addVariant(msg.results, r, shapeExpr{kind: "Named", def: result})
	for _, other := range m.otherResults(d, name, s.Properties["params"]) {
		msg.results = addVariant(msg.results, r, shapeExpr{kind: "Named", def: other})
	}
}

// otherResults returns the results that may replace the usual one.
func (m *shapeModel) otherResults(d *document, name string, params *schema) (others []string) {
	if response := d.def(name[:len(name)-len("Request")] + "ResultResponse"); response != nil && response.Properties["result"].AnyOf != nil {
		for _, part := range response.Properties["result"].AnyOf {
			if part.def() == "InputRequiredResult" {
				others = append(others, part.def())
			}
		}
	}
	var parts []*schema
	if p := d.def(params.def()); p != nil {
		parts = []*schema{p}
		for _, alt := range p.AnyOf {
			parts = append(parts, d.def(alt.def()))
		}
	}
	if slices.ContainsFunc(parts, func(p *schema) bool { return p.Properties["task"] != nil }) {
		others = append(others, "CreateTaskResult")
	}
	if name == "CallToolRequest" && d.def("ExtensionCreateTaskResult") != nil {
		others = append(others, "ExtensionCreateTaskResult")
	}
	return others
}

// paramsOf returns the name of the definition of params. Inline params become a definition, with
// the members that all params have.
func (m *shapeModel) paramsOf(d *document, name string, s *schema) string {
	if s.Ref != "" {
		return s.def()
	}
	typ := shapeParams[name]
	for _, other := range m.docs {
		if e := other.def(name); typ == "" && e != nil && e.Properties["params"].Ref != "" {
			typ = e.Properties["params"].def()
		}
	}
	// Inline params differ from an existing definition.
	if typ == "" || d.defs[typ] != nil {
		typ = name + "Params"
	}
	if !m.extended(d, typ) {
		m.def(d, typ)
		m.object(d, typ, s)
		if s.Properties["_meta"] == nil {
			m.baseMeta(d, typ, name)
		}
	}
	return typ
}

// extended reports whether shapeadditions.json fully defines the type for the revision.
func (m *shapeModel) extended(d *document, typ string) bool {
	return m.extra[dates[d.rev]].Define[typ] != nil && d.def("ExtensionTask") != nil
}

// baseMeta adds to inline params the _meta that the revision defines for all params.
func (m *shapeModel) baseMeta(d *document, typ, envelope string) {
	base := d.baseParams(strings.HasSuffix(envelope, "Notification"))
	if base.Properties["_meta"] == nil {
		m.fail("%s: %s: no _meta", dates[d.rev], envelope)
		return
	}
	m.field(d, typ, "_meta", m.expr(d, typ+"._meta", base.Properties["_meta"]), slices.Contains(base.Required, "_meta"))
}

// failure adds an error with its data.
func (m *shapeModel) failure(d *document, name string, s *schema) {
	f := m.failures[name]
	if f == nil {
		f = &shapeFailure{name: name, code: string(s.Properties["code"].Const)}
		m.failures[name] = f
	}
	f.in |= setOf(d.rev)
	data := s.Properties["data"]
	if data == nil {
		return
	}
	f.need = slices.Contains(s.Required, "data")
	f.data = strings.TrimSuffix(name, "Error") + "Data"
	m.def(d, f.data)
	m.object(d, f.data, data)
}

func addVariant(all []shapeVariant, r revs, e shapeExpr) []shapeVariant {
	for i := range all {
		if all[i].expr.text() == e.text() {
			all[i].in |= r
			return all
		}
	}
	return append(all, shapeVariant{r, e})
}

// generateShape returns the files of package internal/era/shape by name.
func generateShape(spec string) (map[string][]byte, error) {
	docs, err := load(spec)
	if err != nil {
		return nil, err
	}
	m, err := newShapeModel(docs)
	if err != nil {
		return nil, err
	}
	return m.emit()
}

// emit writes the tables. Equal expressions are shared.
func (m *shapeModel) emit() (map[string][]byte, error) {
	m.numbers = map[string]int{}
	for i, name := range sortedKeys(m.defs) {
		m.numbers[name] = i
	}
	types, messages := &printer{}, &printer{}
	m.head(types)
	m.defTable(types)
	m.head(messages)
	m.messageTable(messages)
	m.failureTable(messages)
	exprs := &printer{}
	m.head(exprs)
	exprs.printf("// exprs are what values may be. The others point into it.")
	exprs.printf("var exprs = [...]expr{")
	for i, text := range m.exprs {
		exprs.printf("%d: {%s},", i, text)
	}
	exprs.printf("}")
	files := map[string][]byte{}
	for name, p := range map[string]*printer{"types": types, "messages": messages, "exprs": exprs} {
		text, err := p.source()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files["gen_"+name+".go"] = text
	}
	return files, nil
}

func (m *shapeModel) head(p *printer) {
	p.printf("// Code generated by tools/gen. DO NOT EDIT.")
	p.printf("//\n// From the schemas of these revisions (SHA-256). The bits of sets of revisions are in this order, the lowest first:\n//")
	for i, d := range m.docs {
		p.printf("//\t%s %s", dates[i], d.sum)
	}
	p.printf("\npackage shape\n")
}

func (m *shapeModel) defTable(p *printer) {
	p.printf("// defs are the definitions, by name.")
	p.printf("var defs = [...]def{")
	for i, name := range sortedKeys(m.defs) {
		t := m.defs[name]
		fmt.Fprintf(p, "%d: {name: %q, in: %#x", i, name, uint8(t.in))
		if len(t.fields) > 0 {
			p.printf(", fields: []field{")
			for _, f := range t.order() {
				for _, v := range t.fields[f] {
					p.printf("{%q, %#x, %#x, %d},", f, uint8(v.in), uint8(v.need), m.number(v.expr))
				}
			}
			p.WriteString("}")
		}
		if len(t.aliases) > 0 {
			fmt.Fprintf(p, ", aliases: %s", m.variants(t.aliases))
		}
		p.printf("},")
	}
	p.printf("}")
}

// order returns the names of the members in reading order.
func (t *shapeDef) order() []string {
	head, tail := firstProps, lastProps
	switch {
	case orders[t.name] != nil:
		head, tail = orders[t.name], nil
	case t.name == "RequestMetaObject": // has no Go type
		head, tail = []string{metaPrefix + "protocolVersion", metaPrefix + "clientCapabilities", metaPrefix + "clientInfo", metaPrefix + "logLevel", "progressToken"}, nil
	}
	rank := func(name string) int {
		if i := slices.Index(head, name); i >= 0 {
			return i - len(head)
		}
		return slices.Index(tail, name) + 1 // 0 if it is in neither
	}
	all := sortedKeys(t.fields)
	slices.SortStableFunc(all, func(a, b string) int { return rank(a) - rank(b) })
	return all
}

func (m *shapeModel) variants(all []shapeVariant) string {
	var b strings.Builder
	b.WriteString("[]variant{")
	for i, v := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "{%#x, %d}", uint8(v.in), m.number(v.expr))
	}
	return b.String() + "}"
}

func (m *shapeModel) messageTable(p *printer) {
	p.printf("// messages are the methods, by name.")
	p.printf("var messages = [...]message{")
	for _, name := range sortedKeys(m.messages) {
		msg := m.messages[name]
		fmt.Fprintf(p, "{name: %q, notification: %v", name, msg.notification)
		for _, set := range []struct {
			name string
			in   revs
		}{{"client", msg.client}, {"server", msg.server}, {"extension", msg.extension}, {"input", msg.input}, {"bare", msg.bare}} {
			if set.in != 0 {
				fmt.Fprintf(p, ", %s: %#x", set.name, uint8(set.in))
			}
		}
		fmt.Fprintf(p, ", params: %s", m.variants(msg.params))
		if len(msg.results) > 0 {
			fmt.Fprintf(p, ", results: %s", m.variants(msg.results))
		}
		p.printf("},")
	}
	p.printf("}\n")
}

func (m *shapeModel) failureTable(p *printer) {
	p.printf("// failures are the errors that have a shape of their own.")
	p.printf("var failures = [...]failure{")
	for _, name := range sortedKeys(m.failures) {
		f := m.failures[name]
		fmt.Fprintf(p, "{code: %s, in: %#x, name: %q, need: %v", f.code, uint8(f.in), name, f.need)
		if f.data != "" {
			fmt.Fprintf(p, ", data: %d, has: true", m.number(shapeExpr{kind: "Named", def: f.data}))
		}
		p.printf("},")
	}
	p.printf("}")
}

// number returns the index of an expression, and adds it if it is new.
func (m *shapeModel) number(e shapeExpr) int {
	key := e.text()
	if n, ok := m.index[key]; ok {
		return n
	}
	var b strings.Builder
	fmt.Fprintf(&b, "kind: kind%s", e.kind)
	if e.kind != "Named" {
		b.Reset()
		fmt.Fprintf(&b, "kind: Kind%s", e.kind)
	}
	switch {
	case e.elem != nil:
		fmt.Fprintf(&b, ", ref: %d", m.number(*e.elem))
	case e.kind == "Named":
		n, ok := m.numbers[e.def]
		if !ok {
			m.fail("no definition %s", e.def)
		}
		fmt.Fprintf(&b, ", ref: %d", n)
	case e.kind == "Union":
		var alts []string
		for _, alt := range e.alts {
			alts = append(alts, strconv.Itoa(m.number(alt)))
		}
		fmt.Fprintf(&b, ", alts: []uint16{%s}", strings.Join(alts, ", "))
		if tag := m.tag(e); tag != "" {
			fmt.Fprintf(&b, ", tag: %q", tag)
		}
	}
	if e.values != nil {
		fmt.Fprintf(&b, ", values: %#v", e.values)
	}
	if e.format != "" {
		fmt.Fprintf(&b, ", format: %q", e.format)
	}
	if e.minimum != nil {
		fmt.Fprintf(&b, ", min: %d, low: true", *e.minimum)
	}
	if e.maximum != nil {
		fmt.Fprintf(&b, ", max: %d, high: true", *e.maximum)
	}
	if e.items > 0 {
		fmt.Fprintf(&b, ", items: %d", e.items)
	}
	m.index[key] = len(m.exprs)
	m.exprs = append(m.exprs, b.String())
	return m.index[key]
}

// tag returns the member with a value that distinguishes the objects of a union, or "".
func (m *shapeModel) tag(u shapeExpr) string {
	for _, name := range []string{"type", "method", "mode"} {
		seen := map[string]bool{}
		for _, alt := range u.alts {
			if alt.kind != "Named" || len(m.defs[alt.def].aliases) > 0 {
				continue // an array of them
			}
			for _, f := range m.defs[alt.def].fields[name] {
				if len(f.expr.values) != 1 || seen[f.expr.values[0]] {
					seen = nil
					break
				}
				seen[f.expr.values[0]] = true
			}
			if seen == nil || len(m.defs[alt.def].fields[name]) == 0 {
				seen = nil
				break
			}
		}
		if len(seen) > 1 {
			return name
		}
	}
	return ""
}

// shapeAdditionsText lists additions to the schemas, by revision: definitions of the tasks
// extension with messages that differ from the Go types of additions.json, and members of _meta.
//
//go:embed shapeadditions.json
var shapeAdditionsText []byte

// unshaped lists the definitions without a shape, with the reason. A star matches any text.
var unshaped = map[string]string{
	"JSONRPC*":                   "an envelope, which package jsonrpc reads",
	"Client*":                    "a union of all messages; the method chooses, see shapeKeep",
	"Server*":                    "a union of all messages; the method chooses, see shapeKeep",
	"*ResultResponse":            "an envelope around a result",
	"*Error":                     "an error object; its data has a shape, see shapeErrors",
	"*Request":                   "an envelope around params; see shapeInputs",
	"*Notification":              "an envelope around params",
	"JSONValue":                  "any value: the schema leaves out null and fractions, which JSON has",
	"JSONObject":                 "any object",
	"JSONArray":                  "any array",
	"ResultType":                 "a string",
	"TaskAugmentedRequestParams": "a base of params that repeat it",
	"InputResponseRequestParams": "a base of params that repeat it",
	"ResourceRequestParams":      "a base of params that repeat it",
	"PaginatedResult":            "a base of results that repeat it",
	"CacheableResult":            "a base of results that repeat it",
	"BaseMetadata":               "a base of types that repeat it",
	"Annotated":                  "a base of types that repeat it",
	"Icons":                      "a base of types that repeat it",
	"ResourceContents":           "a base of types that repeat it",
}

// shapeKeep lists the definitions that match unshaped but have a shape.
var shapeKeep = map[string]bool{"ClientCapabilities": true, "ServerCapabilities": true, "InputRequest": true, "Error": true}

// shapeInputs lists the envelopes that are part of an input_required result.
var shapeInputs = []string{"CreateMessageRequest", "ElicitRequest", "ListRootsRequest"}

// shapeParams names params that an older revision defines inline and a later one as a union.
var shapeParams = map[string]string{"ElicitRequest": "ElicitRequestFormParams"}

// fractionFields lists the members that are integers in schema.json and numbers in schema.ts.
var fractionFields = []string{"ElicitResult.content"}

// shapeExtension lists the messages of the tasks extension.
var shapeExtension = []shapeMethod{
	{name: "tasks/get", params: "GetTaskRequestParams", result: "GetTaskResult", client: true},
	{name: "tasks/cancel", params: "CancelTaskRequestParams", result: "EmptyResult", client: true},
	{name: "tasks/update", params: "UpdateTaskRequestParams", result: "EmptyResult", client: true},
	{name: "notifications/tasks", params: "DetailedTask", notification: true, server: true},
}

// A shapeMethod describes a method of the extension.
type shapeMethod struct {
	name, params, result         string
	notification, client, server bool
}

// unshapedReason returns why a definition has no shape, or "", and the pattern that matches it.
func unshapedReason(name string) (pattern, reason string) {
	if shapeKeep[name] {
		return "", ""
	}
	for _, pattern := range slices.Sorted(maps.Keys(unshaped)) {
		before, after, star := strings.Cut(pattern, "*")
		if pattern == name || star && strings.HasPrefix(name, before) && strings.HasSuffix(name, after) && len(name) >= len(before)+len(after) {
			return pattern, unshaped[pattern]
		}
	}
	return "", ""
}

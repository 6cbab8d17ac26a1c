package main

import (
	"encoding/json"
	"slices"
	"strings"
)

// A shapeMessage is what all revisions say of a method.
type shapeMessage struct {
	name                                   string
	notification                           bool
	client, server, extension, input, bare revs
	params, results                        []shapeVariant
}

// A shapeFailure is what the revisions say of an error.
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
	_ = json.Unmarshal(s.Const, &text) // what is no string is no method, and leads to an error elsewhere
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

// otherResults are the results that may come in place of the usual one.
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

// paramsOf returns the name of the definition of params. Those that stand in place become one, with the members that all params have.
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
	if typ == "" || d.defs[typ] != nil { // what stands in place though there is a definition differs from it
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

// extended reports whether shapeadditions.json defines the type for the revision, and with all that it has.
func (m *shapeModel) extended(d *document, typ string) bool {
	return m.extra[dates[d.rev]].Define[typ] != nil && d.def("ExtensionTask") != nil
}

// baseMeta gives params that stand in place the _meta that the revision gives to all.
func (m *shapeModel) baseMeta(d *document, typ, envelope string) {
	base := d.baseParams(strings.HasSuffix(envelope, "Notification"))
	if base.Properties["_meta"] == nil {
		m.fail("%s: %s: no _meta", dates[d.rev], envelope)
		return
	}
	m.field(d, typ, "_meta", m.expr(d, typ+"._meta", base.Properties["_meta"]), slices.Contains(base.Required, "_meta"))
}

// failure adds an error whose data has a shape.
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

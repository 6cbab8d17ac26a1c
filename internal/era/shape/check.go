package shape

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/json/decimal"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

// Check returns how a message differs from its shape in the revision. It returns at most
// MaxFindings, in the order of the message, and takes time linear in the length of the body. It
// returns nil for an unknown revision or method.
//
// For shapes the pages of the specification take precedence over its schemas, for example
// https://modelcontextprotocol.io/specification/2026-07-28/basic.
func Check(rev mcp.Revision, m Message) []Finding {
	if !slices.Contains(mcp.Revisions(), rev) {
		return nil
	}
	c := &checker{rev: rev}
	msg := lookup(m.Method)
	switch m.Kind {
	case Request, Notification:
		if msg != nil && c.method(msg, m) {
			c.params(msg, m.Body)
		}
	case Result:
		c.bodyName = "the result"
		if msg != nil {
			c.bodyName = "the result of " + msg.name
		}
		if c.valid(m.Body) {
			c.result(msg, m.Body)
		}
	case ErrorObject:
		c.bodyName = "an error"
		if c.valid(m.Body) {
			c.errorObject(m.Body)
		}
	}
	return c.findings
}

// CheckType returns how a value differs from a type with a name of the specification, such as
// "Tool". ok is false if the revision does not have the type.
func CheckType(rev mcp.Revision, name string, value []byte) (findings []Finding, ok bool) {
	n, found := defIndex(name)
	if !found || !defs[n].in.has(rev) {
		return nil, false
	}
	c := &checker{rev: rev, bodyName: name}
	if c.valid(value) {
		c.definition(value, n, nil)
	}
	return c.findings, true
}

// A checker collects the findings of one message.
type checker struct {
	rev mcp.Revision
	// bodyName describes the body in messages.
	bodyName string
	findings []Finding
}

func (c *checker) full() bool { return len(c.findings) >= MaxFindings }

func (c *checker) report(at *path, code Code, typ, message string) {
	if !c.full() {
		c.findings = append(c.findings, Finding{Pointer: at.pointer(), Code: code, Message: message, Type: typ})
	}
}

// valid reports if the body is valid JSON, which the other methods require.
func (c *checker) valid(body []byte) bool {
	if err := jsonwire.Valid(body, 0); err != nil {
		c.report(nil, Malformed, "", c.bodyName+": "+err.Error())
		return false
	}
	return true
}

// method checks that the revision has the method and that the sender may send it. It reports if the
// shape of the params is known.
func (c *checker) method(msg *message, m Message) bool {
	if senders := msg.client | msg.server; !senders.has(c.rev) {
		message := c.rev.String() + " has no " + msg.name + ": it is of " + revisionList(senders.list())
		if msg.input.has(c.rev) {
			message = msg.name + " is not a request of " + c.rev.String() + ": there it is part of an input_required result"
		}
		c.report(nil, NotInRevision, "", message)
		return false
	}
	if msg.notification != (m.Kind == Notification) {
		is, not := "a request", "a notification, which has no id"
		if msg.notification {
			is, not = "a notification", "a request with an id"
		}
		c.report(nil, WrongKind, "", msg.name+" is "+is+", but was sent as "+not)
	}
	switch {
	case m.Dir == ToServer && !msg.client.has(c.rev):
		c.report(nil, WrongDirection, "", msg.name+" is for servers, but a client sent it")
	case m.Dir == ToClient && !msg.server.has(c.rev):
		c.report(nil, WrongDirection, "", msg.name+" is for clients, but a server sent it")
	}
	return true
}

func (c *checker) params(msg *message, body []byte) {
	e, ok := c.pick(msg.params)
	if !ok {
		return
	}
	c.bodyName = "params of " + msg.name
	typ := defs[exprs[e].ref].name
	if body == nil {
		if !msg.bare.has(c.rev) {
			c.report(nil, Missing, typ, `"params" is missing: `+msg.name+" requires it")
		}
		return
	}
	if c.valid(body) {
		c.value(body, e, nil, typ)
	}
}

// pick returns the first variant that the revision has.
func (c *checker) pick(all []variant) (ref uint16, ok bool) {
	for _, v := range all {
		if v.in.has(c.rev) {
			return v.is, true
		}
	}
	return 0, false
}

// result checks a result against the type for the method and the resultType.
func (c *checker) result(msg *message, body []byte) {
	name := "Result"
	var others []string
	if msg != nil {
		for _, v := range msg.results {
			if v.in.has(c.rev) {
				others = append(others, defs[exprs[v.is].ref].name)
			}
		}
	}
	if len(others) > 0 {
		name = others[0]
	}
	text, isString := jsonwire.String(member(body, "resultType"))
	switch {
	case c.rev.Modern() && isString && text == string(mcp.ResultTypeInputRequired):
		name = "InputRequiredResult"
	case c.rev.Modern() && isString && text == string(mcp.ResultTypeTask):
		switch {
		case slices.Contains(others, "ExtensionCreateTaskResult"):
			name = "ExtensionCreateTaskResult"
		case msg == nil || msg.extension == 0:
			return
		}
	case c.rev.Modern() && isString && text != string(mcp.ResultTypeComplete):
		return // of an extension
	case slices.Contains(others, "CreateTaskResult") && member(body, "task") != nil && !c.hasRequired(name, body):
		name = "CreateTaskResult"
	}
	n, _ := defIndex(name)
	c.definition(body, n, nil)
	if name == "InputRequiredResult" && isObject(body) && member(body, "inputRequests") == nil && member(body, "requestState") == nil {
		c.report(nil, Missing, name, `"inputRequests" and "requestState" are missing: `+name+" requires one of them")
	}
}

// hasRequired reports if an object has a required member of a type.
func (c *checker) hasRequired(name string, body []byte) bool {
	n, _ := defIndex(name)
	return slices.ContainsFunc(defs[n].fields, func(f field) bool { return f.need.has(c.rev) && member(body, f.name) != nil })
}

// errorObject checks an error object, and its data if the code defines it.
func (c *checker) errorObject(body []byte) {
	n, _ := defIndex("Error")
	c.definition(body, n, nil)
	code, err := strconv.Atoi(string(member(body, "code")))
	if err != nil {
		return
	}
	for i := range failures {
		f := &failures[i]
		if f.code != code || !f.in.has(c.rev) || !f.has {
			continue
		}
		data := member(body, "data")
		switch {
		case data != nil:
			c.value(data, f.data, &path{key: "data", named: true}, f.name)
		case f.need:
			c.report(nil, Missing, f.name, `"data" is missing: error `+strconv.Itoa(code)+" requires it")
		}
	}
}

// member returns the value of a member, or nil. Of duplicates it returns the last.
func member(obj []byte, name string) (value []byte) {
	if !isObject(obj) {
		return nil
	}
	members := jsonwire.ObjectMembers(obj)
	for members.Next() {
		if members.KeyIs(name) {
			value = members.Value()
		}
	}
	return value
}

// A Kind is a kind of values.
type Kind uint8

// The kinds.
const (
	KindAny Kind = iota
	KindNull
	KindBoolean
	KindInteger
	KindNumber
	KindString
	KindArray
	// KindObject is an object with fields, or any object.
	KindObject
	// KindMap is an object with arbitrary member names.
	KindMap
	// KindEnum is one of several strings.
	KindEnum
	KindUnion
	kindNamed
)

// jsonKind returns the kind of a JSON text. It returns KindNumber for all numbers.
func jsonKind(text []byte) Kind {
	text = trim(text)
	if len(text) == 0 {
		return KindAny
	}
	switch text[0] {
	case '{':
		return KindObject
	case '[':
		return KindArray
	case '"':
		return KindString
	case 't', 'f':
		return KindBoolean
	case 'n':
		return KindNull
	}
	return KindNumber
}

func trim(text []byte) []byte { return bytes.Trim(text, " \t\r\n") }

func isObject(text []byte) bool { return jsonKind(text) == KindObject }

// value checks a value against an expression. typ is the type that contains it.
func (c *checker) value(text []byte, ref uint16, at *path, typ string) {
	if c.full() {
		return
	}
	e := &exprs[ref]
	if e.kind == kindNamed {
		c.definition(text, int(e.ref), at)
		return
	}
	if e.kind == KindUnion {
		c.union(text, e, at, typ)
		return
	}
	text = trim(text)
	if !allows(e, text) {
		c.wrongType(text, e, at, typ)
		return
	}
	switch e.kind {
	case KindString:
		c.format(text, e.format, at, typ)
	case KindInteger, KindNumber:
		c.bounds(text, e, at, typ)
	case KindEnum:
		c.enum(text, e.values, at, typ)
	case KindArray:
		c.array(text, e, at, typ)
	case KindMap:
		members := jsonwire.ObjectMembers(text)
		for members.Next() && !c.full() {
			c.value(members.Value(), e.ref, &path{parent: at, key: members.KeyString(), named: true}, typ)
		}
	}
}

// definition checks a value against a definition.
func (c *checker) definition(text []byte, n int, at *path) {
	t := &defs[n]
	if ref, ok := c.pick(t.aliases); ok {
		c.value(text, ref, at, t.name)
		return
	}
	if !isObject(text) {
		c.report(at, WrongType, t.name, c.subject(at)+c.verb(at)+kindText(text)+", but must be an object: "+t.name)
		return
	}
	var seen uint64
	members := jsonwire.ObjectMembers(text)
	for members.Next() && !c.full() {
		i := c.fieldOf(t, &members)
		if i < 0 {
			continue
		}
		here := &path{parent: at, key: t.fields[i].name, named: true}
		if seen&(1<<i) != 0 {
			c.report(here, Duplicate, t.name, strconv.Quote(here.key)+" appears twice")
			continue
		}
		seen |= 1 << i
		c.value(members.Value(), t.fields[i].is, here, t.name)
	}
	for i := range t.fields {
		if f := &t.fields[i]; f.need.has(c.rev) && seen&(1<<i) == 0 {
			c.report(at, Missing, t.name, strconv.Quote(f.name)+" is missing: "+c.neededBy(at, t.name))
		}
	}
}

// fieldOf returns the index of the field for a member, or -1.
func (c *checker) fieldOf(t *def, m *jsonwire.Members) int {
	return slices.IndexFunc(t.fields, func(f field) bool { return f.in.has(c.rev) && m.KeyIs(f.name) })
}

// subject describes a value at the beginning of a message.
func (c *checker) subject(at *path) string {
	switch {
	case at == nil:
		return c.bodyName
	case at.named:
		return clip.Quote(at.key, maxQuoted)
	}
	list := at
	for list != nil && !list.named {
		list = list.parent
	}
	if list == nil {
		return "element " + strconv.Itoa(at.index)
	}
	return "element " + strconv.Itoa(at.index) + " of " + clip.Quote(list.key, maxQuoted)
}

// verb returns the verb after a subject.
func (c *checker) verb(at *path) string {
	if at == nil && strings.HasPrefix(c.bodyName, "params") {
		return " are "
	}
	return " is "
}

// neededBy describes what needs a missing member.
func (c *checker) neededBy(at *path, typ string) string {
	switch {
	case at == nil && strings.HasPrefix(c.bodyName, "params"):
		return c.bodyName + " require it"
	case at == nil:
		return c.bodyName + " requires it"
	case typ == "RequestMetaObject":
		return "_meta of every request requires it"
	}
	return typ + " requires it"
}

func (c *checker) wrongType(text []byte, e *expr, at *path, typ string) {
	is := kindText(text)
	if e.kind == KindInteger && jsonKind(text) == KindNumber {
		is = "a number with a fraction"
	}
	c.report(at, WrongType, typ, c.subject(at)+c.verb(at)+is+", but must be "+describe(e))
}

// allows reports if the expression allows the JSON type of the text. It does not handle unions and
// named expressions.
func allows(e *expr, text []byte) bool {
	kind := jsonKind(text)
	switch e.kind {
	case KindAny:
		return true
	case KindInteger:
		// 1, 1.0 and 1e3 are integers, see
		// https://json-schema.org/draft/2020-12/json-schema-core#section-4.2.3.
		return kind == KindNumber && decimal.Parse(text).IsInteger()
	case KindEnum:
		return kind == KindString
	case KindMap:
		return kind == KindObject
	}
	return kind == e.kind
}

func (c *checker) array(text []byte, e *expr, at *path, typ string) {
	n := 0
	elements := jsonwire.ArrayElements(text)
	for elements.Next() && !c.full() {
		c.value(elements.Value(), e.ref, &path{parent: at, index: n}, typ)
		n++
	}
	if e.items > 0 && n > int(e.items) {
		c.report(at, BadValue, typ, c.subject(at)+" has more than "+strconv.Itoa(int(e.items))+" elements")
	}
}

func (c *checker) bounds(text []byte, e *expr, at *path, typ string) {
	if !e.low && !e.high {
		return
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil && v == 0 {
		return // not possible for a number
	}
	switch {
	case e.low && v < float64(e.min) && !e.high:
		c.report(at, BadValue, typ, c.subject(at)+c.verb(at)+clip.String(text, 40)+", but must be at least "+strconv.Itoa(int(e.min)))
	case e.low && v < float64(e.min), e.high && v > float64(e.max):
		c.report(at, BadValue, typ, c.subject(at)+c.verb(at)+clip.String(text, 40)+", but must be from "+strconv.Itoa(int(e.min))+" to "+strconv.Itoa(int(e.max)))
	}
}

func (c *checker) enum(text []byte, values []string, at *path, typ string) {
	raw := text[1 : len(text)-1]
	if !slices.ContainsFunc(values, func(v string) bool { return jsonwire.RawEqual(raw, v) }) {
		c.report(at, BadValue, typ, c.subject(at)+c.verb(at)+clip.Quote(jsonwire.UnquoteString(raw), maxQuoted)+", but must be "+quotedWords(values))
	}
}

// quotedWords lists strings in words.
func quotedWords(values []string) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = strconv.Quote(v)
	}
	return joinWords(all, "or")
}

// kindText describes the kind of a JSON text in words.
func kindText(text []byte) string {
	return kindWords[jsonKind(text)]
}

var kindWords = [...]string{KindAny: "nothing", KindNull: "null", KindBoolean: "a boolean", KindInteger: "an integer", KindNumber: "a number", KindString: "a string",
	KindArray: "an array", KindObject: "an object", KindMap: "an object"}

// describe describes an expression in words.
func describe(e *expr) string {
	switch e.kind {
	case KindEnum:
		return quotedWords(e.values)
	case kindNamed:
		return defs[e.ref].name
	case KindUnion:
		var all []string
		for _, alt := range e.alts {
			all = append(all, describe(&exprs[alt]))
		}
		return joinWords(all, "or")
	}
	return kindWords[e.kind]
}

// union checks a value against alternatives. It considers those with the JSON type of the value.
// For objects, the tag selects the alternative. Without a tag, any match suffices; if none matches,
// it reports the findings of the closest.
func (c *checker) union(text []byte, e *expr, at *path, typ string) {
	var fitting []uint16
	for _, alt := range e.alts {
		if c.mayBe(alt, text) {
			fitting = append(fitting, alt)
		}
	}
	switch {
	case len(fitting) == 0:
		c.wrongType(text, e, at, typ)
	case len(fitting) == 1 && e.tag == "":
		c.value(text, fitting[0], at, typ)
	case isObject(text) && e.tag != "":
		c.tagged(text, e, fitting, at, typ)
	case len(fitting) == 1:
		c.value(text, fitting[0], at, typ)
	default:
		c.closest(text, fitting, at, typ)
	}
}

// mayBe reports if the expression allows the JSON type of the text.
func (c *checker) mayBe(ref uint16, text []byte) bool {
	e := &exprs[ref]
	switch e.kind {
	case kindNamed:
		t := &defs[e.ref]
		if alias, ok := c.pick(t.aliases); ok {
			return c.mayBe(alias, text)
		}
		return isObject(text)
	case KindUnion:
		return slices.ContainsFunc(e.alts, func(alt uint16) bool { return c.mayBe(alt, text) })
	}
	return allows(e, trim(text))
}

// tagged checks an object against the alternative that its tag selects.
func (c *checker) tagged(text []byte, e *expr, fitting []uint16, at *path, typ string) {
	tag := member(text, e.tag)
	here := &path{parent: at, key: e.tag, named: true}
	if tag != nil && jsonKind(tag) != KindString {
		c.report(here, WrongType, typ, strconv.Quote(e.tag)+" is "+kindText(tag)+", but must be a string")
		return
	}
	var known []string
	for _, alt := range fitting {
		f := c.tagField(alt, e.tag)
		if f == nil {
			continue
		}
		value := exprs[f.is].values[0]
		if tag == nil && !f.need.has(c.rev) || tag != nil && jsonwire.RawEqual(tag[1:len(tag)-1], value) {
			c.value(text, alt, at, typ)
			return
		}
		known = append(known, value)
	}
	if tag == nil {
		c.report(at, Missing, typ, strconv.Quote(e.tag)+" is missing: it says which of "+strings.ReplaceAll(quotedWords(known), " or ", " and ")+" this is")
		return
	}
	value := jsonwire.UnquoteString(tag[1 : len(tag)-1])
	if e.tag == "method" && lookup(value) == nil {
		return // of an extension
	}
	is, must := strconv.Quote(e.tag)+" is "+clip.Quote(value, maxQuoted), ", but must be "+quotedWords(known)
	if has := c.otherRevisions(e, value); has != 0 {
		c.report(here, NotInRevision, typ, is+", which is of "+revisionList(has.list())+must+" in "+c.rev.String())
		return
	}
	c.report(here, BadValue, typ, is+must)
}

// tagField returns the tag's field in an alternative, or nil.
func (c *checker) tagField(ref uint16, tag string) *field {
	if exprs[ref].kind != kindNamed {
		return nil
	}
	t := &defs[exprs[ref].ref]
	i := slices.IndexFunc(t.fields, func(f field) bool { return f.name == tag && len(exprs[f.is].values) == 1 })
	if i < 0 {
		return nil
	}
	return &t.fields[i]
}

// otherRevisions returns the revisions whose union has the tag value. It returns 0 if this revision
// has a type for it.
func (c *checker) otherRevisions(u *expr, value string) (has revs) {
	for i := range exprs {
		other := &exprs[i]
		if other.tag != u.tag || !slices.ContainsFunc(other.alts, func(alt uint16) bool { return slices.Contains(u.alts, alt) }) {
			continue
		}
		for _, alt := range other.alts {
			if f := c.tagField(alt, u.tag); f != nil && exprs[f.is].values[0] == value {
				has |= defs[exprs[alt].ref].in
			}
		}
	}
	if has.has(c.rev) {
		return 0
	}
	return has
}

// closest checks a value against alternatives without a tag.
func (c *checker) closest(text []byte, fitting []uint16, at *path, typ string) {
	var best []Finding
	most := 0
	var names []string
	for _, alt := range fitting {
		trial := &checker{rev: c.rev, bodyName: c.bodyName}
		trial.value(text, alt, at, typ)
		if len(trial.findings) == 0 {
			return
		}
		names = append(names, describe(&exprs[alt]))
		score := c.score(text, alt)
		if score > most || score == most && best != nil && len(trial.findings) < len(best) {
			best, most = trial.findings, score
		}
	}
	if best == nil {
		c.report(at, BadValue, typ, c.subject(at)+c.verb(at)+"none of "+joinWords(names, "and"))
		return
	}
	for _, p := range best {
		if !c.full() {
			c.findings = append(c.findings, p)
		}
	}
}

// score rates how much an object resembles a type, by its required members. Members with a fixed
// value count more.
func (c *checker) score(text []byte, ref uint16) (score int) {
	if exprs[ref].kind != kindNamed || !isObject(text) {
		return 0
	}
	for _, f := range defs[exprs[ref].ref].fields {
		if !f.need.has(c.rev) {
			continue
		}
		value := member(text, f.name)
		switch fixed := exprs[f.is].values; {
		case value == nil:
		case len(fixed) != 1:
			score++
		case jsonKind(value) == KindString && jsonwire.RawEqual(value[1:len(value)-1], fixed[0]):
			score += 3
		default:
			score -= 3
		}
	}
	return score
}

// format checks the text of a string. A URI needs a scheme and must not contain spaces or control
// characters; readers do not need the rest of RFC 3986. Base64 (RFC 4648) needs the standard
// alphabet and padding, because decoders reject others.
func (c *checker) format(text []byte, format string, at *path, typ string) {
	if format != "uri" && format != "byte" {
		return
	}
	raw := text[1 : len(text)-1]
	if bytes.IndexByte(raw, '\\') >= 0 {
		raw = jsonwire.AppendUnquote(nil, raw)
	}
	switch {
	case format == "uri" && !isURI(raw):
		c.report(at, BadFormat, typ, c.subject(at)+c.verb(at)+clip.Quote(raw, maxQuoted)+", but must be a URI: a scheme, a colon, and no spaces")
	case format == "byte" && !isBase64(raw):
		c.report(at, BadFormat, typ, c.subject(at)+" must be base64 in the standard alphabet, with padding")
	}
}

func isURI(s []byte) bool {
	for i, b := range s {
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		switch {
		case b == ':' && i > 0:
			return bytes.IndexFunc(s[i:], func(r rune) bool { return r <= ' ' || r == 0x7f }) < 0
		case letter, i > 0 && (b >= '0' && b <= '9' || b == '+' || b == '-' || b == '.'):
		default:
			return false
		}
	}
	return false
}

func isBase64(s []byte) bool {
	n, padding := 0, 0
	for _, b := range s {
		switch {
		case b == '\n' || b == '\r': // decoders ignore line breaks
			continue
		case b == '=':
			padding++
		case padding > 0:
			return false
		case b|0x20 >= 'a' && b|0x20 <= 'z' || b >= '0' && b <= '9' || b == '+' || b == '/':
		default:
			return false
		}
		n++
	}
	return n%4 == 0 && padding <= 2
}

package shape

import (
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
)

// A Kind says what a value may be.
type Kind uint8

// The kinds. The first ones are JSON's own.
const (
	KindAny Kind = iota
	KindNull
	KindBoolean
	KindInteger
	KindNumber
	KindString
	KindArray
	KindObject // with fields, or any object
	KindMap    // an object with members of any name
	KindEnum   // one of some strings
	KindUnion
	kindNamed
)

// jsonKind returns what a JSON text is, KindNumber for numbers of any kind.
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

func trim(text []byte) []byte {
	for len(text) > 0 && strings.IndexByte(" \t\r\n", text[0]) >= 0 {
		text = text[1:]
	}
	for len(text) > 0 && strings.IndexByte(" \t\r\n", text[len(text)-1]) >= 0 {
		text = text[:len(text)-1]
	}
	return text
}

func isObject(text []byte) bool { return jsonKind(text) == KindObject }

// value checks a value against an expression. typ is the type that it is part of.
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
		c.report(at, WrongType, t.name, c.subject(at)+c.verb(at)+kindText(text)+", and must be an object: "+t.name)
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
			c.report(here, Duplicate, t.name, strconv.Quote(here.key)+" stands twice")
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

// fieldOf returns the number of the field that the revision has by the member's name, or -1.
func (c *checker) fieldOf(t *def, m *jsonwire.Members) int {
	return slices.IndexFunc(t.fields, func(f field) bool { return f.in.has(c.rev) && m.KeyIs(f.name) })
}

// subject names a value at the beginning of a message.
func (c *checker) subject(at *path) string {
	switch {
	case at == nil:
		return c.bodyName
	case at.named:
		return quote(at.key)
	}
	list := at
	for list != nil && !list.named {
		list = list.parent
	}
	if list == nil {
		return "element " + strconv.Itoa(at.index)
	}
	return "element " + strconv.Itoa(at.index) + " of " + quote(list.key)
}

// verb is the verb behind a subject.
func (c *checker) verb(at *path) string {
	if at == nil && strings.HasPrefix(c.bodyName, "params") {
		return " are "
	}
	return " is "
}

// neededBy says who needs what is missing.
func (c *checker) neededBy(at *path, typ string) string {
	switch {
	case at == nil && strings.HasPrefix(c.bodyName, "params"):
		return c.bodyName + " need it"
	case at == nil:
		return c.bodyName + " needs it"
	case typ == "RequestMetaObject":
		return "_meta of every request needs it"
	}
	return typ + " needs it"
}

func (c *checker) wrongType(text []byte, e *expr, at *path, typ string) {
	is := kindText(text)
	if e.kind == KindInteger && jsonKind(text) == KindNumber {
		is = "a number with a fraction"
	}
	c.report(at, WrongType, typ, c.subject(at)+c.verb(at)+is+", and must be "+describe(e))
}

// allows reports whether the text's JSON type is one that the expression allows. It is not for unions and named ones.
func allows(e *expr, text []byte) bool {
	kind := jsonKind(text)
	switch e.kind {
	case KindAny:
		return true
	case KindInteger:
		return kind == KindNumber && isInteger(text)
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
		return // it is a number, so this cannot be
	}
	switch {
	case e.low && v < float64(e.min) && !e.high:
		c.report(at, BadValue, typ, c.subject(at)+c.verb(at)+clip(string(text), 40)+", and must be at least "+strconv.Itoa(int(e.min)))
	case e.low && v < float64(e.min), e.high && v > float64(e.max):
		c.report(at, BadValue, typ, c.subject(at)+c.verb(at)+clip(string(text), 40)+", and must be from "+strconv.Itoa(int(e.min))+" to "+strconv.Itoa(int(e.max)))
	}
}

func (c *checker) enum(text []byte, values []string, at *path, typ string) {
	raw := text[1 : len(text)-1]
	if !slices.ContainsFunc(values, func(v string) bool { return jsonwire.RawEqual(raw, v) }) {
		c.report(at, BadValue, typ, c.subject(at)+c.verb(at)+quote(jsonwire.UnquoteString(raw))+", and must be "+quotedWords(values))
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

// kindText says in words what a JSON text is.
func kindText(text []byte) string {
	return kindWords[jsonKind(text)]
}

var kindWords = [...]string{KindAny: "nothing", KindNull: "null", KindBoolean: "a boolean", KindInteger: "an integer", KindNumber: "a number", KindString: "a string",
	KindArray: "an array", KindObject: "an object", KindMap: "an object"}

// describe says in words what an expression allows.
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

package shape

import (
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
)

// union checks a value against alternatives. By its JSON type most are out of the question; of objects the tag names the right one; if there is no tag,
// any that fits will do, and if none does, the problems are those of the one that comes closest.
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

// mayBe reports whether the text's JSON type is one that the expression allows.
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

// tagged checks an object against the alternative that its tag names.
func (c *checker) tagged(text []byte, e *expr, fitting []uint16, at *path, typ string) {
	tag := member(text, e.tag)
	here := &path{parent: at, key: e.tag, named: true}
	if tag != nil && jsonKind(tag) != KindString {
		c.report(here, WrongType, typ, strconv.Quote(e.tag)+" is "+kindText(tag)+", and must be a string")
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
		return // an extension's
	}
	is, must := strconv.Quote(e.tag)+" is "+quote(value), ", and must be "+quotedWords(known)
	if has := c.otherRevisions(e, value); has != 0 {
		c.report(here, NotInRevision, typ, is+", which is of "+revisionList(has.list())+must+" in "+c.rev.String())
		if n := len(c.findings); c.findings[n-1].Code == NotInRevision {
			c.findings[n-1].Has = has.list()
		}
		return
	}
	c.report(here, BadValue, typ, is+must)
}

// tagField returns the field of an alternative by which it is known, or nil.
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

// otherRevisions returns the revisions in which such a union has the value of the tag, if this one has no type for it at all.
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

// score says how much an object looks like a type: by the members that it needs, and more by those whose value is fixed.
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

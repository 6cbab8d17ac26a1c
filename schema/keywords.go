package schema

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strings"

	"mcpwire/internal/jsonwire"
)

// Bounds of compiled patterns, in instructions.
const (
	maxPatternSize  = 10_000  // of each: matching takes up to that many steps for each byte
	maxPatternsSize = 200_000 // of all in a schema: an instruction takes some 100 bytes, and less than one byte of text
)

// dialect is the one draft compiled here.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// keywords reads the members of one schema object into s. Those that only mean
// something together wait for finish.
type keywords struct {
	c   *compiler
	s   *subschema
	loc string

	arr         arrayRule
	hasArr      bool
	minContains int
	maxContains int
}

// read compiles one keyword.
func (k *keywords) read(name string, raw []byte) error {
	switch name {
	case "$schema", "$id", "$anchor", "$dynamicAnchor", "$ref", "$defs":
		return k.core(name, raw)
	case "type", "enum", "const":
		return k.any(name, raw)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return k.number(name, raw)
	case "minLength", "maxLength", "pattern":
		return k.string(name, raw)
	case "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
		"minProperties", "maxProperties", "dependentRequired", "dependentSchemas":
		return k.object(name, raw)
	case "prefixItems", "items", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems":
		k.hasArr = true
		return k.array(name, raw)
	case "allOf", "anyOf", "oneOf", "not", "if", "then", "else":
		return k.applicators(name, raw)
	case "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef", "$recursiveAnchor", "$vocabulary", "dependencies":
		return k.unsupported(name, "this keyword is not compiled here")
	}
	return nil // an annotation, or unknown
}

func (k *keywords) unsupported(name, detail string) error {
	return &unsupportedError{k.loc, name, detail}
}

func (k *keywords) invalid(name, want string, raw []byte) error {
	return invalid(k.loc, name, "expected %s, got %s", want, gotAt(raw, 0))
}

// text returns the value of a keyword that is a string.
func (k *keywords) text(name string, raw []byte) (string, error) {
	if raw[0] != '"' {
		return "", k.invalid(name, "a string", raw)
	}
	return jsonwire.UnquoteString(raw[1 : len(raw)-1]), nil
}

// size returns the value of a keyword that counts something.
func (k *keywords) size(name string, raw []byte) (int, error) {
	if typeOf(raw[0]) == typeFloat {
		if d := parseDecimal(raw); d.isInteger() && !d.neg {
			if n, ok := d.uint64(); ok && n <= math.MaxInt32 {
				return int(n), nil
			}
			return math.MaxInt32, nil // nothing in memory is longer
		}
	}
	return 0, k.invalid(name, "an integer of 0 or more", raw)
}

func (k *keywords) core(name string, raw []byte) error {
	if name == "$defs" {
		return k.childMap(name, raw, func(string, *subschema) error { return nil })
	}
	v, err := k.text(name, raw)
	if err != nil {
		return err
	}
	switch name {
	case "$schema":
		if strings.TrimSuffix(v, "#") != dialect {
			return k.unsupported(name, quoteClipped(v)+" is another dialect than "+dialect)
		}
	case "$id":
		if k.loc != "" {
			return k.unsupported(name, "only the root may have an id here")
		}
		k.c.base = strings.TrimSuffix(v, "#")
	case "$anchor", "$dynamicAnchor":
		if k.c.anchors[v] != nil && k.c.anchors[v] != k.s {
			return invalid(k.loc, name, "%s is defined twice", quoteClipped(v))
		}
		k.c.anchors[v] = k.s
	case "$ref":
		k.ensureApplicators()
		k.c.refs = append(k.c.refs, pendingRef{k.s, v})
	}
	return nil
}

func (k *keywords) ensureApplicators() *applicators {
	if k.s.applicators == nil {
		k.s.applicators = &applicators{}
	}
	return k.s.applicators
}

func (k *keywords) any(name string, raw []byte) error {
	if name == "type" {
		return k.types(raw)
	}
	texts := []string{string(raw)}
	if name == "enum" {
		if raw[0] != '[' {
			return k.invalid(name, "an array", raw)
		}
		texts = nil
		for e := jsonwire.ArrayElements(raw); e.Next(); {
			texts = append(texts, string(e.Value()))
		}
		k.s.enum = newEnum(texts)
		return nil
	}
	k.s.constant = newEnum(texts)
	return nil
}

func (k *keywords) types(raw []byte) error {
	list := [][]byte{raw}
	if raw[0] == '[' {
		list = nil
		for e := jsonwire.ArrayElements(raw); e.Next(); {
			list = append(list, e.Value())
		}
	}
	for _, raw := range list {
		v, err := k.text("type", raw)
		if err != nil {
			return err
		}
		var t typeSet
		for i, name := range typeNames {
			if name == v {
				t = 1 << i
			}
		}
		if t == 0 {
			return invalid(k.loc, "type", "unknown type %s; known are %s", quoteClipped(v), listNames(typeNames[:]))
		}
		if k.s.types&t != 0 {
			return invalid(k.loc, "type", "%s is listed twice", quoteClipped(v))
		}
		k.s.types |= t
	}
	if k.s.types == 0 {
		return k.invalid("type", "at least one type", raw)
	}
	return nil
}

func (k *keywords) number(name string, raw []byte) error {
	if typeOf(raw[0]) != typeFloat {
		return k.invalid(name, "a number", raw)
	}
	if k.s.num == nil {
		k.s.num = &numberRule{}
	}
	if name != "multipleOf" {
		k.s.num.addBound(name, string(raw))
		return nil
	}
	d := parseDecimal(raw)
	if d.sign() <= 0 {
		return k.invalid(name, "a number greater than 0", raw)
	}
	if d.size() > maxDivisorDigits {
		return invalid(k.loc, name, "more than %d digits", maxDivisorDigits)
	}
	k.s.num.setMultiple(string(raw))
	return nil
}

func (k *keywords) string(name string, raw []byte) error {
	if k.s.str == nil {
		k.s.str = &stringRule{max: -1}
	}
	if name != "pattern" {
		return k.bound(name, "minLength", raw, &k.s.str.min, &k.s.str.max)
	}
	v, err := k.text(name, raw)
	if err != nil {
		return err
	}
	k.s.str.source = v
	k.s.str.pattern, k.s.strCost, err = k.pattern(name, v)
	return err
}

// bound reads a keyword that is either lower or its upper counterpart.
func (k *keywords) bound(name, lower string, raw []byte, minimum, maximum *int) error {
	n, err := k.size(name, raw)
	if name == lower {
		*minimum = n
	} else {
		*maximum = n
	}
	return err
}

// pattern compiles a regular expression and estimates what it costs to match.
func (k *keywords) pattern(name, source string) (re *regexp.Regexp, cost int, err error) {
	expr := goPattern(source)
	if re, err = regexp.Compile(expr); err != nil {
		return nil, 0, k.unsupported(name, fmt.Sprintf("%s is not a regular expression that Go can match: %s", quoteClipped(source), clipError(err)))
	}
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, 0, k.unsupported(name, clipError(err))
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, 0, k.unsupported(name, clipError(err))
	}
	if len(prog.Inst) > maxPatternSize {
		return nil, 0, invalid(k.loc, name, "%s is too large to match in bounded time", quoteClipped(source))
	}
	if k.c.patterns += len(prog.Inst); k.c.patterns > maxPatternsSize {
		return nil, 0, invalid(k.loc, name, "with %s, the patterns of the schema are too large together", quoteClipped(source))
	}
	return re, 1 + len(prog.Inst)/8, nil
}

func (k *keywords) applicators(name string, raw []byte) (err error) {
	p := k.ensureApplicators()
	switch name {
	case "allOf":
		p.all, err = k.children(name, raw)
	case "anyOf":
		p.any, err = k.children(name, raw)
	case "oneOf":
		p.one, err = k.children(name, raw)
	case "not":
		p.not, err = k.child(raw, name)
	case "if":
		p.cond, err = k.child(raw, name)
	case "then":
		p.then, err = k.child(raw, name)
	case "else":
		p.els, err = k.child(raw, name)
	}
	return err
}

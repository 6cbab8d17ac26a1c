package fullschema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
)

// A problem is one reason why a value is invalid.
type problem struct {
	// pointer is the JSON pointer to the part of the value.
	pointer, message string
	// branches are the problems of each alternative, if none matches.
	branches [][]*problem
}

// first returns the problem, or the first one of its alternatives.
func (p *problem) first() *problem {
	for p.branches != nil {
		p = p.branches[0][0]
	}
	return p
}

// An evaluation is the state of validating one value against one schema.
type evaluation struct {
	node *node
	// up is the evaluation that contains this one.
	up *evaluation
	// same reports whether up is about the same value.
	same bool
	// pointer is the JSON pointer to the value.
	pointer  string
	problems []*problem

	// names are the evaluated properties, items counts the evaluated items from the first one, and
	// matched are others that were evaluated.
	names   map[string]bool
	items   int
	matched map[int]bool
}

// validate returns the problems of a decoded value.
func (n *node) validate(v any) []*problem {
	e := &evaluation{node: n}
	e.run(v)
	return e.problems
}

func (e *evaluation) run(v any) {
	for up := e; up.same; {
		if up = up.up; up.node == e.node {
			e.fail("the schema applies itself to the same value endlessly")
			return
		}
	}
	for _, r := range e.node.rules {
		r(e, v)
	}
}

func (e *evaluation) fail(format string, args ...any) {
	e.problems = append(e.problems, &problem{pointer: e.pointer, message: fmt.Sprintf(format, args...)})
}

// try evaluates the same value against another schema, without consequences.
func (e *evaluation) try(n *node, v any) *evaluation {
	tried := &evaluation{node: n, up: e, same: true, pointer: e.pointer}
	tried.run(v)
	return tried
}

// apply evaluates the same value against another schema, which must hold too.
func (e *evaluation) apply(n *node, v any) {
	tried := e.try(n, v)
	e.problems = append(e.problems, tried.problems...)
	if tried.problems == nil {
		e.merge(tried)
	}
}

// merge takes over what another evaluation of the same value evaluated.
func (e *evaluation) merge(other *evaluation) {
	for name := range other.names {
		e.named(name)
	}
	e.items = max(e.items, other.items)
	for i := range other.matched {
		e.contained(i)
	}
}

func (e *evaluation) named(name string) {
	sparse.Set(&e.names, name, true)
}

func (e *evaluation) contained(i int) {
	sparse.Set(&e.matched, i, true)
}

// within evaluates a part of the value.
func (e *evaluation) within(token string, n *node, v any) *evaluation {
	part := &evaluation{node: n, up: e, pointer: e.pointer + pointer(token)}
	part.run(v)
	return part
}

func (e *evaluation) accepts(token string, n *node, v any) bool {
	return e.within(token, n, v).problems == nil
}

// item evaluates an item of an array.
func (e *evaluation) item(i int, n *node, v any) {
	e.problems = append(e.problems, e.within(strconv.Itoa(i), n, v).problems...)
}

// property evaluates a property of an object.
func (e *evaluation) property(name string, n *node, v any) {
	e.named(name)
	e.problems = append(e.problems, e.within(name, n, v).problems...)
}

// name evaluates the name of a property. Its problems are those of the object.
func (e *evaluation) name(n *node, name string) {
	part := &evaluation{node: n, up: e, pointer: e.pointer}
	part.run(name)
	e.problems = append(e.problems, part.problems...)
}

// alternatives evaluates anyOf and, if one is set, oneOf.
func (e *evaluation) alternatives(nodes []*node, v any, one bool) {
	var branches [][]*problem
	matched := -1
	for i, n := range nodes {
		tried := e.try(n, v)
		switch {
		case tried.problems != nil:
			branches = append(branches, tried.problems)
			continue
		case one && matched >= 0:
			e.fail("'oneOf' failed, subschemas %d, %d matched", matched, i)
			return
		}
		matched = i
		e.merge(tried)
	}
	if matched < 0 {
		e.problems = append(e.problems, &problem{pointer: e.pointer, branches: branches})
	}
}

// pointer returns a JSON pointer.
func pointer(tokens ...string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(jsonpointer.Escape(t))
	}
	return b.String()
}

// typeOf returns the type of a decoded value.
func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

func isScalar(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return false
	}
	return true
}

// rational returns a number exactly. The exponents of all numbers are limited.
func rational(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		return new(big.Rat)
	}
	return r
}

func isInteger(v any) bool {
	n, ok := v.(json.Number)
	return ok && rational(n).IsInt()
}

// canonical returns the same text for equal values.
func canonical(v any) string { return string(appendCanonical(nil, v)) }

func appendCanonical(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case json.Number:
		return append(dst, rational(v).RatString()...)
	case string:
		return jsonwire.AppendQuote(dst, v)
	case []any:
		dst = append(dst, '[')
		for _, e := range v {
			dst = append(appendCanonical(dst, e), ',')
		}
		return append(dst, ']')
	case map[string]any:
		dst = append(dst, '{')
		for _, name := range sortedNames(v) {
			dst = append(jsonwire.AppendQuote(dst, name), ':')
			dst = append(appendCanonical(dst, v[name]), ',')
		}
		return append(dst, '}')
	}
	return dst
}

// show returns a scalar for a message.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "'" + strings.ReplaceAll(clip.String(v, maxShown), "'", `\'`) + "'"
	}
	return fmt.Sprint(v)
}

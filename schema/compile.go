package schema

import (
	"fmt"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
)

// unsupportedError is about a schema that may be right but needs an engine.
type unsupportedError struct {
	loc, keyword, detail string
}

func (e *unsupportedError) Error() string {
	return fmt.Sprintf("schema: #%s: %s: %s; compile with a full engine (package schema/fullschema) or write the schema without it", e.loc, e.keyword, e.detail)
}

// invalid is the error for a schema that no engine could make sense of.
func invalid(loc, keyword, format string, args ...any) error {
	return fmt.Errorf("schema: #%s: %s: %s", loc, keyword, fmt.Sprintf(format, args...))
}

// compiler compiles one schema document.
type compiler struct {
	text    []byte // the document, compact
	base    string // $id of the root
	subs    map[string]*subschema
	anchors map[string]*subschema
	refs    []pendingRef

	patterns int // instructions of all compiled so far
}

// pendingRef is a $ref whose target may not be compiled yet.
type pendingRef struct {
	from *subschema
	ref  string
}

func compileSchema(text []byte) (*subschema, error) {
	c := &compiler{text: text, subs: map[string]*subschema{}, anchors: map[string]*subschema{}}
	if err := knownDialect(text); err != nil {
		return nil, err
	}
	root, err := c.schema(text, "")
	if err != nil {
		return nil, err
	}
	for len(c.refs) > 0 { // resolving may compile more
		p := c.refs[0]
		c.refs = c.refs[1:]
		if p.from.applicators.ref, err = c.resolve(p); err != nil {
			return nil, err
		}
	}
	if s := c.findCycle(); s != nil {
		return nil, invalid(s.loc, "$ref", "the schema applies itself to the same value without end")
	}
	return root, nil
}

// knownDialect looks at $schema before anything else: keywords mean other things in other dialects.
func knownDialect(text []byte) error {
	if text[0] != '{' {
		return nil
	}
	for m := jsonwire.ObjectMembers(text); m.Next(); {
		if raw := m.Value(); m.KeyIs("$schema") && raw[0] == '"' {
			k := &keywords{}
			return k.core("$schema", raw)
		}
	}
	return nil
}

// schema compiles the schema with the text raw at a location. Compiling the
// same location again returns the same subschema.
func (c *compiler) schema(raw []byte, loc string) (*subschema, error) {
	if s, ok := c.subs[loc]; ok {
		return s, nil
	}
	s := &subschema{loc: loc}
	c.subs[loc] = s
	switch raw[0] {
	case 't':
		return s, nil
	case 'f':
		s.never = true
		return s, nil
	case '{':
	default:
		return nil, invalid(loc, "schema", "expected an object or a boolean, got %s", gotAt(raw, 0))
	}
	k := &keywords{c: c, s: s, loc: loc, minContains: 1, maxContains: -1}
	for m := jsonwire.ObjectMembers(raw); m.Next(); {
		if err := k.read(m.KeyString(), m.Value()); err != nil {
			return nil, err
		}
	}
	k.finish()
	return s, nil
}

// child compiles a schema that is the value of a keyword.
func (k *keywords) child(raw []byte, path ...string) (*subschema, error) {
	loc := k.loc
	for _, p := range path {
		loc += "/" + strings.ReplaceAll(strings.ReplaceAll(p, "~", "~0"), "/", "~1")
	}
	return k.c.schema(raw, loc)
}

// children compiles a non-empty array of schemas.
func (k *keywords) children(name string, raw []byte) (list []*subschema, err error) {
	if raw[0] != '[' || len(raw) == 2 {
		return nil, invalid(k.loc, name, "expected an array of schemas with at least one, got %s", gotAt(raw, 0))
	}
	for e := jsonwire.ArrayElements(raw); e.Next(); {
		s, err := k.child(e.Value(), name, strconv.Itoa(len(list)))
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// childMap compiles an object of schemas.
func (k *keywords) childMap(name string, raw []byte, each func(name string, s *subschema) error) error {
	if raw[0] != '{' {
		return invalid(k.loc, name, "expected an object of schemas, got %s", gotAt(raw, 0))
	}
	for m := jsonwire.ObjectMembers(raw); m.Next(); {
		key := m.KeyString()
		s, err := k.child(m.Value(), name, key)
		if err != nil {
			return err
		}
		if err := each(key, s); err != nil {
			return err
		}
	}
	return nil
}

// resolve finds the target of a $ref within the document.
func (c *compiler) resolve(p pendingRef) (*subschema, error) {
	doc, fragment, _ := strings.Cut(p.ref, "#")
	if doc != "" && doc != c.base {
		return nil, &unsupportedError{p.from.loc, "$ref", fmt.Sprintf("%s is outside this document, and nothing is fetched", quoteClipped(p.ref))}
	}
	fragment, ok := percentDecode(fragment)
	if !ok {
		return nil, invalid(p.from.loc, "$ref", "%s has a malformed fragment", quoteClipped(p.ref))
	}
	if fragment != "" && fragment[0] != '/' {
		if s := c.anchors[fragment]; s != nil {
			return s, nil
		}
		return nil, invalid(p.from.loc, "$ref", "there is no $anchor %s", quoteClipped(fragment))
	}
	if s, ok := c.subs[fragment]; ok {
		return s, nil
	}
	raw := pointerValue(c.text, fragment)
	if raw == nil {
		return nil, invalid(p.from.loc, "$ref", "there is nothing at %s", quoteClipped(p.ref))
	}
	return c.schema(raw, fragment)
}

// pointerValue returns the value at a JSON pointer, or nil.
func pointerValue(raw []byte, pointer string) []byte {
	if pointer == "" {
		return raw
	}
tokens:
	for tok := range strings.SplitSeq(pointer[1:], "/") {
		tok = strings.ReplaceAll(strings.ReplaceAll(tok, "~1", "/"), "~0", "~")
		switch raw[0] {
		case '{':
			for m := jsonwire.ObjectMembers(raw); m.Next(); {
				if m.KeyIs(tok) {
					raw = m.Value()
					continue tokens
				}
			}
		case '[':
			n := 0
			for e := jsonwire.ArrayElements(raw); e.Next(); n++ {
				if strconv.Itoa(n) == tok {
					raw = e.Value()
					continue tokens
				}
			}
		}
		return nil
	}
	return raw
}

// percentDecode decodes the %XX of a URI fragment.
func percentDecode(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		n, err := strconv.ParseUint(s[i+1:min(i+3, len(s))], 16, 8)
		if err != nil || len(s) < i+3 {
			return "", false
		}
		b = append(b, byte(n))
		i += 2
	}
	return string(b), true
}

// findCycle finds a schema that leads back to itself through keywords that apply
// to the same value. No instance could ever be valid or invalid against it.
func (c *compiler) findCycle() *subschema {
	const active, done = 1, 2
	state := map[*subschema]int{}
	var visit func(s *subschema) *subschema
	visit = func(s *subschema) *subschema {
		if s == nil || state[s] == done {
			return nil
		}
		if state[s] == active {
			return s
		}
		state[s] = active
		for _, next := range s.inPlaceSchemas() {
			if loop := visit(next); loop != nil {
				return loop
			}
		}
		state[s] = done
		return nil
	}
	for _, s := range c.subs {
		if loop := visit(s); loop != nil {
			return loop
		}
	}
	return nil
}

// inPlaceSchemas lists the schemas that s applies to the value it is applied to.
func (s *subschema) inPlaceSchemas() []*subschema {
	var list []*subschema
	if p := s.applicators; p != nil {
		list = append(list, p.ref, p.not, p.cond, p.then, p.els)
		list = append(append(append(list, p.all...), p.any...), p.one...)
	}
	if s.obj != nil {
		for _, d := range s.obj.dependencies {
			list = append(list, d.schema)
		}
	}
	return list
}

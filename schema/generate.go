package schema

import (
	"fmt"

	"mcpwire/internal/json/jsonwire"
)

// maxInline is the size in bytes up to which a named struct that is used more
// than once is repeated in the schema. Small schemas read better without
// references, but repeating everything can make them grow without bound.
const maxInline = 512

// generator writes the JSON Schema of a node.
type generator struct {
	root      *node
	uses      map[*node]int    // of named nodes
	recursive map[*node]bool   // named nodes that contain themselves
	active    map[*node]bool   // those being visited, or written
	texts     map[*node][]byte // finished definitions, by node
	names     map[*node]string // of those in $defs
	taken     map[string]bool
	order     []*node // of $defs
	err       error
}

// generate returns the schema of root.
func generate(root *node) ([]byte, error) {
	for root.dec == opPointer && root.required {
		root = root.elem
	}
	g := &generator{
		root: root,
		uses: map[*node]int{}, recursive: map[*node]bool{}, active: map[*node]bool{},
		texts: map[*node][]byte{}, names: map[*node]string{}, taken: map[string]bool{},
	}
	if root.custom != nil {
		return root.custom.JSON(), nil
	}
	if g.visit(root); g.err != nil {
		return nil, g.err
	}
	body := g.body(nil, root, false)
	body = body[:len(body)-1]
	if len(g.order) > 0 {
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(body, `"$defs":{`...)
		for i, n := range g.order {
			if i > 0 {
				body = append(body, ',')
			}
			body = jsonwire.AppendQuote(body, g.names[n])
			body = append(body, ':')
			body = append(body, g.text(n)...)
		}
		body = append(body, '}')
	}
	body = append(body, '}')
	if err := jsonwire.Valid(body, 0); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", root.typ, err)
	}
	return body, nil
}

// visit counts the uses of named nodes and finds the recursive ones.
func (g *generator) visit(n *node) {
	if n == nil {
		return
	}
	if n.custom != nil {
		if name := reference(n.custom.JSON()); name != "" && g.err == nil {
			g.err = fmt.Errorf("type %s: JSONSchema: %q cannot be used below the root of a schema", n.typ, name)
		}
		return
	}
	if n.types == "" && n.dec != opPointer {
		return
	}
	if n.name != "" {
		g.uses[n]++
		if g.active[n] {
			g.recursive[n] = true
		}
		if g.uses[n] > 1 {
			return
		}
		g.active[n] = true
		defer delete(g.active, n)
	}
	g.visit(n.elem)
	if n.fields != nil {
		for i := range n.fields.fields {
			g.visit(n.fields.fields[i].node)
		}
	}
}

// reference returns a keyword by which a schema refers to places, or is referred
// to, if it has one. Such a schema means something else where it is copied to.
func reference(text []byte) string {
	c := cursor{b: text}
	for ch := c.space(); ch != 0; ch = c.space() {
		if ch != '"' {
			c.i++
			continue
		}
		raw, _ := c.str()
		switch name := string(raw); name {
		case "$ref", "$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor", "$schema":
			if c.space() == ':' {
				return name
			}
		}
	}
	return ""
}

// use appends the schema of n where a field or an element has it.
func (g *generator) use(dst []byte, n *node, nullable bool, f *fieldPlan) []byte {
	for n.dec == opPointer {
		n, nullable = n.elem, true
	}
	ref := ""
	switch {
	case n.name == "":
	case n == g.root:
		if g.recursive[n] {
			ref = `{"$ref":"#"}`
		}
	case g.recursive[n] || g.uses[n] > 1 && len(g.text(n)) > maxInline:
		ref = `{"$ref":"#/$defs/` + g.define(n) + `"}`
	}
	if n.custom != nil {
		ref = string(n.custom.JSON())
	}
	switch {
	case ref == "":
		dst = g.body(dst, n, nullable)
	case nullable:
		dst = append(append(append(dst, `{"anyOf":[`...), ref...), `,{"type":"null"}]}`...)
	case n.custom != nil && f.annotated():
		dst = append(append(append(dst, `{"allOf":[`...), ref...), `]}`...)
	default:
		dst = append(dst, ref...)
	}
	return f.annotate(dst)
}

// annotated reports whether the field says something about its use of a type.
func (f *fieldPlan) annotated() bool {
	return f != nil && (f.description != "" || len(f.keywords) > 0)
}

// annotate adds that to the schema object that ends dst.
func (f *fieldPlan) annotate(dst []byte) []byte {
	if !f.annotated() {
		return dst
	}
	dst = dst[:len(dst)-1]
	comma := dst[len(dst)-1] != '{'
	add := func(name, value string) {
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = append(append(append(append(dst, '"'), name...), `":`...), value...)
	}
	if f.description != "" {
		add("description", string(jsonwire.AppendQuote(nil, f.description)))
	}
	for _, k := range f.keywords {
		add(k.name, k.value)
	}
	return append(dst, '}')
}

// define gives n a name in $defs.
func (g *generator) define(n *node) string {
	if name, ok := g.names[n]; ok {
		return name
	}
	base := defName(n.name)
	name := base
	for i := 2; g.taken[name]; i++ {
		name = fmt.Sprintf("%s%d", base, i)
	}
	g.taken[name] = true
	g.names[n] = name
	g.order = append(g.order, n)
	if !g.active[n] {
		g.text(n) // defines what it needs in turn
	}
	return name
}

// text returns the body of a named node. It is made once.
func (g *generator) text(n *node) []byte {
	t, ok := g.texts[n]
	if !ok {
		g.active[n] = true
		t = g.body(nil, n, false)
		g.texts[n] = t
		delete(g.active, n)
	}
	return t
}

// body appends the schema of n itself as an object.
func (g *generator) body(dst []byte, n *node, nullable bool) []byte {
	dst = append(dst, '{')
	if n.types != "" {
		dst = append(dst, `"type":`...)
		if nullable {
			dst = append(append(append(dst, `["`...), n.types...), `","null"]`...)
		} else {
			dst = append(append(append(dst, '"'), n.types...), '"')
		}
	}
	for _, k := range n.keywords {
		dst = append(append(append(dst, `,"`...), k.name...), `":`...)
		if k.name == "enum" && nullable {
			dst = append(append(dst, k.value[:len(k.value)-1]...), ",null]"...)
			continue
		}
		dst = append(dst, k.value...)
	}
	switch n.types {
	case "array":
		if n.elem != nil {
			// Elements of any value have {}, though it means nothing: OpenAI's API and VS Code
			// reject tools that have an array without items.
			dst = append(dst, `,"items":`...)
			dst = g.use(dst, n.elem, false, nil)
		}
	case "object":
		if n.fields != nil {
			dst = g.properties(dst, n.fields)
			break
		}
		before := len(dst)
		dst = append(dst, `,"additionalProperties":`...)
		values := len(dst)
		if dst = g.use(dst, n.elem, false, nil); string(dst[values:]) == "{}" {
			dst = dst[:before] // any value; strict hosts warn of a schema without keywords
		}
	}
	return append(dst, '}')
}

func (g *generator) properties(dst []byte, s *structPlan) []byte {
	dst = append(dst, `,"properties":{`...)
	for i := range s.fields {
		f := &s.fields[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, f.quoted...), ':')
		dst = g.use(dst, f.node, false, f)
	}
	dst = append(dst, '}')
	sep := `,"required":[`
	for i := range s.fields {
		if f := &s.fields[i]; f.required {
			dst = append(append(dst, sep...), f.quoted...)
			sep = ","
		}
	}
	if sep == "," {
		dst = append(dst, ']')
	}
	if !s.lenient {
		dst = append(dst, `,"additionalProperties":false`...)
	}
	return dst
}

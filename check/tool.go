package check

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/printable"
	"mcpwire/mcp"
	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// A toolbox is what a server has said of its tools.
type toolbox struct {
	byName   map[string]*tool
	held     int  // bytes of definitions
	complete bool // the list was seen from its first page to its last, and nothing says that it changed since
	listing  uint64
	inOrder  bool // all pages of the listing that is going on were seen so far
	cursor   string
	changes  int // how often it has changed
}

// A tool is what a server has said of one of its tools.
type tool struct {
	n       uint64 // of the event with its definition
	listing uint64
	text    []byte // the definition
	output  bool   // it has an outputSchema

	input, result *validator // compiled when they are needed
	mirrors       *mirrors   // found when they are needed
}

// mirrors are the arguments of a tool that headers repeat.
type mirrors struct {
	params []mcp.HeaderParam
	err    error
}

const maxMirrors = 64 // arguments of a tool that are held against their headers

const (
	maxToolText = 256 << 10 // bytes of one definition
	maxToolHeld = 16 << 20  // bytes of all definitions of a server
)

// list takes a page of tools. cursor is that of the request; page is the result.
func (b *toolbox) list(n uint64, cursor, page []byte, limit int) {
	if cursor == nil {
		b.listing, b.inOrder, b.complete = b.listing+1, true, false
	} else if text(cursor) != b.cursor {
		b.inOrder = false
	}
	if b.byName == nil {
		b.byName = map[string]*tool{}
	}
	for _, t := range elements(member(page, "tools")) {
		name := text(member(t, "name"))
		if old := b.byName[name]; old != nil {
			b.held -= len(old.text)
			delete(b.byName, name)
		}
		if len(t) > maxToolText || b.held+len(t) > maxToolHeld || len(b.byName) >= limit || !isObject(t) || len(name) > maxPairedID {
			b.inOrder = false
			continue
		}
		b.held += len(t)
		b.byName[name] = &tool{n: n, listing: b.listing, text: bytes.Clone(t), output: member(t, "outputSchema") != nil}
	}
	next := member(page, "nextCursor")
	b.cursor = text(next)
	if (next == nil || isNull(next)) && b.inOrder {
		b.complete = true
		for name, t := range b.byName {
			if t.listing != b.listing {
				b.held -= len(t.text)
				delete(b.byName, name)
			}
		}
	}
}

// forget is for when the tools have changed.
func (b *toolbox) forget() { *b = toolbox{listing: b.listing, changes: b.changes + 1} }

// headers returns the arguments that the tool has in headers, or the first of them.
func (t *tool) headers() ([]mcp.HeaderParam, error) {
	if t.mirrors == nil {
		params, err := mcp.HeaderParams(member(t.text, "inputSchema"))
		t.mirrors = &mirrors{slices.Clone(params[:min(len(params), maxMirrors)]), err}
	}
	return t.mirrors.params, t.mirrors.err
}

// A validator is a schema of a peer, compiled. One that cannot be compiled, or not with bounded work, takes everything.
type validator struct {
	v      *schema.Validator
	engine bool
}

// validators returns the validators of the tool's two schemas.
func (t *tool) inputValidator() *validator {
	if t.input == nil {
		t.input = compile(member(t.text, "inputSchema"))
	}
	return t.input
}

func (t *tool) outputValidator() *validator {
	if t.result == nil {
		t.result = compile(member(t.text, "outputSchema"))
	}
	return t.result
}

// compile compiles a schema of a stranger. What package schema cannot do by itself, such as other
// dialects, goes to an engine whose work nobody bounds, so it gets only schemas that stay small when
// each reference is replaced by what it refers to: then its work is that size times that of the
// instance.
func compile(text []byte) *validator {
	if text == nil {
		return &validator{}
	}
	v, err := schema.Compile(text, nil)
	if err == nil {
		return &validator{v: v.WithLimits(schema.Limits{MaxSteps: maxSchemaSteps})}
	}
	budget := maxExpanded
	if !expandable(text, text, 0, &budget) {
		return &validator{}
	}
	if v, err = schema.Compile(text, fullschema.Engine); err != nil {
		return &validator{}
	}
	return &validator{v: v, engine: true}
}

// maxExpanded is how many values a schema may have that goes to an engine.
const maxExpanded = 10_000

// expandable reports whether a part of a schema, with its references replaced, has no more values
// than the budget, which it takes them from. References must be JSON pointers, and end.
func expandable(root, v []byte, depth int, budget *int) bool {
	if *budget--; *budget < 0 || depth > 64 {
		return false
	}
	switch {
	case isObject(v):
		for m := jsonwire.ObjectMembers(v); m.Next(); {
			switch {
			case m.KeyIs("$dynamicRef"), m.KeyIs("$recursiveRef"):
				return false
			case m.KeyIs("$ref") && isString(m.Value()):
				to := referred(root, text(m.Value()))
				if to == nil || !expandable(root, to, depth+1, budget) {
					return false
				}
			case !expandable(root, m.Value(), depth+1, budget):
				return false
			}
		}
	case isArray(v):
		for e := jsonwire.ArrayElements(v); e.Next(); {
			if !expandable(root, e.Value(), depth+1, budget) {
				return false
			}
		}
	}
	return true
}

// referred is the part of a schema that a reference such as #/definitions/a leads to, nil if it is
// another kind of reference.
func referred(root []byte, ref string) []byte {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok || strings.Contains(path, "%") {
		return nil
	}
	v := root
	for _, token := range strings.Split(path, "/")[1:] {
		name := strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch {
		case isObject(v):
			v = member(v, name)
		case isArray(v):
			n, err := strconv.Atoi(name)
			if err != nil {
				return nil
			}
			var found []byte
			for i, e := range elements(v) {
				if i == n {
					found = e
					break
				}
			}
			v = found
		default:
			return nil
		}
	}
	return v
}

const (
	maxEngineInstance = 64 << 10 // bytes
	maxSchemaSteps    = 500_000
)

// validate returns what is wrong with an instance. It keeps quiet about what it cannot tell.
func (d *validator) validate(instance []byte) []schema.Problem {
	if d.v == nil || d.engine && len(instance) > maxEngineInstance {
		return nil
	}
	e, ok := errors.AsType[*schema.Error](d.v.Validate(instance))
	if !ok {
		return nil
	}
	problems := e.Problems
	if e.Limit && len(problems) > 0 {
		problems = problems[:len(problems)-1]
	}
	return problems
}

// problemText joins what a validator found below a place for people.
func problemText(problems []schema.Problem) string {
	var list []string
	for _, p := range problems[:min(len(problems), 3)] {
		where := p.Pointer
		if where == "" {
			where = "the whole"
		}
		list = append(list, printable.Line(clipBytes(where, maxShown))+": "+printable.Line(clipBytes(p.Message, 2*maxShown)))
	}
	return strings.Join(list, "; ")
}

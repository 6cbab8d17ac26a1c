package check

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// A toolbox is what a server has said of its tools.
type toolList struct {
	byName   map[string]*tool
	size     int  // bytes of definitions
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

	input, result *validator    // compiled when they are needed
	headerParams  *headerParams // found when they are needed
}

// headerParams are the arguments of a tool that headers repeat.
type headerParams struct {
	params []mcp.HeaderParam
	err    error
}

const maxHeaderParams = 64 // arguments of a tool that are held against their headers

const (
	maxToolText = 256 << 10 // bytes of one definition
	maxToolHeld = 16 << 20  // bytes of all definitions of a server
)

// addPage takes a page of tools. cursor is that of the request; page is the result.
func (tl *toolList) addPage(n uint64, cursor, page []byte, limit int) {
	if cursor == nil {
		tl.listing, tl.inOrder, tl.complete = tl.listing+1, true, false
	} else if stringValue(cursor) != tl.cursor {
		tl.inOrder = false
	}
	if tl.byName == nil {
		tl.byName = map[string]*tool{}
	}
	for _, t := range elements(member(page, "tools")) {
		name := stringValue(member(t, "name"))
		if old := tl.byName[name]; old != nil {
			tl.size -= len(old.text)
			delete(tl.byName, name)
		}
		if len(t) > maxToolText || tl.size+len(t) > maxToolHeld || len(tl.byName) >= limit || !isObject(t) || len(name) > maxPairedID {
			tl.inOrder = false
			continue
		}
		tl.size += len(t)
		tl.byName[name] = &tool{n: n, listing: tl.listing, text: bytes.Clone(t), output: member(t, "outputSchema") != nil}
	}
	next := member(page, "nextCursor")
	tl.cursor = stringValue(next)
	if (next == nil || isNull(next)) && tl.inOrder {
		tl.complete = true
		for name, t := range tl.byName {
			if t.listing != tl.listing {
				tl.size -= len(t.text)
				delete(tl.byName, name)
			}
		}
	}
}

// reset is for when the tools have changed.
func (tl *toolList) reset() { *tl = toolList{listing: tl.listing, changes: tl.changes + 1} }

// headers returns the arguments that the tool has in headers, or the first of them.
func (t *tool) headers() ([]mcp.HeaderParam, error) {
	if t.headerParams == nil {
		params, err := mcp.HeaderParams(member(t.text, "inputSchema"))
		t.headerParams = &headerParams{slices.Clone(params[:min(len(params), maxHeaderParams)]), err}
	}
	return t.headerParams.params, t.headerParams.err
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
				to := referred(root, stringValue(m.Value()))
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

// joinProblems joins what a validator found below a place for people.
func joinProblems(problems []schema.Problem) string {
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

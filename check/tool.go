package check

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// A toolList holds the tools that a server has listed.
type toolList struct {
	byName map[string]*tool
	// size is the size of all definitions, in bytes.
	size int
	// complete reports that the list was seen from its first page to its last, and has not changed.
	complete bool
	listing  uint64
	// inOrder reports that all pages of the current listing were seen so far.
	inOrder bool
	cursor  string
	// changes counts the changes of the list.
	changes int
}

// A tool is a listed tool.
type tool struct {
	// n is the number of the event with the definition.
	n       uint64
	listing uint64
	text    []byte
	// output reports that there is an outputSchema.
	output bool

	// input and result are compiled when first needed.
	input, result *validator
	// headerParams is set when first needed.
	headerParams *headerParams
}

// headerParams are the arguments of a tool that headers repeat.
type headerParams struct {
	params []mcp.HeaderParam
	err    error
}

// maxHeaderParams limits the arguments of a tool that are compared with headers.
const maxHeaderParams = 64

const (
	maxToolText = 256 << 10 // bytes of one definition
	maxToolHeld = 16 << 20  // bytes of a server's definitions
)

// addPage adds a page of tools. cursor is the cursor of the request, and page its result.
func (tl *toolList) addPage(n uint64, cursor, page []byte, limit int) {
	if cursor == nil {
		tl.listing, tl.inOrder, tl.complete = tl.listing+1, true, false
	} else if jsonwire.Text(cursor) != tl.cursor {
		tl.inOrder = false
	}
	if tl.byName == nil {
		tl.byName = map[string]*tool{}
	}
	for _, t := range elements(jsonwire.Lookup(page, "tools")) {
		name := jsonwire.Text(jsonwire.Lookup(t, "name"))
		if old := tl.byName[name]; old != nil {
			tl.size -= len(old.text)
			delete(tl.byName, name)
		}
		if len(t) > maxToolText || tl.size+len(t) > maxToolHeld || len(tl.byName) >= limit || !isObject(t) || len(name) > maxPairedID {
			tl.inOrder = false
			continue
		}
		tl.size += len(t)
		tl.byName[name] = &tool{n: n, listing: tl.listing, text: bytes.Clone(t), output: jsonwire.Lookup(t, "outputSchema") != nil}
	}
	next := jsonwire.Lookup(page, "nextCursor")
	tl.cursor = jsonwire.Text(next)
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

// reset clears the list after it has changed.
func (tl *toolList) reset() { *tl = toolList{listing: tl.listing, changes: tl.changes + 1} }

// headers returns the arguments that the tool repeats in headers, at most maxHeaderParams.
func (t *tool) headers() ([]mcp.HeaderParam, error) {
	if t.headerParams == nil {
		params, err := mcp.HeaderParams(jsonwire.Lookup(t.text, "inputSchema"))
		t.headerParams = &headerParams{slices.Clone(params[:min(len(params), maxHeaderParams)]), err}
	}
	return t.headerParams.params, t.headerParams.err
}

// A validator is a compiled schema of a peer. The zero value, used for schemas that do not compile
// or need unbounded work, accepts everything.
type validator struct {
	v *schema.Validator
}

// inputValidator returns the validator of the tool's input, outputValidator that of its structured
// output.
func (t *tool) inputValidator() *validator {
	if t.input == nil {
		t.input = compile(jsonwire.Lookup(t.text, "inputSchema"))
	}
	return t.input
}

func (t *tool) outputValidator() *validator {
	if t.result == nil {
		t.result = compile(jsonwire.Lookup(t.text, "outputSchema"))
	}
	return t.result
}

// compile compiles a schema of a peer. Schemas that package schema does not support, such as other
// dialects, go to an engine that rejects those that could need much work.
func compile(text []byte) *validator {
	if text == nil {
		return &validator{}
	}
	v, err := schema.Compile(text, nil)
	if err == nil {
		return &validator{v: v.WithLimits(schema.Limits{MaxSteps: maxSchemaSteps})}
	}
	if v, err = schema.Compile(text, fullschema.Bounded); err != nil {
		return &validator{}
	}
	return &validator{v: v}
}

const maxSchemaSteps = 500_000

// validate returns the problems of an instance that are certain.
func (d *validator) validate(instance []byte) []schema.Problem {
	if d.v == nil {
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

// joinProblems formats up to three problems.
func joinProblems(problems []schema.Problem) string {
	var list []string
	for _, p := range problems[:min(len(problems), 3)] {
		where := p.Pointer
		if where == "" {
			where = "the whole"
		}
		list = append(list, printable.Line(clip.Prefix(where, maxShown))+": "+printable.Line(clip.Prefix(p.Message, 2*maxShown)))
	}
	return strings.Join(list, "; ")
}

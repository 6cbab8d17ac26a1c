package schema

import (
	"errors"
	"fmt"

	"mcpwire/internal/jsonwire"
)

// Engine is a complete JSON Schema implementation for what [Compile] does not
// cover. It compiles a schema, given as JSON without white space, to a function
// that validates JSON texts, and must not fetch anything. The function may be
// called concurrently; an [*Error] it returns reaches the caller as it is.
type Engine func(schema []byte) (func(instance []byte) error, error)

// Limits bound the work of one Validate. A zero field means its default.
type Limits struct {
	// MaxSteps is how many steps a validation may take. Holding one value
	// against one schema is a step, so is passing one member or element, 64
	// bytes of text or one byte of it under a pattern of usual size. A step
	// takes in the order of 20 ns. The default is 2 million and 8 for each byte
	// of the instance, but at most 200 million.
	MaxSteps int
	// MaxDepth is how deeply schemas may be applied in one another. The default
	// is 4096, several for each level of the deepest instance.
	MaxDepth int
}

const (
	defaultMaxSteps     = 2_000_000
	defaultStepsPerByte = 8
	maxDefaultSteps     = 200_000_000
	defaultMaxDepth     = 4096
)

// Validator is a compiled JSON Schema. It is immutable: any number of goroutines
// may use it.
type Validator struct {
	text   []byte
	root   *subschema
	full   func([]byte) error // instead of root
	limits Limits
}

// Compile compiles a hand-written JSON Schema of draft 2020-12
// (https://json-schema.org/draft/2020-12/json-schema-core) into a validator that
// works on the bytes. text may be any JSON text; Compile keeps a copy.
//
// What is not covered goes to the engine, the whole schema with it: the
// keywords unevaluatedItems, unevaluatedProperties, $dynamicRef, $vocabulary and
// dependencies, an $id below the root, a $ref to another document, another
// draft in $schema, and patterns that Go's regexp lacks. If engine is nil that
// is an error, which names the keyword and its place. Nothing is ever fetched.
// format and the content keywords are annotations and check nothing.
func Compile(text []byte, engine Engine) (*Validator, error) {
	if err := jsonwire.Valid(text, 0); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	v := &Validator{text: jsonwire.AppendCompact(nil, text)}
	c := cursor{b: v.text}
	if found := c.duplicates(1); len(found) > 0 {
		return nil, fmt.Errorf("schema: #%s: %s", pointerAt(v.text, found[0].at), found[0].msg)
	}
	var err error
	v.root, err = compileSchema(v.text)
	var lacking *unsupportedError
	if errors.As(err, &lacking) && engine != nil {
		v.root = nil
		if v.full, err = engine(v.text); err != nil {
			err = fmt.Errorf("schema: engine: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// JSON returns the schema in one line. The caller must not change it.
func (v *Validator) JSON() []byte { return v.text }

// IsObject reports whether the schema says in so many words, by its type keyword,
// that every valid instance is an object.
func (v *Validator) IsObject() bool { return typeIsObject(v.text) }

func typeIsObject(text []byte) bool {
	for m := jsonwire.ObjectMembers(text); m.Next(); {
		if m.KeyIs("type") {
			return string(m.Value()) == `"object"`
		}
	}
	return false
}

// WithLimits returns a validator of the same schema with other limits. They do
// not reach into an engine.
func (v *Validator) WithLimits(l Limits) *Validator {
	c := *v
	c.limits = l
	return &c
}

// Validate holds text, which must be valid JSON, against the schema. It keeps
// nothing of it. The error is an [*Error] with up to eight problems; duplicate
// member names are one too, since JSON Schema has no notion of them.
func (v *Validator) Validate(text []byte) error {
	c := cursor{b: text}
	if ch := c.space(); ch == '{' || ch == '[' {
		if found := c.duplicates(maxProblems); len(found) > 0 {
			return newError(text, found, false)
		}
	}
	if v.full != nil {
		return v.runEngine(text)
	}
	found, limit := v.findings(text, 0)
	if len(found) == 0 {
		return nil
	}
	return newError(text, found, limit)
}

// engineFindings turns what an engine says about the value at an offset into
// findings there: an engine knows paths, not offsets.
func engineFindings(err error, at int) (found []finding) {
	var e *Error
	errors.As(err, &e)
	for _, p := range e.Problems {
		msg := p.Message
		if path := appendPath(nil, p.Pointer); len(path) > 0 {
			msg = string(path) + ": " + msg
		}
		found = append(found, finding{at, msg})
	}
	return found
}

// runEngine makes sure that what comes back is an *Error.
func (v *Validator) runEngine(text []byte) error {
	err := v.full(text)
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return &Error{Problems: []Problem{{Message: clipError(err)}}}
}

// findings validates the value at or after text[at].
func (v *Validator) findings(text []byte, at int) (found []finding, limit bool) {
	c := cursor{b: text, i: at}
	c.space()
	if v.full != nil {
		at := c.i
		err := v.runEngine(c.value())
		if err == nil {
			return nil, false
		}
		return engineFindings(err, at), errors.Is(err, ErrLimit)
	}
	r := validation{b: text, maxSteps: v.limits.MaxSteps, maxDepth: v.limits.MaxDepth}
	if r.maxSteps <= 0 {
		r.maxSteps = min(defaultMaxSteps+defaultStepsPerByte*(len(text)-at), maxDefaultSteps)
	}
	if r.maxDepth <= 0 {
		r.maxDepth = defaultMaxDepth
	}
	r.eval(v.root, c.i)
	return r.found, r.limit
}

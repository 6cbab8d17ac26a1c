package fullschema

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/schema"
)

const (
	// location is what relative references in a schema without $id resolve
	// against. Nothing answers there.
	location = "mcpwire:///schema"

	maxExponent = 1000
	maxProblems = 8
	maxShown    = 200 // bytes of a message that comes from the library
)

var _ schema.Engine = Engine

// Engine compiles a schema for [schema.Compile]. text is not kept. The error says
// what is wrong with the schema.
func Engine(text []byte) (validate func(instance []byte) error, err error) {
	defer recoverError(&err)
	if at, ok := hugeNumber(text); ok {
		return nil, fmt.Errorf("number at byte %d: exponent beyond %d", at, maxExponent)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(location, doc); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(location)
	if err != nil {
		return nil, err
	}
	return func(instance []byte) error { return validateInstance(compiled, instance) }, nil
}

// noLoader is the loader: there is nothing to load.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not part of the schema, and nothing is fetched", url)
}

// recoverError turns a panic of the library into an error: a schema must not be
// able to end the process.
func recoverError(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("jsonschema failed: %v", p)
	}
}

func validateInstance(compiled *jsonschema.Schema, instance []byte) (err error) {
	defer func() {
		var known *schema.Error
		if err != nil && !errors.As(err, &known) {
			err = &schema.Error{Problems: []schema.Problem{{Message: clip.String(err.Error(), maxShown)}}}
		}
	}()
	defer recoverError(&err)
	if at, ok := hugeNumber(instance); ok {
		return fmt.Errorf("number at byte %d: expected an exponent of at most %d", at, maxExponent)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(instance))
	if err != nil {
		return err
	}
	err = compiled.Validate(v)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	e := &schema.Error{}
	collect(e, invalid)
	return e
}

// collect adds the problems at the leaves of the tree that the library reports.
func collect(e *schema.Error, v *jsonschema.ValidationError) {
	if len(e.Problems) >= maxProblems {
		return
	}
	var msg string
	switch k := v.ErrorKind.(type) {
	case *kind.AnyOf:
		msg = alternatives(v)
	case *kind.OneOf:
		if len(k.Subschemas) == 0 {
			msg = alternatives(v)
		}
	case *kind.Type:
		msg = "expected " + strings.Join(k.Want, " or ") + ", got " + k.Got
	}
	if msg == "" && len(v.Causes) > 0 {
		for _, cause := range v.Causes {
			collect(e, cause)
		}
		return
	}
	if msg == "" {
		msg = leafMessage(v)
	}
	e.Problems = append(e.Problems, schema.Problem{Pointer: pointer(v.InstanceLocation), Message: msg})
}

// alternatives says why none of several schemas matches.
func alternatives(v *jsonschema.ValidationError) string {
	const shown = 4
	msg := "matches none of the alternatives"
	for i, cause := range v.Causes {
		if i == shown {
			return fmt.Sprintf("%s; and %d more", msg, len(v.Causes)-shown)
		}
		inner := &schema.Error{}
		collect(inner, cause)
		p := inner.Problems[0]
		msg += fmt.Sprintf("; %d: ", i+1)
		if rest := strings.TrimPrefix(p.Pointer, pointer(v.InstanceLocation)); rest != "" {
			msg += rest + ": "
		}
		msg += p.Message
	}
	return msg
}

// leafMessage is the library's own message for one problem.
func leafMessage(v *jsonschema.ValidationError) string {
	alone := &jsonschema.ValidationError{SchemaURL: v.SchemaURL, ErrorKind: v.ErrorKind}
	return clip.String(strings.TrimPrefix(alone.Error(), "at '': "), maxShown)
}

func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(jsonpointer.Escape(t))
	}
	return b.String()
}

// hugeNumber finds a number that would be a burden to compute with.
func hugeNumber(text []byte) (at int, ok bool) {
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			i = jsonwire.SkipValue(text, i)
		case c == '-' || c-'0' < 10:
			end := jsonwire.SkipValue(text, i)
			if exponent(text[i:end]) > maxExponent {
				return i, true
			}
			i = end
		default:
			i++
		}
	}
	return 0, false
}

// exponent returns the size of a number's exponent, whatever its sign.
func exponent(tok []byte) int {
	i := bytes.IndexAny(tok, "eE")
	if i < 0 {
		return 0
	}
	n := 0
	for _, c := range bytes.TrimLeft(tok[i+1:], "+-") {
		if n = n*10 + int(c-'0'); n > maxExponent {
			break
		}
	}
	return n
}

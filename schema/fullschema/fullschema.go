package fullschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

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
	maxShown    = 200 // bytes of a text from a schema or a value in a message
)

var _, _ schema.Engine = Engine, Bounded

// Engine compiles a schema for [schema.Compile]. text is not kept. The error says
// what is wrong with the schema.
func Engine(text []byte) (func(instance []byte) error, error) {
	if at, ok := hugeNumber(text); ok {
		return nil, fmt.Errorf("number at byte %d: exponent beyond %d", at, maxExponent)
	}
	doc, err := decode(text)
	if err != nil {
		return nil, err
	}
	compiled, err := newCompiler(compilePattern).compile(doc)
	if err != nil {
		return nil, err
	}
	return func(instance []byte) error { return validateInstance(compiled, instance) }, nil
}

// Bounded is an [Engine] for schemas of untrusted peers. It compiles only schemas that stay small
// when every reference is replaced by its target, so that the work for an instance is at most that
// size times the size of the instance, which has at most 64 KiB. The error says why it does not
// compile a schema.
func Bounded(text []byte) (func(instance []byte) error, error) {
	budget := maxExpanded
	if err := expand(text, text, 0, &budget); err != nil {
		return nil, err
	}
	validate, err := Engine(text)
	if err != nil {
		return nil, err
	}
	return func(instance []byte) error {
		if len(instance) > maxInstance {
			problem := schema.Problem{Message: fmt.Sprintf("the value has more than %d bytes", maxInstance)}
			return &schema.Error{Problems: []schema.Problem{problem}, Limit: true}
		}
		return validate(instance)
	}, nil
}

// Limits of Bounded.
const (
	maxExpanded = 10_000   // values of an expanded schema
	maxNesting  = 64       // of these values
	maxInstance = 64 << 10 // bytes
)

// expand subtracts the values of a part of a schema, with its references expanded, from budget. It
// returns an error if there are too many, or a reference is not a JSON pointer or recurses.
func expand(root, v []byte, depth int, budget *int) error {
	if *budget--; *budget < 0 || depth > maxNesting {
		return errors.New("it is too large, or refers to itself")
	}
	switch {
	case len(v) > 0 && v[0] == '{':
		for m := jsonwire.ObjectMembers(v); m.Next(); {
			part := m.Value()
			switch {
			case m.KeyIs("$dynamicRef"), m.KeyIs("$recursiveRef"):
				return fmt.Errorf("it uses %s", m.KeyString())
			case m.KeyIs("$ref") && part[0] == '"':
				ref := jsonwire.Text(part)
				if part = referred(root, ref); part == nil {
					return fmt.Errorf("the reference %q does not lead into it", clip.String(ref, maxShown))
				}
			}
			if err := expand(root, part, depth+1, budget); err != nil {
				return err
			}
		}
	case len(v) > 0 && v[0] == '[':
		for e := jsonwire.ArrayElements(v); e.Next(); {
			if err := expand(root, e.Value(), depth+1, budget); err != nil {
				return err
			}
		}
	}
	return nil
}

// referred returns the part of a schema that a reference such as #/definitions/a names, or nil for
// other kinds of references.
func referred(root []byte, ref string) []byte {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok || path != "" && path[0] != '/' || strings.Contains(path, "%") {
		return nil
	}
	return jsonpointer.Find(root, path)
}

// decode decodes a JSON text. Numbers are of type json.Number.
func decode(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("text after the value")
	}
	return v, nil
}

func validateInstance(compiled *node, instance []byte) error {
	if at, ok := hugeNumber(instance); ok {
		return failed(fmt.Sprintf("number at byte %d: expected an exponent of at most %d", at, maxExponent))
	}
	v, err := decode(instance)
	if err != nil {
		return failed(clip.String(err.Error(), maxShown))
	}
	problems := compiled.validate(v)
	if len(problems) == 0 {
		return nil
	}
	e := &schema.Error{}
	for _, p := range problems[:min(len(problems), maxProblems)] {
		e.Problems = append(e.Problems, schema.Problem{Pointer: p.pointer, Message: p.text()})
	}
	return e
}

func failed(message string) error {
	return &schema.Error{Problems: []schema.Problem{{Message: message}}}
}

// text returns the message of a problem: why none of several schemas matches, if there is a choice.
func (p *problem) text() string {
	if p.branches == nil {
		return p.message
	}
	const shown = 4
	message := "matches none of the alternatives"
	for i, branch := range p.branches {
		if i == shown {
			return fmt.Sprintf("%s; and %d more", message, len(p.branches)-shown)
		}
		message += fmt.Sprintf("; %d: ", i+1)
		if rest := strings.TrimPrefix(branch[0].pointer, p.pointer); rest != "" {
			message += rest + ": "
		}
		message += branch[0].text()
	}
	return message
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

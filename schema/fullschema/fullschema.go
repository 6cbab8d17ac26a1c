package fullschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

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

var _ schema.Engine = Engine

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

package mcptest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"mcpwire/internal/jsonwire"
)

// anything is the variable that stands for any value, and keeps none.
const anything = "$any"

// variables are JSON texts by name, without the dollar sign.
type variables map[string]value

var (
	variableText = regexp.MustCompile(`^\$[A-Za-z_][A-Za-z0-9_]*$`)
	escapedText  = regexp.MustCompile(`^\$\$+[A-Za-z_][A-Za-z0-9_]*$`)
)

// variable returns the name of the variable that v stands for, if it does.
func (v value) variable() (name string, ok bool) {
	if v.kind != '"' || !variableText.MatchString(v.text) {
		return "", false
	}
	return v.text[1:], true
}

// literal is the string that a string of a pattern stands for: "$$name" for "$name".
func literal(text string) string {
	if escapedText.MatchString(text) {
		return text[1:]
	}
	return text
}

// escape is the reverse of literal.
func escape(text string) string {
	if variableText.MatchString(text) || escapedText.MatchString(text) {
		return "$" + text
	}
	return text
}

// allowsExtra reports whether an object of a pattern leaves room for further members.
func (v value) allowsExtra() bool {
	rest := v.member(anything)
	return rest != nil && rest.kind == '"' && rest.text == anything
}

// expand replaces the variables of a text that is to be sent. The rest goes out as it stands, but for white space.
func (vs variables) expand(text string) (string, error) {
	v, err := parse(text)
	if err != nil {
		return "", err
	}
	out, err := vs.append(nil, v)
	return string(out), err
}

func (vs variables) append(dst []byte, v value) ([]byte, error) {
	if name, ok := v.variable(); ok {
		bound, ok := vs[name]
		if !ok {
			return dst, fmt.Errorf("$%s has no value; those that have one: %s", name, vs.names())
		}
		return jsonwire.AppendCompact(dst, bound.raw), nil
	}
	var err error
	switch v.kind {
	case '{':
		dst = append(dst, '{')
		for i, m := range v.members {
			dst = appendComma(dst, i)
			dst = append(append(append(dst, '"'), m.rawKey...), `":`...)
			if dst, err = vs.append(dst, m.value); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	case '[':
		dst = append(dst, '[')
		for i, e := range v.elems {
			if dst, err = vs.append(appendComma(dst, i), e); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case '"':
		if unescaped := literal(v.text); unescaped != v.text {
			return jsonwire.AppendQuote(dst, unescaped), nil
		}
	}
	return append(dst, v.raw...), nil
}

// names lists the variables, for messages.
func (vs variables) names() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(vs)) {
		names = append(names, "$"+name)
	}
	return strings.Join(names, ", ")
}

func appendComma(dst []byte, i int) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	return dst
}

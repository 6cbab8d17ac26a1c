package uritemplate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// A Template is a parsed URI template.
type Template struct {
	components []component
	prefix     string // what each URI begins with
	literalLen int

	once         sync.Once // at the first URI that has the prefix
	re           *regexp.Regexp
	groups       []group // of re
	countedChars int     // characters that re counts
}

// A part is a literal or, if it has variables, an expression.
type component struct {
	literal string // as it stands in a URI
	op      byte   // 0 for none
	vars    []variable
}

type variable struct {
	name    string
	explode bool
	maxLen  int // in characters; 0 is any
}

// maxVariables is how many variables a template may have: package regexp has a limit to how deeply they nest in {/a,b,c}.
const maxVariables = 64

// operators are those of RFC 6570, section 2.2. The RFC keeps =,!@| for later.
const operators = "+#./;?&"

// Parse parses a template. The error says what is wrong with it, and where.
func Parse(text string) (*Template, error) {
	t := new(Template)
	seen := map[string]bool{}
	for rest := text; rest != ""; {
		at := len(text) - len(rest)
		if rest[0] != '{' {
			end := strings.IndexByte(rest, '{')
			if end < 0 {
				end = len(rest)
			}
			literal, bad := encodeLiteral(rest[:end])
			if bad >= 0 {
				return nil, fmt.Errorf("URI template: at byte %d: %q cannot stand outside of braces", at+bad, rest[bad])
			}
			t.components = append(t.components, component{literal: literal})
			t.literalLen += len(literal)
			rest = rest[end:]
			continue
		}
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return nil, fmt.Errorf("URI template: at byte %d: { without }", at)
		}
		p, err := parseExpression(rest[1:end], seen)
		if err != nil {
			return nil, fmt.Errorf("URI template: at byte %d: %s: %w", at, rest[:end+1], err)
		}
		t.components = append(t.components, p)
		rest = rest[end+1:]
	}
	if len(t.components) > 0 {
		t.prefix = t.components[0].literal
	}
	return t, nil
}

// Names returns the names of the variables in the order in which they stand.
func (t *Template) Names() []string {
	var names []string
	for _, p := range t.components {
		for _, v := range p.vars {
			names = append(names, v.name)
		}
	}
	return names
}

// LiteralLen returns how many bytes of each URI the template itself says: of two
// templates that match a URI, the one that says more is about fewer.
func (t *Template) LiteralLen() int { return t.literalLen }

// Prefix returns what each URI of the template begins with, up to the first
// expression.
func (t *Template) Prefix() string { return t.prefix }

func parseExpression(text string, seen map[string]bool) (p component, err error) {
	if text == "" {
		return p, fmt.Errorf("there is no variable in it")
	}
	if strings.IndexByte(operators, text[0]) >= 0 {
		p.op, text = text[0], text[1:]
	}
	for spec := range strings.SplitSeq(text, ",") {
		v, err := parseVariable(spec)
		if err != nil {
			return p, err
		}
		if seen[v.name] {
			return p, fmt.Errorf("the variable %q stands twice, so that a URI could give it two values", v.name)
		}
		if seen[v.name] = true; len(seen) > maxVariables {
			return p, fmt.Errorf("there are more than %d variables", maxVariables)
		}
		p.vars = append(p.vars, v)
	}
	return p, nil
}

func parseVariable(spec string) (v variable, err error) {
	name, length, prefixed := strings.Cut(spec, ":")
	if v.name, v.explode = strings.CutSuffix(name, "*"); !validName(v.name) {
		return v, fmt.Errorf("%q is no variable", spec)
	}
	if !prefixed {
		return v, nil
	}
	v.maxLen, err = strconv.Atoi(length)
	if err != nil || v.explode || len(length) > 4 || length[0] < '1' || length[0] > '9' {
		return v, fmt.Errorf("%q is no variable: behind the colon there must be a number from 1 to 9999", spec)
	}
	return v, nil
}

// validName reports whether a name is one of RFC 6570, section 2.3.
func validName(name string) bool {
	if name == "" || name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, "..") {
		return false
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '_', c == '.', isAlphanumeric(c):
		case c == '%' && isEncoded(name[i:]):
			i += 2
		default:
			return false
		}
	}
	return true
}

// encodeLiteral returns a literal as it stands in a normal URI, and the index of
// what cannot be in one, or -1.
func encodeLiteral(s string) (literal string, badAt int) {
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		switch r, n := utf8.DecodeRuneInString(s[i:]); {
		case r == utf8.RuneError && n == 1:
			return "", i
		case c == '%' && isEncoded(s[i:]):
			b.WriteString(s[i : i+3])
			i += 3
			continue
		case c <= ' ', c == 0x7f, strings.IndexByte("\"%<>\\^`|}", c) >= 0:
			return "", i
		case n > 1:
			for ; n > 0; n, i = n-1, i+1 {
				fmt.Fprintf(&b, "%%%02X", s[i])
			}
			continue
		}
		b.WriteByte(c)
		i++
	}
	return Normalize(b.String()), -1
}

func isAlphanumeric(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
}

// isEncoded reports whether s, which begins with a percent sign, goes on with two hexadecimal digits.
func isEncoded(s string) bool { return len(s) >= 3 && isHex(s[1]) && isHex(s[2]) }

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

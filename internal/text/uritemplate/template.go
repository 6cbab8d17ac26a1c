package uritemplate

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// A Template is a parsed URI template.
type Template struct {
	components []component
	// prefix is the literal beginning of each URI.
	prefix     string
	literalLen int

	// once guards the compilation of re, at the first URI with the prefix.
	once sync.Once
	re   *regexp.Regexp
	// groups describes the groups of re.
	groups []group
	// countedChars is the number of characters that re counts.
	countedChars int
}

// A component is a literal or, if it has variables, an expression.
type component struct {
	// literal is encoded as in a URI.
	literal string
	// op is the operator, or 0.
	op   byte
	vars []variable
}

type variable struct {
	name    string
	explode bool
	// maxLen limits the characters. Zero means no limit.
	maxLen int
}

// maxVariables limits the variables of a template, because package regexp limits the nesting that
// {/a,b,c} needs.
const maxVariables = 64

// operators are those of RFC 6570, section 2.2. The RFC reserves =,!@| for later.
const operators = "+#./;?&"

// Parse parses a template. An error says what is wrong and where.
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
				return nil, fmt.Errorf("URI template: at byte %d: %q is not allowed outside braces", at+bad, rest[bad])
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

// Names returns the names of the variables in order.
func (t *Template) Names() []string {
	var names []string
	for _, p := range t.components {
		for _, v := range p.vars {
			names = append(names, v.name)
		}
	}
	return names
}

// LiteralLen returns the number of literal bytes of the template. Of two templates that match a
// URI, the one with more literal bytes is more specific.
func (t *Template) LiteralLen() int { return t.literalLen }

// Prefix returns the literal text before the first expression, with which each URI begins.
func (t *Template) Prefix() string { return t.prefix }

func parseExpression(text string, seen map[string]bool) (p component, err error) {
	if text == "" {
		return p, fmt.Errorf("it contains no variable")
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
			return p, fmt.Errorf("the variable %q appears twice, so a URI could give it two values", v.name)
		}
		if seen[v.name] = true; len(seen) > maxVariables {
			return p, fmt.Errorf("more than %d variables", maxVariables)
		}
		p.vars = append(p.vars, v)
	}
	return p, nil
}

func parseVariable(spec string) (v variable, err error) {
	name, length, prefixed := strings.Cut(spec, ":")
	if v.name, v.explode = strings.CutSuffix(name, "*"); !validName(v.name) {
		return v, fmt.Errorf("%q is not a variable", spec)
	}
	if !prefixed {
		return v, nil
	}
	v.maxLen, err = strconv.Atoi(length)
	if err != nil || v.explode || len(length) > 4 || length[0] < '1' || length[0] > '9' {
		return v, fmt.Errorf("%q is not a variable: the number after the colon must be from 1 to 9999", spec)
	}
	return v, nil
}

// validName reports whether a name is valid by RFC 6570, section 2.3.
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

// encodeLiteral returns a literal encoded as in a normalized URI, and -1 or the index of an invalid
// character.
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

// isEncoded reports whether s, which begins with a percent sign, continues with two hexadecimal
// digits.
func isEncoded(s string) bool { return len(s) >= 3 && isHex(s[1]) && isHex(s[2]) }

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// Match returns the percent-decoded values of the variables in a URI, and whether the URI matches.
// Absent variables are not in the map; only a variable with a star can have several values. The URI
// must be a result of [Normalize]. The time is proportional to its length.
func (t *Template) Match(uri string) (vars map[string][]string, ok bool) {
	if !strings.HasPrefix(uri, t.prefix) {
		return nil, false
	}
	t.once.Do(t.compile)
	found := t.re.FindStringSubmatchIndex(uri)
	if found == nil {
		return nil, false
	}
	vars = make(map[string][]string)
	for i, g := range t.groups {
		start, end := found[2*i+2], found[2*i+3]
		if start >= 0 && !g.assign(vars, uri[start:end]) {
			return nil, false
		}
	}
	return vars, true
}

// assign stores a captured text in vars and reports whether it is valid.
func (g *group) assign(vars map[string][]string, captured string) bool {
	if !g.named {
		v := g.vars[0]
		if !v.explode {
			return v.add(vars, captured)
		}
		for one := range strings.SplitSeq(captured, g.sep) {
			if one == "" || !v.add(vars, one) {
				return false
			}
		}
		return true
	}
	for pair := range strings.SplitSeq(captured, g.sep) {
		name, value, _ := strings.Cut(pair, "=")
		i := slices.IndexFunc(g.vars, func(v variable) bool { return Normalize(v.name) == name })
		if i < 0 || !g.vars[i].add(vars, value) {
			return false
		}
	}
	return true
}

// add adds a value and reports whether it is valid for the variable.
func (v *variable) add(vars map[string][]string, value string) bool {
	decoded, err := url.PathUnescape(value)
	switch {
	case err != nil, !utf8.ValidString(decoded),
		len(vars[v.name]) > 0 && !v.explode,
		v.maxLen > 0 && utf8.RuneCountInString(decoded) > v.maxLen:
		return false
	}
	vars[v.name] = append(vars[v.name], decoded)
	return true
}

// Normalize returns the URI with upper-case percent-encoding, and with unreserved characters
// decoded. Both are equivalent by RFC 3986, section 6.2.2.
func Normalize(uri string) string {
	if strings.IndexByte(uri, '%') < 0 {
		return uri
	}
	b := make([]byte, 0, len(uri))
	for i := 0; i < len(uri); i++ {
		if uri[i] != '%' || !isEncoded(uri[i:]) {
			b = append(b, uri[i])
			continue
		}
		if c := digit(uri[i+1])<<4 | digit(uri[i+2]); isAlphanumeric(c) || strings.IndexByte("-._~", c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', upper(uri[i+1]), upper(uri[i+2]))
		}
		i += 2
	}
	return string(b)
}

// digit returns the value of a hexadecimal digit.
func digit(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return upper(c) - 'A' + 10
}

func upper(c byte) byte {
	if c >= 'a' {
		c -= 'a' - 'A'
	}
	return c
}

// Character classes of RFC 3986, for regular expressions.
const (
	unreserved      = `A-Za-z0-9._~\-`
	unreservedNoDot = `A-Za-z0-9_~\-`
	subDelims       = `!$&'()*+,;=`
	query           = unreserved + subDelims + `:@/?`
)

const (
	encoded = `%[0-9A-F]{2}` // one byte, in upper case
	// character is one character, which is up to four bytes of UTF-8. Where characters are not
	// counted, encoded is smaller.
	character = `%[0-7][0-9A-F]|%[CD][0-9A-F]%[89AB][0-9A-F]|%E[0-9A-F](?:%[89AB][0-9A-F]){2}|%F[0-7](?:%[89AB][0-9A-F]){3}`
)

// A group describes a group of the regular expression.
type group struct {
	// named reports that the group captures names and values of vars, in any order.
	named bool
	// sep separates the names and values, or the elements of a list.
	sep string
	// vars has one element unless named is set.
	vars []variable
}

// compile builds the regular expression and describes its groups.
func (t *Template) compile() {
	var b strings.Builder
	b.WriteByte('^')
	for i := range t.components {
		p := &t.components[i]
		switch {
		case p.vars == nil:
			b.WriteString(regexp.QuoteMeta(p.literal))
		case strings.IndexByte(";?&", p.op) >= 0:
			t.groups = append(t.groups, p.compileNamed(&b))
		default:
			t.compilePositional(&b, i)
		}
	}
	b.WriteByte('$')
	t.re = regexp.MustCompile(b.String())
}

// compileNamed captures all names and values in one group, because their order is not fixed.
func (c *component) compileNamed(b *strings.Builder) group {
	sep, class := "&", query
	if c.op == ';' {
		sep, class = ";", unreserved+";="
	}
	fmt.Fprintf(b, `(?:%s((?:[%s]|%s)+))?`, regexp.QuoteMeta(string(c.op)), class, encoded)
	return group{named: true, sep: sep, vars: c.vars}
}

func (t *Template) compilePositional(b *strings.Builder, i int) {
	p := &t.components[i]
	sep, class := ",", unreserved
	switch p.op {
	case '+', '#':
		class = t.reserved(i)
	case '/':
		sep = "/"
	case '.':
		if sep = "."; len(p.vars) > 1 || p.vars[0].explode {
			class = unreservedNoDot
		}
	}
	closing := ""
	// The expression may be absent.
	if p.op != 0 && p.op != '+' {
		b.WriteString("(?:")
		if p.op != sep[0] {
			b.WriteString(regexp.QuoteMeta(string(p.op)))
		}
		closing = ")?"
	}
	for k, v := range p.vars {
		switch {
		// Each variable after the first may be absent.
		case p.op == sep[0]:
			if k > 0 {
				b.WriteString("(?:")
				closing += ")?"
			}
			b.WriteString(regexp.QuoteMeta(sep))
		case k > 0:
			b.WriteString(sep)
		}
		t.compileValue(b, v, class, sep)
		t.groups = append(t.groups, group{sep: sep, vars: p.vars[k : k+1]})
	}
	b.WriteString(closing)
}

// reserved returns the character class of a reserved expression.
func (t *Template) reserved(i int) string {
	class := unreserved + subDelims + `:/\[\]@`
	for _, later := range t.components[i+1:] {
		switch later.op {
		case '?':
			return class
		case '#':
			return class + "?"
		}
	}
	return class + "?#"
}

// maxCounted limits the characters that a template's expression counts for all prefixes, because
// each one makes it larger and slower. Match checks the length of the others.
const maxCounted = 100

// compileValue captures the variable's value, or its list of values, in one group.
func (t *Template) compileValue(b *strings.Builder, v variable, class, sep string) {
	value := fmt.Sprintf(`(?:[%s]|%s)+`, class, encoded)
	if v.maxLen > 0 && t.countedChars+v.maxLen <= maxCounted {
		t.countedChars += v.maxLen
		value = fmt.Sprintf(`(?:[%s]|%s){1,%d}`, class, character, v.maxLen)
	}
	if v.explode {
		value += fmt.Sprintf(`(?:%s%s)*`, regexp.QuoteMeta(sep), value)
	}
	fmt.Fprintf(b, "(%s)", value)
}

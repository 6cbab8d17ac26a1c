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

// Match returns what the variables are in the URI, with their percent-encoding
// undone, and whether the URI is one of the template at all. A variable that is
// left out is absent; only one with a star can have more than one value. The URI must
// be as [Normalize] returns it. The time it takes is proportional to its length.
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

// assign puts what was captured into vars and reports whether it can be that.
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

// add adds a value and reports whether the variable can have it.
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

// Normalize returns the URI with its percent-encoding in upper case, and without
// that of characters which need none: neither makes a difference (RFC 3986, section
// 6.2.2).
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

// digit returns what a hexadecimal digit stands for.
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

// The characters of RFC 3986, for classes of regular expressions.
const (
	unreserved      = `A-Za-z0-9._~\-`
	unreservedNoDot = `A-Za-z0-9_~\-`
	subDelims       = `!$&'()*+,;=`
	query           = unreserved + subDelims + `:@/?`
)

const (
	encoded = `%[0-9A-F]{2}` // one byte, in upper case
	// character is one character, which is up to four bytes of UTF-8. Where characters need not be counted, encoded makes a smaller expression.
	character = `%[0-7][0-9A-F]|%[CD][0-9A-F]%[89AB][0-9A-F]|%E[0-9A-F](?:%[89AB][0-9A-F]){2}|%F[0-7](?:%[89AB][0-9A-F]){3}`
)

// A group is what one group of the regular expression captures.
type group struct {
	named bool       // names and values of the vars, in any order
	sep   string     // between the names and values, or the elements of a list
	vars  []variable // one unless named
}

// compile makes the regular expression, and says what its groups mean.
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

// compileNamed takes all names and values as one group: their order is not fixed.
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
	if p.op != 0 && p.op != '+' { // it may be left out
		b.WriteString("(?:")
		if p.op != sep[0] {
			b.WriteString(regexp.QuoteMeta(string(p.op)))
		}
		closing = ")?"
	}
	for k, v := range p.vars {
		switch {
		case p.op == sep[0]: // so may each behind the first
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

// reserved returns the class of the characters of a reserved expression.
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

// maxCounted is how many characters the expression of a template counts for all of its prefixes: each makes it larger and slower. What is beyond is not
// counted before it is known what a variable is.
const maxCounted = 100

// compileValue takes the variable's value, or its list of them, as one group.
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

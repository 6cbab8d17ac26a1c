package uritemplate

import (
	"fmt"
	"regexp"
	"strings"
)

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

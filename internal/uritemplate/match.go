package uritemplate

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

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

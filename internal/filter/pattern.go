package filter

import (
	"regexp"
	"strings"
)

// A pattern is what a value is compared with.
type pattern struct {
	re     *regexp.Regexp // nil: text
	source string         // of re
	str    string         // in lower case
	glob   bool           // * in str stands for anything
}

func (p pattern) match(value string) bool {
	switch {
	case p.re != nil:
		return p.re.MatchString(value)
	case p.glob:
		return matchGlob(p.str, strings.ToLower(value))
	}
	return len(value) < 4*len(p.str)+4 && strings.ToLower(value) == p.str
}

func (p pattern) String() string {
	switch {
	case p.re != nil:
		return p.source
	case p.glob:
		return p.str // came without quotes, so it needs none
	}
	return quoteValue(p.str)
}

// matchGlob reports whether s is what the pattern says, in which * stands for any text.
func matchGlob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(s, first) {
		return false
	}
	s = s[len(first):]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, last)
}

// quoteValue returns a value so that it is read as this text.
func quoteValue(s string) string {
	if s == "" || strings.ContainsAny(s, "\"()|*\\") || strings.HasPrefix(s, "/") || strings.ContainsFunc(s, isSpace) {
		return quote(s)
	}
	return s
}

// quoteWord returns a word so that it is looked for as this text.
func quoteWord(s string) string {
	if strings.HasPrefix(s, "-") || strings.ContainsAny(s, ":<>=*") || s == "or" {
		return quote(s)
	}
	return quoteValue(s)
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

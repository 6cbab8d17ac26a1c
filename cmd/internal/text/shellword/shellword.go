// Package shellword quotes words of commands for a POSIX shell, and names the variables that stand
// in them for secrets.
package shellword

import (
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/text/printable"
)

// plain has the characters that need no quotes.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+,"

// IsPlain reports if a text is one word without quotes.
func IsPlain(s string) bool { return s != "" && strings.Trim(s, plain) == "" }

// Quote returns a text between single quotes, so that the shell expands nothing in it.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Word quotes a text, which may come from a peer, as one word without expansions. It escapes
// control characters first.
func Word(s string) string {
	s = printable.Line(s)
	// Assignments and flags such as NAME=value need no quotes, unless the word begins with =, which
	// zsh expands, or has something after = that bash would expand.
	name, value, ok := strings.Cut(s, "=")
	if IsPlain(s) || ok && name != "" && IsPlain(name+strings.ReplaceAll(value, "=", "")) {
		return s
	}
	return Quote(s)
}

// Variables has a shell variable for each of some secrets. The zero value is empty.
type Variables struct {
	byKey map[string]string
	names []string
}

// Names returns the names of the variables, in the order of their first use.
func (v *Variables) Names() []string { return v.names }

// Name returns the variable of the secret with a key. A new one is named prefix and the first 40
// bytes of hint, in capitals, and gets a number if another variable has that name.
func (v *Variables) Name(key, prefix, hint string) string {
	if name, ok := v.byKey[key]; ok {
		return name
	}
	base := prefix + Identifier(hint)
	name := base
	for i := 2; slices.Contains(v.names, name); i++ {
		name = base + "_" + strconv.Itoa(i)
	}
	if v.byKey == nil {
		v.byKey = map[string]string{}
	}
	v.byKey[key] = name
	v.names = append(v.names, name)
	return name
}

// Identifier returns the first 40 bytes of a text as part of the name of a variable: in capitals,
// with _ in place of what is not a letter or a digit.
func Identifier(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, text[:min(len(text), 40)])
}

package detail

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/printable"
)

// A shellLine is a command line that is being written. What it is given is hostile: whatever stands in it, the shell takes each word for one word and nothing else, and a terminal
// that it is pasted into for text.
type shellLine struct {
	words     []string
	variables map[string]string // by placeholder
	names     []string
	notes     []string
	invalid   string
}

func newShellLine() *shellLine { return &shellLine{variables: map[string]string{}} }

// reset begins the line anew.
func (l *shellLine) reset() {
	l.words, l.names, l.notes, l.invalid = nil, nil, nil, ""
	clear(l.variables)
}

func (l *shellLine) note(text string) { l.notes = append(l.notes, text) }

// secrets returns how many different ones the line needs.
func (l *shellLine) secrets() int { return len(l.names) }

// word adds a word. Placeholders of secrets in it become variables.
func (l *shellLine) word(text string) {
	if !pasteable(text) {
		l.invalid = "there are characters in it that no command line should have"
		return
	}
	l.words = append(l.words, l.quote(text, ""))
}

// json adds a JSON text as a word, with what cannot be seen escaped, and reports whether it could.
func (l *shellLine) json(text []byte) bool {
	if jsonwire.Valid(text, 0) != nil {
		return false
	}
	if jsonwire.HasSpace(text) {
		text = jsonwire.AppendCompact(nil, text)
	}
	safe := printable.JSON(text)
	if !bytes.Equal(safe, text) {
		l.note("characters that cannot be seen are escaped in the JSON, which says the same")
	}
	before := len(l.names)
	l.words = append(l.words, l.quote(string(safe), ""))
	if len(l.names) > before {
		l.note("the variables stand inside of JSON strings: quotes and backslashes in their values have to be escaped")
	}
	return true
}

// quote writes a word for the shell. hint names variables, "" is after the kind of secret.
func (l *shellLine) quote(text, hint string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+,"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	var b strings.Builder
	for text != "" {
		at := placeholder.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		if at[0] > 0 {
			b.WriteString(singleQuoted(text[:at[0]]))
		}
		b.WriteString(`"$` + l.variable(text[at[0]:at[1]], text[at[2]:at[3]], hint) + `"`)
		text = text[at[1]:]
	}
	if text != "" || b.Len() == 0 {
		b.WriteString(singleQuoted(text))
	}
	return b.String()
}

func singleQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// variable returns the name of the variable for a secret.
func (l *shellLine) variable(placeholder, kind, hint string) string {
	if name, ok := l.variables[placeholder]; ok {
		return name
	}
	if hint == "" {
		hint = kind
	}
	base := "MCPWIRE_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, hint[:min(len(hint), 40)])
	name := base
	for i := 2; slices.Contains(l.names, name); i++ {
		name = base + "_" + strconv.Itoa(i)
	}
	l.variables[placeholder] = name
	l.names = append(l.names, name)
	return name
}

// command returns the line.
func (l *shellLine) command() (*Command, error) {
	if l.invalid != "" {
		return nil, fmt.Errorf("%w: %s", ErrNoCommand, l.invalid)
	}
	if n := len(l.names); n > 0 {
		l.note(fmt.Sprintf("set %s first: the capture does not have what was secret", strings.Join(l.names, ", ")))
	}
	return &Command{Text: strings.Join(l.words, " "), Variables: l.names, Notes: l.notes}, nil
}

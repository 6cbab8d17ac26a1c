package mcptest

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
)

// maxDiffs is how many differences a failure lists.
const maxDiffs = 20

// A match compares a message with a pattern.
type match struct {
	vars     variables // those from before, and those that the message gave a value
	diffs    []string  // what differs, each with its path; none means that the message fits
	verbatim bool      // strings of the pattern are what they are
}

// compare compares a message with a pattern. vars is left alone.
func compare(want, got value, vars variables) *match {
	m := &match{vars: maps.Clone(vars)}
	m.compareValue("", want, got)
	return m
}

func (m *match) addDiff(path, format string, args ...any) {
	if path == "" {
		path = "the message"
	}
	m.diffs = append(m.diffs, path+": "+fmt.Sprintf(format, args...))
}

func (m *match) compareValue(path string, want, got value) {
	if name, ok := want.variable(); ok && !m.verbatim {
		m.compareVariable(path, name, want, got)
		return
	}
	if want.kind != got.kind {
		m.addDiff(path, "got %s, want %s", brief(got), brief(want))
		return
	}
	switch want.kind {
	case '{':
		m.compareObject(path, want, got)
	case '[':
		m.compareArray(path, want, got)
	default:
		if !m.sameScalar(want, got) {
			m.addDiff(path, "got %s, want %s", brief(got), brief(want))
		}
	}
}

func (m *match) sameScalar(want, got value) bool {
	switch want.kind {
	case '"':
		if m.verbatim {
			return want.text == got.text
		}
		return literal(want.text) == got.text
	case '0':
		return sameNumber(string(want.raw), string(got.raw))
	}
	return true
}

func (m *match) compareVariable(path, name string, want, got value) {
	if want.text == anything {
		return
	}
	bound, ok := m.vars[name]
	if !ok {
		m.vars[name] = got
		return
	}
	same := match{verbatim: true}
	if same.compareValue("", bound, got); len(same.diffs) > 0 {
		m.addDiff(path, "got %s, want $%s, which is %s", brief(got), name, brief(bound))
	}
}

func (m *match) compareObject(path string, want, got value) {
	if name, ok := got.duplicate(); ok {
		m.addDiff(joinPath(path, name), "stands twice")
	}
	named := make(map[string]bool, len(want.members))
	allowsExtra := want.allowsExtra() && !m.verbatim
	for _, w := range want.members {
		if allowsExtra && w.name == anything {
			continue
		}
		name := w.name
		if !m.verbatim {
			name = literalName(name)
		}
		named[name] = true
		if g := got.member(name); g != nil {
			m.compareValue(joinPath(path, name), w.value, *g)
		} else {
			m.addDiff(joinPath(path, name), "missing, want %s", brief(w.value))
		}
	}
	for _, g := range got.members {
		if !allowsExtra && !named[g.name] {
			m.addDiff(joinPath(path, g.name), "got %s, want no such member", brief(g.value))
		}
	}
}

func (m *match) compareArray(path string, want, got value) {
	for i := range max(len(want.elems), len(got.elems)) {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(got.elems):
			m.addDiff(at, "missing, want %s", brief(want.elems[i]))
		case i >= len(want.elems):
			m.addDiff(at, "got %s, want no such element", brief(got.elems[i]))
		default:
			m.compareValue(at, want.elems[i], got.elems[i])
		}
	}
}

// diffText lists the problems, indented.
func (m *match) diffText() string {
	text := ""
	for i, p := range m.diffs {
		if i == maxDiffs {
			text += fmt.Sprintf("    and %d more\n", len(m.diffs)-i)
			break
		}
		text += "    " + p + "\n"
	}
	return text
}

// literalName is the name that a member of a pattern has in the message: "$$any" is "$any". Others with dollar signs, "$ref" and "$schema" among
// them, stand for themselves.
func literalName(name string) string {
	if escapedAny.MatchString(name) {
		return name[1:]
	}
	return name
}

// escapeName is the reverse of literalName.
func escapeName(name string) string {
	if name == anything || escapedAny.MatchString(name) {
		return "$" + name
	}
	return name
}

var (
	escapedAny = regexp.MustCompile(`^\$\$+any$`)
	simpleName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)
)

// joinPath appends a member's name to a path.
func joinPath(path, name string) string {
	switch {
	case !simpleName.MatchString(name):
		return path + "[" + string(jsonwire.AppendQuote(nil, name)) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// brief is a value in a message to a person.
func brief(v value) string { return clip(v.String(), 200) }

// clip cuts a text that is too long to read.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:limit], ""), len(text))
}

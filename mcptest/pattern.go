package mcptest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/json/decimal"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
)

// maxDiffs limits the differences in a failure.
const maxDiffs = 20

// A match compares a message with a pattern.
type match struct {
	// vars holds the earlier variables and those that the message has set.
	vars variables
	// diffs lists the differences with their paths. It is empty if the message matches.
	diffs []string
	// verbatim disables variables in the pattern.
	verbatim bool
}

// compare compares a message with a pattern. It does not modify vars.
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
		return decimal.Parse(want.raw).Compare(decimal.Parse(got.raw)) == 0
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
		m.addDiff(joinPath(path, name), "appears twice")
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

// diffText lists the differences, indented.
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

// literalName returns the name that a pattern's member has in the message: "$$any" becomes "$any".
// Other names with dollar signs, such as "$ref" and "$schema", do not change.
func literalName(name string) string {
	if escapedAny.MatchString(name) {
		return name[1:]
	}
	return name
}

// escapeName is the inverse of literalName.
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

// brief formats a value for a failure.
func brief(v value) string { return shorten(v.String(), 200) }

// shorten shortens a long text and adds its size.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return fmt.Sprintf("%s (%d bytes)", clip.String(text, limit), len(text))
}

// merge appends the pattern of a message that replaces an expected one. It keeps the variables of
// the old pattern that still match and copies the rest. want is nil without an old pattern.
// Variables are set as in compare.
func (m *match) merge(dst []byte, want *value, got value) []byte {
	if want != nil {
		if _, ok := want.variable(); ok {
			before := len(m.diffs)
			if m.compareValue("", *want, got); len(m.diffs) == before {
				return append(dst, want.raw...)
			}
			want = nil
		} else if want.kind != got.kind {
			want = nil
		}
	}
	switch got.kind {
	case '{':
		return m.mergeObject(dst, want, got)
	case '[':
		dst = append(dst, '[')
		for i, e := range got.elems {
			var w *value
			if want != nil && i < len(want.elems) {
				w = &want.elems[i]
			}
			dst = m.merge(appendComma(dst, i), w, e)
		}
		return append(dst, ']')
	case '"':
		if escaped := escape(got.text); escaped != got.text {
			return jsonwire.AppendQuote(dst, escaped)
		}
	}
	return append(dst, got.raw...)
}

func (m *match) mergeObject(dst []byte, want *value, got value) []byte {
	dst = append(dst, '{')
	allowsExtra := want != nil && want.allowsExtra()
	n := 0
	for _, g := range got.members {
		var w *value
		if want != nil {
			w = want.member(escapeName(g.name))
		}
		if w == nil && allowsExtra {
			continue
		}
		dst = appendComma(dst, n)
		dst = append(jsonwire.AppendQuote(dst, escapeName(g.name)), ':')
		dst = m.merge(dst, w, g.value)
		n++
	}
	if allowsExtra {
		dst = append(appendComma(dst, n), `"`+anything+`":"`+anything+`"`...)
	}
	return append(dst, '}')
}

// anything is the variable that matches any value and is never set.
const anything = "$any"

// variables maps names, without the dollar sign, to values.
type variables map[string]value

var (
	variableText = regexp.MustCompile(`^\$[A-Za-z_][A-Za-z0-9_]*$`)
	escapedText  = regexp.MustCompile(`^\$\$+[A-Za-z_][A-Za-z0-9_]*$`)
)

// variable returns the name of the variable if v is one.
func (v value) variable() (name string, ok bool) {
	if v.kind != '"' || !variableText.MatchString(v.text) {
		return "", false
	}
	return v.text[1:], true
}

// literal returns the string that a pattern's string matches: "$$name" becomes "$name".
func literal(text string) string {
	if escapedText.MatchString(text) {
		return text[1:]
	}
	return text
}

// escape is the inverse of literal.
func escape(text string) string {
	if variableText.MatchString(text) || escapedText.MatchString(text) {
		return "$" + text
	}
	return text
}

// allowsExtra reports whether a pattern's object allows other members.
func (v value) allowsExtra() bool {
	rest := v.member(anything)
	return rest != nil && rest.kind == '"' && rest.text == anything
}

// expand replaces the variables of a text to send. It keeps the rest, except white space.
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

// names lists the variables for failures.
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

// maxDepth limits the nesting of messages and patterns. It is greater than the limit of servers.
const maxDepth = 2000

// A value is a parsed JSON value of a message or a pattern.
type value struct {
	// kind is one of { [ " 0 t f n.
	kind byte
	// raw is the JSON text.
	raw []byte
	// text is the decoded string.
	text    string
	members []member
	elems   []value
}

type member struct {
	// rawKey is the undecoded key without quotes.
	rawKey []byte
	name   string
	value  value
}

// parse parses a JSON text. Its error names the position.
func parse(text string) (value, error) {
	if err := jsonwire.Valid([]byte(text), maxDepth); err != nil {
		return value{}, err
	}
	return parseValid([]byte(strings.TrimSpace(text))), nil
}

// parseValid parses valid JSON without surrounding white space.
func parseValid(raw []byte) value {
	v := value{kind: raw[0], raw: raw}
	switch v.kind {
	case '{':
		for m := jsonwire.ObjectMembers(raw); m.Next(); {
			v.members = append(v.members, member{m.RawKey(), m.KeyString(), parseValid(m.Value())})
		}
	case '[':
		for e := jsonwire.ArrayElements(raw); e.Next(); {
			v.elems = append(v.elems, parseValid(e.Value()))
		}
	case '"':
		v.text = jsonwire.UnquoteString(raw[1 : len(raw)-1])
	case 't', 'f', 'n':
	default:
		v.kind = '0'
	}
	return v
}

// member returns the first member with the name, or nil.
func (v value) member(name string) *value {
	for i := range v.members {
		if v.members[i].name == name {
			return &v.members[i].value
		}
	}
	return nil
}

// duplicate returns the name of a member that occurs more than once in an object.
func (v value) duplicate() (name string, ok bool) {
	seen := make(map[string]bool, len(v.members))
	for _, m := range v.members {
		if seen[m.name] {
			return m.name, true
		}
		seen[m.name] = true
	}
	return "", false
}

// String returns the value's text without white space.
func (v value) String() string { return string(jsonwire.AppendCompact(nil, v.raw)) }

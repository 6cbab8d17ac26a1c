package mcptest

import (
	"strings"

	"mcpwire/internal/jsonwire"
)

// maxDepth is how deep messages and patterns may nest, somewhat deeper than servers take.
const maxDepth = 2000

// A value is a parsed JSON value, of a message or of a pattern.
type value struct {
	kind    byte   // one of { [ " 0 t f n
	raw     []byte // the text of a scalar, and what it was parsed from of the others
	text    string // the decoded string
	members []member
	elems   []value
}

type member struct {
	rawKey []byte // as it stands between the quotes
	name   string
	value  value
}

// parse reads one JSON text. The error names the place.
func parse(text string) (value, error) {
	if err := jsonwire.Valid([]byte(text), maxDepth); err != nil {
		return value{}, err
	}
	return parseValid([]byte(strings.TrimSpace(text))), nil
}

// parseValid reads what is known to be valid, without white space around it.
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

// duplicate returns the name of a member that stands twice in an object, if one does.
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

package schema

import (
	"bytes"

	"mcpwire/internal/jsonwire"
)

// enumRule lists the values allowed. Values are compared as JSON Schema does:
// numbers by value, objects without regard to order.
type enumRule struct {
	texts   []string // as JSON, for messages
	keys    []string // canonical, in the order of texts
	strings []string // the strings among them, decoded
	others  []string // the keys of all that are not strings

	// Instead of strings and others, if there are more than a few.
	byString map[string]string
	byKey    map[string]bool
}

// maxLinearValues is up to how many values comparing each is faster than a map.
const maxLinearValues = 12

// newEnum compiles an enum from the JSON texts of its values.
func newEnum(texts []string) *enumRule {
	r := &enumRule{texts: texts}
	for _, t := range texts {
		key := string(appendCanonical(nil, []byte(t)))
		r.keys = append(r.keys, key)
		if t[0] == '"' {
			r.strings = append(r.strings, jsonwire.UnquoteString([]byte(t[1:len(t)-1])))
		} else {
			r.others = append(r.others, key)
		}
	}
	if len(texts) > maxLinearValues {
		r.byString, r.byKey = map[string]string{}, map[string]bool{}
		for _, s := range r.strings {
			r.byString[s] = s
		}
		for _, k := range r.others {
			r.byKey[k] = true
		}
	}
	return r
}

// lookup returns the enum's own copy of the string with the content raw.
func (r *enumRule) lookup(raw []byte, escaped bool) (string, bool) {
	if escaped {
		raw = jsonwire.AppendUnquote(nil, raw)
	}
	if r.byString != nil {
		s, ok := r.byString[string(raw)]
		return s, ok
	}
	for _, s := range r.strings {
		if string(raw) == s {
			return s, true
		}
	}
	return "", false
}

// hasString reports whether s is among the values.
func (r *enumRule) hasString(s string) bool {
	if r.byString != nil {
		_, ok := r.byString[s]
		return ok
	}
	for _, v := range r.strings {
		if v == s {
			return true
		}
	}
	return false
}

// has reports whether the JSON value text, of any type and without white space
// around it, is among the values.
func (r *enumRule) has(text []byte) bool {
	if len(text) > 1 && text[0] == '"' {
		raw := text[1 : len(text)-1]
		_, ok := r.lookup(raw, bytes.IndexByte(raw, '\\') >= 0)
		return ok
	}
	if len(r.others) == 0 {
		return false
	}
	var buf [64]byte
	key := appendCanonical(buf[:0], text)
	if r.byKey != nil {
		return r.byKey[string(key)]
	}
	for _, k := range r.others {
		if string(key) == k {
			return true
		}
	}
	return false
}

// message describes the value at text[at], which is not among the enum's.
func (r *enumRule) message(text []byte, at int) string {
	switch len(r.texts) {
	case 0:
		return "expected no value at all, got " + gotAt(text, at)
	case 1:
		return expected(clipText([]byte(r.texts[0])), text, at)
	}
	return expected("one of "+listTexts(r.texts), text, at)
}

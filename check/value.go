package check

import (
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
)

// The functions of this file look into JSON text that has been validated, and copy nothing.

func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' }
func isArray(v []byte) bool  { return len(v) > 0 && v[0] == '[' }
func isString(v []byte) bool { return len(v) > 0 && v[0] == '"' }
func isNull(v []byte) bool   { return string(v) == "null" }
func isNumber(v []byte) bool { return len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9') }

// member returns the value of the first member of that name, nil if v is no object or has none.
func member(v []byte, name string) []byte {
	if !isObject(v) {
		return nil
	}
	for m := jsonwire.ObjectMembers(v); m.Next(); {
		if m.KeyIs(name) {
			return m.Value()
		}
	}
	return nil
}

// valueAt follows a path of names from v.
func valueAt(v []byte, path ...string) []byte {
	for _, name := range path {
		v = member(v, name)
	}
	return v
}

// stringValue returns the value of a string, "" for anything else.
func stringValue(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	return jsonwire.UnquoteString(v[1 : len(v)-1])
}

// elements yields the elements of an array with their places, nothing for anything else.
func elements(v []byte) func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		if !isArray(v) {
			return
		}
		i := 0
		for e := jsonwire.ArrayElements(v); e.Next(); i++ {
			if !yield(i, e.Value()) {
				return
			}
		}
	}
}

// members yields the members of an object, nothing for anything else.
func members(v []byte) func(yield func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		if !isObject(v) {
			return
		}
		for m := jsonwire.ObjectMembers(v); m.Next(); {
			if !yield(m.KeyString(), m.Value()) {
				return
			}
		}
	}
}

// pointer makes a JSON pointer (https://www.rfc-editor.org/rfc/rfc6901) of names and numbers.
func pointer(path ...any) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		switch p := p.(type) {
		case int:
			b.WriteString(strconv.Itoa(p))
		case string:
			b.WriteString(pointerEscaper.Replace(clipBytes(p, 128)))
		}
	}
	return b.String()
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// idKey returns a text that is the same for equal ids and tokens: 1 is not "1".
func idKey(id []byte) string {
	if isString(id) {
		return `"` + stringValue(id) // nothing else begins with a quote
	}
	if string(id) == "-0" {
		return "0"
	}
	return string(id)
}

// validated returns v if it is JSON, else nil.
func validated(v []byte) []byte {
	if v = trim(v); jsonwire.Valid(v, 0) != nil {
		return nil
	}
	return v
}

package era

import (
	"slices"

	"mcpwire/internal/json/jsonwire"
)

// Rewrite appends the object obj, which must be valid JSON, with changes. change returns the new
// value of each member, or nil to remove it. A nil change keeps all. added is the text of members
// to append, separated by commas, or nil. Rewrite keeps the bytes of names and values, and removes
// white space between members.
func Rewrite(dst, obj []byte, change func(m *jsonwire.Members) []byte, added []byte) []byte {
	dst = append(slices.Grow(dst, len(obj)+len(added)+1), '{')
	start := len(dst)
	members := jsonwire.ObjectMembers(obj)
	for members.Next() {
		v := members.Value()
		if change != nil {
			if v = change(&members); v == nil {
				continue
			}
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), members.RawKey()...), `":`...)
		dst = append(dst, v...)
	}
	if len(added) > 0 {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(dst, added...)
	}
	return append(dst, '}')
}

// RewriteMember returns the object obj with the new value of a member, as Rewrite does.
func RewriteMember(obj []byte, name string, change func(value []byte) []byte) []byte {
	return Rewrite(nil, obj, func(m *jsonwire.Members) []byte {
		if m.KeyIs(name) {
			return change(m.Value())
		}
		return m.Value()
	}, nil)
}

// RewriteArray appends the array arr with the elements that change returns. It removes an element
// for nil.
func RewriteArray(dst, arr []byte, change func(element []byte) []byte) []byte {
	dst = append(slices.Grow(dst, len(arr)), '[')
	start := len(dst)
	elements := jsonwire.ArrayElements(arr)
	for elements.Next() {
		v := change(elements.Value())
		if v == nil {
			continue
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(dst, v...)
	}
	return append(dst, ']')
}

// Lookup returns the value at a path of member names, or nil if it is absent or null. It aliases
// obj.
func Lookup(obj []byte, path ...string) []byte {
	c := Client{Capabilities: obj}
	return c.Capability(path...)
}

// LookupString returns the string at a path of member names, or "".
func LookupString(obj []byte, path ...string) string {
	return jsonwire.Text(Lookup(obj, path...))
}

// IsObject reports if the JSON text is an object. It must not begin with white space.
func IsObject(text []byte) bool { return len(text) > 0 && text[0] == '{' }

// isArray reports if the JSON text is an array. It must not begin with white space.
func isArray(text []byte) bool { return len(text) > 0 && text[0] == '[' }

package era

import (
	"slices"

	"mcpwire/internal/json/jsonwire"
)

// Rewrite appends the object obj, which is valid JSON, with changes: for each member, change returns the value that it has from now on, which may be the
// one it has, or nil to leave it out. What is added goes to the end: the text of members with commas between them, or nothing. All that is kept keeps
// its bytes, but for white space between the members.
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

// RewriteArray appends the array arr with each element as change returns it; an element that it returns nil for is left out.
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

// Lookup returns the value at a path of member names, nil if there is none or it is null.
func Lookup(obj []byte, path ...string) []byte {
	c := Client{Capabilities: obj}
	return c.Capability(path...)
}

// LookupString returns the string at a path of member names, "" if there is none.
func LookupString(obj []byte, path ...string) string {
	s, _ := stringValue(Lookup(obj, path...))
	return s
}

// IsObject reports whether the JSON text is an object.
func IsObject(text []byte) bool { return len(text) > 0 && text[0] == '{' }

// isArray reports whether the JSON text is an array.
func isArray(text []byte) bool { return len(text) > 0 && text[0] == '[' }

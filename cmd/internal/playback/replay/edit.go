package replay

import (
	"bytes"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
)

func quoted(s string) []byte { return jsonwire.AppendQuote(nil, s) }

// edit returns a valid JSON text with the value at a path replaced by the result of f; nil removes
// a member. f gets nil for a missing member of an existing object. If nothing changes, edit returns
// the same slice.
func edit(value []byte, path []string, f func(old []byte) []byte) []byte {
	if value = bytes.TrimSpace(value); len(path) == 0 {
		return f(value)
	}
	last := len(path) - 1
	around, at := jsonedit.Locate(value, path[:last]...), jsonedit.Locate(value, path...)
	in := around.Of(value)
	isObject := era.IsObject(in)
	var old []byte
	if at.Found() {
		old = at.Of(value)
	} else if !isObject {
		return value
	}
	switch made := f(old); {
	case made == nil && (old == nil || !isObject), made != nil && bytes.Equal(made, old):
		return value
	case made == nil:
		return jsonedit.Splice(value, around, era.Rewrite(nil, in, era.Without(path[last]), nil))
	case old == nil:
		out := append(append(append([]byte{'{'}, quoted(path[last])...), ':'), made...)
		if rest := bytes.TrimSpace(in[1:]); rest[0] != '}' {
			out = append(out, ',')
		}
		return jsonedit.Splice(value, around, append(out, in[1:]...))
	default:
		return jsonedit.Splice(value, at, made)
	}
}

// valueAt returns the value at a JSON pointer. It is empty if there is none.
func valueAt(value []byte, pointer string) []byte {
	return jsonedit.Locate(value, jsonpointer.Split(pointer)...).Of(value)
}

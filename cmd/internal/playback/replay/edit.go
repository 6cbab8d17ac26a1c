package replay

import (
	"bytes"
	"strconv"
	"strings"

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
	in := locate(value, path[:last])
	old := locate(in, path[last:])
	isObject := len(in) > 0 && in[0] == '{'
	if old == nil && !isObject {
		return value
	}
	switch made := f(old); {
	case made == nil && (old == nil || !isObject), made != nil && bytes.Equal(made, old):
		return value
	case made == nil:
		return splice(value, in, withoutMember(in, path[last]))
	case old == nil:
		out := append(append(append([]byte{'{'}, quoted(path[last])...), ':'), made...)
		if rest := bytes.TrimSpace(in[1:]); rest[0] != '}' {
			out = append(out, ',')
		}
		return splice(value, in, append(out, in[1:]...))
	default:
		return splice(value, old, made)
	}
}

// locate returns the value at a path of names and indexes, which aliases a valid JSON text, or nil.
func locate(value []byte, path []string) []byte {
	for _, name := range path {
		if len(value) == 0 || value[0] != '[' {
			value = jsonwire.Lookup(value, name)
			continue
		}
		elements := jsonwire.ArrayElements(value)
		value = nil
		for i := 0; value == nil && elements.Next(); i++ {
			if strconv.Itoa(i) == name {
				value = elements.Value()
			}
		}
	}
	return value
}

// splice replaces a part of a text. part aliases text.
func splice(text, part, by []byte) []byte {
	at := cap(text) - cap(part)
	out := make([]byte, 0, len(text)-len(part)+len(by))
	out = append(append(out, text[:at]...), by...)
	return append(out, text[at+len(part):]...)
}

// withoutMember returns an object without the members with the name.
func withoutMember(object []byte, name string) []byte {
	out := []byte{'{'}
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		if members.KeyIs(name) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), members.RawKey()...), '"', ':')
		out = append(out, members.Value()...)
	}
	return append(out, '}')
}

// valueAt returns the value at a JSON pointer, or nil.
func valueAt(value []byte, pointer string) []byte { return locate(value, pointerPath(pointer)) }

// pointerPath returns the names and indexes of a JSON pointer
// (https://www.rfc-editor.org/rfc/rfc6901).
func pointerPath(pointer string) []string {
	if pointer == "" {
		return nil
	}
	list := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, p := range list {
		list[i] = jsonpointer.Unescape(p)
	}
	return list
}

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
	value = bytes.TrimSpace(value)
	switch {
	case len(path) == 0:
		return f(value)
	case len(value) == 0:
		return value
	case value[0] == '{':
		return editObject(value, path, f)
	case value[0] != '[':
		return value
	}
	elements := jsonwire.ArrayElements(value)
	for i := 0; elements.Next(); i++ {
		if strconv.Itoa(i) != path[0] {
			continue
		}
		old := elements.Value()
		made := edit(old, path[1:], f)
		if made == nil || bytes.Equal(made, old) {
			return value
		}
		return splice(value, old, made)
	}
	return value
}

func editObject(value []byte, path []string, f func(old []byte) []byte) []byte {
	members := jsonwire.ObjectMembers(value)
	for members.Next() {
		if !members.KeyIs(path[0]) {
			continue
		}
		old := members.Value()
		made := edit(old, path[1:], f)
		switch {
		case made == nil:
			return withoutMember(value, path[0])
		case bytes.Equal(made, old):
			return value
		}
		return splice(value, old, made)
	}
	if len(path) > 1 {
		return value
	}
	made := f(nil)
	if made == nil {
		return value
	}
	out := append([]byte{'{'}, quoted(path[0])...)
	out = append(append(out, ':'), made...)
	if rest := bytes.TrimSpace(value[1:]); rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, value[1:]...)
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
func valueAt(value []byte, pointer string) []byte {
	for _, name := range pointerPath(pointer) {
		if len(value) == 0 {
			return nil
		}
		switch value[0] {
		case '{':
			value = jsonwire.Lookup(value, name)
		case '[':
			elements, found := jsonwire.ArrayElements(value), []byte(nil)
			for i := 0; elements.Next() && found == nil; i++ {
				if strconv.Itoa(i) == name {
					found = elements.Value()
				}
			}
			value = found
		default:
			return nil
		}
	}
	return value
}

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

// Package jsonpointer escapes, splits and follows JSON Pointers
// (https://www.rfc-editor.org/rfc/rfc6901).
package jsonpointer

import (
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonwire"
)

// Escape returns the token of a pointer for a member's name.
func Escape(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// Unescape returns the name that a token of a pointer stands for.
func Unescape(token string) string {
	if !strings.Contains(token, "~") {
		return token
	}
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// Split returns the names and indexes of a pointer, and none for the whole text.
func Split(pointer string) []string {
	if pointer == "" {
		return nil
	}
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, token := range tokens {
		tokens[i] = Unescape(token)
	}
	return tokens
}

// Find returns the value at a pointer into a valid JSON text, or nil if there is none. It aliases
// text. Of duplicate names the first counts.
func Find(text []byte, pointer string) []byte {
	for _, token := range Split(pointer) {
		if len(text) > 0 && text[0] == '[' {
			text = element(text, token)
		} else {
			text = jsonwire.Lookup(text, token)
		}
	}
	return text
}

// element returns the element of an array at an index, which has no sign and no leading zeros.
func element(array []byte, token string) []byte {
	n, err := strconv.Atoi(token)
	if err != nil || strconv.Itoa(n) != token {
		return nil
	}
	for e := jsonwire.ArrayElements(array); e.Next(); n-- {
		if n == 0 {
			return e.Value()
		}
	}
	return nil
}

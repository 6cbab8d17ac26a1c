// Package jsonpointer escapes and splits JSON Pointers (https://www.rfc-editor.org/rfc/rfc6901).
package jsonpointer

import "strings"

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

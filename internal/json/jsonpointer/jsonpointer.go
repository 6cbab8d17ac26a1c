// Package jsonpointer escapes the tokens of JSON Pointers (https://www.rfc-editor.org/rfc/rfc6901).
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

package server

import "mcpwire/internal/jsonwire"

// unquote returns what the text of a JSON string means.
func unquote(text []byte) string { return jsonwire.UnquoteString(text[1 : len(text)-1]) }

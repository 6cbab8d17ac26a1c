package server

import "mcpwire/internal/jsonwire"

// member returns the value of an object's member, or nil.
func member(object []byte, name string) []byte {
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		if members.KeyIs(name) {
			return members.Value()
		}
	}
	return nil
}

// unquote returns what the text of a JSON string means.
func unquote(text []byte) string { return jsonwire.UnquoteString(text[1 : len(text)-1]) }

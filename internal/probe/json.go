package probe

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// member returns the JSON text of a member of an object, or nil. The text must be valid JSON.
func member(text []byte, path ...string) []byte {
	for _, name := range path {
		if len(text) == 0 || text[0] != '{' {
			return nil
		}
		var found []byte
		for it := jsonwire.ObjectMembers(text); it.Next(); {
			if it.KeyIs(name) {
				found = it.Value()
				break
			}
		}
		if found == nil {
			return nil
		}
		text = bytes.TrimSpace(found)
	}
	return text
}

// elements are the elements of an array, at most limit.
func elements(text []byte, limit int) [][]byte {
	if len(text) == 0 || text[0] != '[' {
		return nil
	}
	var list [][]byte
	for it := jsonwire.ArrayElements(text); len(list) < limit && it.Next(); {
		list = append(list, bytes.TrimSpace(it.Value()))
	}
	return list
}

// textOf is what a JSON string says; "" for anything else.
func textOf(raw []byte) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func texts(list [][]byte) []string {
	var all []string
	for _, raw := range list {
		all = append(all, textOf(raw))
	}
	return all
}

// metaText is a text in the metadata of a message.
func metaText(m *jsonrpc.Message, key string) string {
	return textOf(member(m.Params, "_meta", key))
}

// show quotes text of a peer for people: clipped, nothing in it that a terminal acts on.
func show[T ~string | ~[]byte](text T) string {
	s := strconv.QuoteToGraphic(clip(string(text[:min(len(text), 400)]), maxShown))
	return strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsGraphic(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

const maxShown = 100 // characters of a peer's text in a finding

// clip cuts a text that is longer than n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

package filter

import (
	"bytes"
	"context"
	"strings"

	"mcpwire/internal/jsonwire"
)

// A hasScan looks for a member by its path.
type hasScan struct{ path string }

// hasTerm reads what stands behind "has:". Names are separated by dots; a name may have dots itself.
func (p *parser) hasTerm(start int) (node, error) {
	at := p.pos
	var path string
	var err error
	if strings.HasPrefix(p.src[p.pos:], `"`) {
		path, err = p.quoted()
	} else {
		path = p.unquoted()
		if err = p.expectEnd(); strings.ContainsAny(path, "*") || strings.HasPrefix(path, "/") {
			return nil, p.errorAt(at, "has: needs a path such as _meta.traceparent, without * and regular expressions; jq:(…) can do that")
		}
	}
	if err != nil {
		return nil, err
	}
	path = strings.TrimPrefix(path, ".")
	if path == "" {
		return nil, p.errorAt(at, "a path is missing behind has:, such as has:_meta.traceparent")
	}
	return p.addPayloadTerm(start, hasScan{path}, "has:"+quoteValue(path))
}

func (s hasScan) match(_ context.Context, payload []byte) bool {
	payload = bytes.TrimSpace(payload)
	if !isJSON(payload) {
		return false
	}
	if payload[0] != '[' {
		return s.matchMessage(payload)
	}
	for el := jsonwire.ArrayElements(payload); el.Next(); {
		if s.matchMessage(el.Value()) {
			return true
		}
	}
	return false
}

// isJSON reports whether a payload is an object or an array.
func isJSON(payload []byte) bool {
	return len(payload) > 0 && (payload[0] == '{' || payload[0] == '[') && jsonwire.Valid(payload, 0) == nil
}

func (s hasScan) matchMessage(msg []byte) bool {
	if hasPath(msg, s.path) {
		return true
	}
	if msg[0] != '{' {
		return false
	}
	for m := jsonwire.ObjectMembers(msg); m.Next(); {
		if (m.KeyIs("params") || m.KeyIs("result") || m.KeyIs("error")) && hasPath(m.Value(), s.path) {
			return true
		}
	}
	return false
}

// hasPath reports whether a value has a member with the path. In arrays, a number is an index, and anything else is looked for in all elements.
func hasPath(value []byte, path string) bool {
	switch {
	case len(value) == 0:
		return false
	case value[0] == '{':
		for m := jsonwire.ObjectMembers(value); m.Next(); {
			key := m.KeyString()
			if key == path {
				return true
			}
			if rest, ok := strings.CutPrefix(path, key); ok && strings.HasPrefix(rest, ".") && hasPath(m.Value(), rest[1:]) {
				return true
			}
		}
	case value[0] == '[':
		head, rest, more := strings.Cut(path, ".")
		index, isIndex := jsonwire.ParseInt([]byte(head))
		i := int64(0)
		for el := jsonwire.ArrayElements(value); el.Next(); i++ {
			if isIndex {
				if i == index {
					return !more || hasPath(el.Value(), rest)
				}
			} else if hasPath(el.Value(), path) {
				return true
			}
		}
	}
	return false
}

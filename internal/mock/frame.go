package mock

import (
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A frame is the text of a recorded message, on one line, without its id.
type frame struct {
	head, tail string
	hasID      bool // there is an id between them
}

// frameOf takes the id out of a valid message.
func frameOf(text []byte) frame {
	text = jsonrpc.OneLine(text)
	var s jsonwire.Scanner
	s.Reset(text, 0)
	more, err := s.EnterObject()
	for more && err == nil {
		var m jsonwire.Member
		if more, err = s.Member(&m); err == nil && jsonwire.RawEqual(text[m.NameStart:m.NameEnd], "id") {
			return frame{string(text[:m.Start]), string(text[m.End:]), true}
		}
	}
	return frame{head: string(text)}
}

// append appends the message with an id, if it has one.
func (f *frame) append(dst []byte, id jsonrpc.ID) []byte {
	dst = append(dst, f.head...)
	if f.hasID {
		dst = append(dst, id...)
		dst = append(dst, f.tail...)
	}
	return dst
}

// withMember appends a message with another value in the place at the end of a path, if it is there.
func withMember(dst, text, value []byte, path ...string) []byte {
	return era.Rewrite(dst, text, func(m *jsonwire.Members) []byte {
		switch {
		case !m.KeyIs(path[0]):
		case len(path) == 1:
			return value
		case era.IsObject(m.Value()):
			return withMember(nil, m.Value(), value, path[1:]...)
		}
		return m.Value()
	}, nil)
}

// withToken appends a progress notification with another token.
func withToken(dst, text, token []byte) []byte {
	return withMember(dst, text, token, "params", mcp.MetaProgressToken)
}

// withSubscription appends a message of a subscription, with another id of that.
func withSubscription(dst, text []byte, id jsonrpc.ID) []byte {
	for _, place := range []string{"params", "result"} {
		if era.Lookup(text, place, "_meta", mcp.MetaSubscriptionID) != nil {
			return withMember(dst, text, id, place, "_meta", mcp.MetaSubscriptionID)
		}
	}
	return append(dst, text...)
}

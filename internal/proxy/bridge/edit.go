package bridge

import (
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// A byteRange is the position of a value in a text. The zero value means that nothing was found.
type byteRange struct{ start, end int }

func (r byteRange) found() bool { return r.end > 0 }

func (r byteRange) slice(text []byte) []byte { return text[r.start:r.end] }

// locate returns the position of the value at a path of member names in an object, which must be
// valid JSON. Of duplicate names the first counts, as for jsonrpc.Message.
func locate(text []byte, path ...string) byteRange {
	whole := byteRange{0, len(text)}
	for _, name := range path {
		var ok bool
		if whole, ok = memberOf(text, whole, name); !ok {
			return byteRange{}
		}
	}
	return whole
}

// memberOf returns the position of the named member's value in the object at a position.
func memberOf(text []byte, object byteRange, name string) (byteRange, bool) {
	part := object.slice(text)
	var s jsonwire.Scanner
	s.Reset(part, 0)
	if s.Peek() != '{' {
		return byteRange{}, false
	}
	more, err := s.EnterObject()
	var m jsonwire.Member
	for more && err == nil {
		more, err = s.Member(&m)
		if err == nil && jsonwire.RawEqual(part[m.NameStart:m.NameEnd], name) {
			return byteRange{object.start + m.Start, object.start + m.End}, true
		}
	}
	return byteRange{}, false
}

// splice returns a copy of text with the bytes at a position replaced by value.
func splice(text []byte, at byteRange, value []byte) []byte {
	out := make([]byte, 0, len(text)+len(value)-(at.end-at.start))
	out = append(out, text[:at.start]...)
	out = append(out, value...)
	return append(out, text[at.end:]...)
}

// withID returns a copy of a message with another id, or the message itself if it has no id.
func withID(frame []byte, id jsonrpc.ID) []byte {
	at := locate(frame, "id")
	if !at.found() {
		return frame
	}
	return splice(frame, at, id)
}

// stringOf returns the value of a JSON string, and "" for any other value.
func stringOf(value []byte) string {
	s, _ := jsonrpc.ID(value).Text()
	return s
}

// compact returns a copy of a frame on one line.
func compact(frame []byte) []byte {
	line := jsonrpc.OneLine(frame)
	return append(make([]byte, 0, len(line)), line...)
}

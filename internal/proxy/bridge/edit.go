package bridge

import (
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// A span is where a value is in a text. The zero span is none.
type byteRange struct{ start, end int }

func (r byteRange) found() bool { return r.end > 0 }

func (r byteRange) slice(text []byte) []byte { return text[r.start:r.end] }

// locate returns where the value is that a path of names leads to from the object text, which is valid JSON. If a name stands twice the first counts, as it does for
// jsonrpc.Message.
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

// memberOf returns where the named member's value is, in the object that within is.
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

// splice returns a copy of text in which value stands where at is.
func splice(text []byte, at byteRange, value []byte) []byte {
	out := make([]byte, 0, len(text)+len(value)-(at.end-at.start))
	out = append(out, text[:at.start]...)
	out = append(out, value...)
	return append(out, text[at.end:]...)
}

// withID returns a copy of a message with another id. All else is as it was.
func withID(frame []byte, id jsonrpc.ID) []byte {
	at := locate(frame, "id")
	if !at.found() {
		return frame
	}
	return splice(frame, at, id)
}

// idKey returns what two ids have in common that are the same JSON value, however they are spelled.
func idKey(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return "s" + s
	}
	return string(id)
}

// stringOf returns the value of a JSON string; "" of anything else.
func stringOf(value []byte) string {
	s, _ := jsonrpc.ID(value).Text()
	return s
}

// compact returns a frame as one line, in memory of its own.
func compact(frame []byte) []byte {
	line := jsonrpc.OneLine(frame)
	return append(make([]byte, 0, len(line)), line...)
}

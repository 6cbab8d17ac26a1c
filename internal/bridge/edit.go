package bridge

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// A span is where a value is in a text. The zero span is none.
type span struct{ start, end int }

func (s span) found() bool { return s.end > 0 }

func (s span) of(text []byte) []byte { return text[s.start:s.end] }

// locate returns where the value is that a path of names leads to from the object text, which is valid JSON. If a name stands twice the first counts, as it does for
// jsonrpc.Message.
func locate(text []byte, path ...string) span {
	whole := span{0, len(text)}
	for _, name := range path {
		var ok bool
		if whole, ok = memberOf(text, whole, name); !ok {
			return span{}
		}
	}
	return whole
}

// memberOf returns where the named member's value is, in the object that within is.
func memberOf(text []byte, within span, name string) (span, bool) {
	part := within.of(text)
	var s jsonwire.Scanner
	s.Reset(part, 0)
	if s.Peek() != '{' {
		return span{}, false
	}
	more, err := s.EnterObject()
	var m jsonwire.Member
	for more && err == nil {
		more, err = s.Member(&m)
		if err == nil && jsonwire.RawEqual(part[m.NameStart:m.NameEnd], name) {
			return span{within.start + m.Start, within.start + m.End}, true
		}
	}
	return span{}, false
}

// splice returns a copy of text in which value stands where at is.
func splice(text []byte, at span, value []byte) []byte {
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

// text returns the value of a JSON string; "" of anything else.
func text(value []byte) string {
	s, _ := jsonrpc.ID(value).Text()
	return s
}

// compact returns a frame as one line, in memory of its own.
func compact(frame []byte) []byte {
	line := jsonrpc.OneLine(frame)
	return append(make([]byte, 0, len(line)), line...)
}

package bridge

import (
	"mcpwire/internal/json/jsonedit"
	"mcpwire/jsonrpc"
)

// withID returns a copy of a message with another id, or the message itself if it has no id.
func withID(frame []byte, id jsonrpc.ID) []byte {
	at := jsonedit.Locate(frame, "id")
	if !at.Found() {
		return frame
	}
	return jsonedit.Splice(frame, at, id)
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

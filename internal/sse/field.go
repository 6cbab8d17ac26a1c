package sse

import "time"

// A field is what a line holds.
type field uint8

const (
	fieldUnknown field = iota
	fieldComment
	fieldData
	fieldEvent
	fieldID
	fieldRetry
)

var fieldNames = [...]string{fieldData: "data", fieldEvent: "event", fieldID: "id", fieldRetry: "retry"}

// parseField tells the field of a line that is not empty, and the value that it has so far if its end is missing.
func parseField(line []byte) (field, []byte) {
	var f field
	switch line[0] {
	case ':':
		return fieldComment, nil
	case 'd':
		f = fieldData
	case 'e':
		f = fieldEvent
	case 'i':
		f = fieldID
	case 'r':
		f = fieldRetry
	default:
		return fieldUnknown, nil
	}
	name := fieldNames[f]
	if len(line) < len(name) || string(line[:len(name)]) != name {
		return fieldUnknown, nil
	}
	value := line[len(name):]
	switch {
	case len(value) == 0:
		return f, value
	case value[0] != ':':
		return fieldUnknown, nil
	case len(value) > 1 && value[1] == ' ':
		return f, value[2:]
	}
	return f, value[1:]
}

// mayBecomeField reports whether the start of a line may become a known field but is none yet: "data" may go on as "database".
func mayBecomeField(start []byte) bool {
	for _, name := range fieldNames[fieldData:] {
		if len(start) <= len(name) && name[:len(start)] == string(start) {
			return true
		}
	}
	return false
}

// parseRetry reads a time in milliseconds, at most MaxRetry. Anything but ASCII digits makes the field void.
func parseRetry(value []byte) (time.Duration, bool) {
	const most = int64(MaxRetry / time.Millisecond)
	var ms int64
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		ms = min(10*ms+int64(c-'0'), most)
	}
	return time.Duration(ms) * time.Millisecond, len(value) > 0
}

package watch

import (
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/traffic"
)

const (
	largeMessageBytes = 1 << 20   // bytes from which a message is truncated
	maxStringBytes    = 4 << 10   // bytes kept of a string; more than is shown
	maxListBytes      = 512 << 10 // bytes after which list elements become zeros
	maxMessageBytes   = 4 << 20   // bytes after which members are left out
	maxNumberBytes    = 256       // bytes kept of a number
	maxTruncateDepth  = jsonwire.DefaultMaxDepth
)

// truncateLarge returns an event for the model. It replaces a large message with one that gives
// the same row: long strings are cut, and the later elements of long lists are zeros. The model
// would take seconds to read the whole message, with its lock held.
func truncateLarge(e *capture.Event) *capture.Event {
	if e.Kind != capture.KindMessage || e.Cut || len(e.Data) < largeMessageBytes {
		return e
	}
	event := *e
	event.Frame = nil
	if event.Len == 0 {
		event.Len = int64(len(e.Data))
	}
	frame := e.Frame.Or(new(traffic.Frame), e.Data)
	if frame.Err != nil {
		event.Data, event.Cut = event.Data[:maxStringBytes], true
		return &event
	}
	depth := 0
	if frame.Batch {
		depth = -1
	}
	w := truncator{limit: maxListBytes}
	w.value(e.Data, depth)
	event.Data = w.out
	return &event
}

// A truncator copies valid JSON and cuts long values.
type truncator struct {
	out   []byte
	limit int
}

func (tr *truncator) value(v []byte, depth int) {
	for len(v) > 0 && (v[0] == ' ' || v[0] == '\t' || v[0] == '\n' || v[0] == '\r') {
		v = v[1:]
	}
	switch {
	case len(v) <= maxStringBytes && len(tr.out)+len(v) <= tr.limit:
		tr.out = append(tr.out, v...)
	case len(v) == 0:
	case v[0] == '"':
		tr.text(v)
	case v[0] == '{':
		tr.object(v, depth)
	case v[0] == '[':
		tr.array(v, depth)
	default: // true, false and null are shorter
		tr.number(v)
	}
}

// text copies the beginning of a string. It does not cut inside an escape, a surrogate pair or a
// character.
func (tr *truncator) text(v []byte) {
	end := 1
	for end < len(v)-1 && end < maxStringBytes {
		switch {
		case v[end] != '\\':
			_, n := utf8.DecodeRune(v[end:])
			end += n
		case v[end+1] != 'u':
			end += 2
		case (v[end+2] == 'd' || v[end+2] == 'D') && v[end+3] >= '8': // a high surrogate
			end += 12
		default:
			end += 6
		}
	}
	tr.out = append(append(tr.out, v[:min(end, len(v)-1)]...), '"')
}

func (tr *truncator) number(v []byte) {
	v = v[:min(len(v), maxNumberBytes)]
	for len(v) > 1 && (v[len(v)-1] < '0' || v[len(v)-1] > '9') {
		v = v[:len(v)-1]
	}
	tr.out = append(tr.out, v...)
}

func (tr *truncator) object(v []byte, depth int) {
	tr.out = append(tr.out, '{')
	sep := false
	for m := jsonwire.ObjectMembers(v); m.Next(); {
		// Each member has a new limit, so that a large one does not affect those after it.
		if depth <= 1 {
			tr.limit = len(tr.out) + maxListBytes
		}
		if len(tr.out) > tr.limit || len(tr.out) > maxMessageBytes || depth > maxTruncateDepth {
			break
		}
		if key := m.RawKey(); len(key) <= maxStringBytes {
			if sep {
				tr.out = append(tr.out, ',')
			}
			sep = true
			tr.out = append(append(append(tr.out, '"'), key...), '"', ':')
			tr.value(m.Value(), depth+1)
		}
	}
	tr.out = append(tr.out, '}')
}

func (tr *truncator) array(v []byte, depth int) {
	tr.out = append(tr.out, '[')
	sep := false
	for el := jsonwire.ArrayElements(v); el.Next(); sep = true {
		if depth > maxTruncateDepth || depth > 3 && len(tr.out) > tr.limit {
			break
		}
		if sep {
			tr.out = append(tr.out, ',')
		}
		if depth >= 0 && len(tr.out) > tr.limit { // elements of a batch are messages
			tr.out = append(tr.out, '0')
		} else {
			tr.value(el.Value(), depth+1)
		}
	}
	tr.out = append(tr.out, ']')
}

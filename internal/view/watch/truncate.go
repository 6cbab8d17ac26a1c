package watch

import (
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

const (
	largeMessageBytes = 1 << 20   // bytes of a message that the model is given as it is: it looks at them while others wait for the lock
	maxStringBytes    = 4 << 10   // bytes of a string that are left, far more than are shown of one
	maxListBytes      = 512 << 10 // bytes after which elements of lists are only counted
	maxMessageBytes   = 4 << 20   // bytes after which members of the message itself, and of its params, are left out
	maxNumberBytes    = 256       // bytes of a number that are left
	maxTruncateDepth  = jsonwire.DefaultMaxDepth
)

// truncateLarge returns an event for the model. A large message is replaced by one of which the model says the same: long strings end early, and the later elements of long lists are zeros. Reading it as a whole would take
// seconds, and nobody could read the model meanwhile.
func truncateLarge(e *capture.Event) *capture.Event {
	if e.Kind != capture.KindMessage || e.Cut || len(e.Data) < largeMessageBytes {
		return e
	}
	event := *e
	if event.Len == 0 {
		event.Len = int64(len(e.Data))
	}
	var msg jsonrpc.Message
	depth := 0
	if jsonrpc.IsBatch(e.Data) {
		depth = -1
		if _, err := jsonrpc.ParseBatch(e.Data, 0); err != nil {
			return truncateInvalid(&event)
		}
	} else if jsonrpc.Parse(e.Data, &msg, 0) != nil {
		return truncateInvalid(&event)
	}
	w := truncator{limit: maxListBytes}
	w.value(e.Data, depth)
	event.Data = w.out
	return &event
}

// truncateInvalid leaves the beginning of what is no message.
func truncateInvalid(e *capture.Event) *capture.Event {
	e.Data, e.Cut = e.Data[:maxStringBytes], true
	return e
}

// A slimmer copies JSON that is valid.
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

// text copies the beginning of a string, without cutting an escape, a pair of them, or a character.
func (tr *truncator) text(v []byte) {
	end := 1
	for end < len(v)-1 && end < maxStringBytes {
		switch {
		case v[end] != '\\':
			_, n := utf8.DecodeRune(v[end:])
			end += n
		case v[end+1] != 'u':
			end += 2
		case (v[end+2] == 'd' || v[end+2] == 'D') && v[end+3] >= '8': // the first half of a character
			end += 12
		default:
			end += 6
		}
	}
	tr.out = append(append(tr.out, v[:min(end, len(v)-1)]...), '"')
}

// number copies the beginning of a number.
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
		if depth <= 1 { // what stands behind something large matters as much
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
		if depth >= 0 && len(tr.out) > tr.limit { // of a batch each is a message
			tr.out = append(tr.out, '0')
		} else {
			tr.value(el.Value(), depth+1)
		}
	}
	tr.out = append(tr.out, ']')
}

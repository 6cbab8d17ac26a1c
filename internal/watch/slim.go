package watch

import (
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

const (
	slimFrom   = 1 << 20   // bytes of a message that the model is given as it is: it looks at them while others wait for the lock
	slimString = 4 << 10   // bytes of a string that are left, far more than are shown of one
	slimEnough = 512 << 10 // bytes after which elements of lists are only counted
	slimMost   = 4 << 20   // bytes after which members of the message itself, and of its params, are left out
	slimNumber = 256       // bytes of a number that are left
	slimDepth  = jsonwire.DefaultMaxDepth
)

// slim returns an event for the model. A large message is replaced by one of which the model says the same: long strings end early, and the later elements of long lists are zeros. Reading it as a whole would take
// seconds, and nobody could read the model meanwhile.
func slim(e *capture.Event) *capture.Event {
	if e.Kind != capture.KindMessage || e.Cut || len(e.Data) < slimFrom {
		return e
	}
	s := *e
	if s.Len == 0 {
		s.Len = int64(len(e.Data))
	}
	var msg jsonrpc.Message
	depth := 0
	if jsonrpc.IsBatch(e.Data) {
		depth = -1
		if _, err := jsonrpc.ParseBatch(e.Data, 0); err != nil {
			return cutOff(&s)
		}
	} else if jsonrpc.Parse(e.Data, &msg, 0) != nil {
		return cutOff(&s)
	}
	w := slimmer{room: slimEnough}
	w.value(e.Data, depth)
	s.Data = w.out
	return &s
}

// cutOff leaves the beginning of what is no message.
func cutOff(e *capture.Event) *capture.Event {
	e.Data, e.Cut = e.Data[:slimString], true
	return e
}

// A slimmer copies JSON that is valid.
type slimmer struct {
	out  []byte
	room int
}

func (w *slimmer) value(v []byte, depth int) {
	for len(v) > 0 && (v[0] == ' ' || v[0] == '\t' || v[0] == '\n' || v[0] == '\r') {
		v = v[1:]
	}
	switch {
	case len(v) <= slimString && len(w.out)+len(v) <= w.room:
		w.out = append(w.out, v...)
	case len(v) == 0:
	case v[0] == '"':
		w.text(v)
	case v[0] == '{':
		w.object(v, depth)
	case v[0] == '[':
		w.array(v, depth)
	default: // true, false and null are shorter
		w.number(v)
	}
}

// text copies the beginning of a string, without cutting an escape, a pair of them, or a character.
func (w *slimmer) text(v []byte) {
	end := 1
	for end < len(v)-1 && end < slimString {
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
	w.out = append(append(w.out, v[:min(end, len(v)-1)]...), '"')
}

// number copies the beginning of a number.
func (w *slimmer) number(v []byte) {
	v = v[:min(len(v), slimNumber)]
	for len(v) > 1 && (v[len(v)-1] < '0' || v[len(v)-1] > '9') {
		v = v[:len(v)-1]
	}
	w.out = append(w.out, v...)
}

func (w *slimmer) object(v []byte, depth int) {
	w.out = append(w.out, '{')
	sep := false
	for m := jsonwire.ObjectMembers(v); m.Next(); {
		if depth <= 1 { // what stands behind something large matters as much
			w.room = len(w.out) + slimEnough
		}
		if len(w.out) > w.room || len(w.out) > slimMost || depth > slimDepth {
			break
		}
		if key := m.RawKey(); len(key) <= slimString {
			if sep {
				w.out = append(w.out, ',')
			}
			sep = true
			w.out = append(append(append(w.out, '"'), key...), '"', ':')
			w.value(m.Value(), depth+1)
		}
	}
	w.out = append(w.out, '}')
}

func (w *slimmer) array(v []byte, depth int) {
	w.out = append(w.out, '[')
	sep := false
	for el := jsonwire.ArrayElements(v); el.Next(); sep = true {
		if depth > slimDepth || depth > 3 && len(w.out) > w.room {
			break
		}
		if sep {
			w.out = append(w.out, ',')
		}
		if depth >= 0 && len(w.out) > w.room { // of a batch each is a message
			w.out = append(w.out, '0')
		} else {
			w.value(el.Value(), depth+1)
		}
	}
	w.out = append(w.out, ']')
}

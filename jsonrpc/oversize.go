package jsonrpc

import (
	"fmt"

	"mcpwire/internal/jsonwire"
)

// A TooLargeError tells of a message that was larger than its receiver reads. The rest of the message is skipped, and the connection goes on.
// A call whose answer is too large fails with a *[CallError] that wraps it, over every transport.
type TooLargeError struct {
	// Limit is the largest message that is read, in bytes.
	Limit int
	// Size is how large the message is at least, in bytes: what its header announced, or what had come when the error was made. Zero is not known.
	Size int64
	// Kind is what the first members of the message show it to be; KindInvalid if they show nothing, and of a batch.
	Kind Kind
	// ID is the id of the message. It is nil if there is none, or none that can be told.
	ID ID
}

func (e *TooLargeError) Error() string {
	what := "message"
	if e.Kind != KindInvalid {
		what = e.Kind.String()
	}
	size := ""
	if e.Size > int64(e.Limit) {
		size = fmt.Sprintf(" (at least %d)", e.Size)
	}
	return fmt.Sprintf("the %s is larger than %d bytes%s: send less, or raise the receiver's limit (MaxFrame)", what, e.Limit, size)
}

// Is reports whether target is [ErrMalformed] and the message an answer: one that cannot be read, whatever is in it.
func (e *TooLargeError) Is(target error) bool { return target == ErrMalformed && e.isAnswer() }

// isAnswer reports whether the message is known to answer a request.
func (e *TooLargeError) isAnswer() bool { return e.Kind == KindResponse || e.Kind == KindError }

// frameError is what a framer returns for the message.
func (e *TooLargeError) frameError() *FrameError {
	bad := newTooLarge(e.Limit)
	bad.Err = e
	if e.isAnswer() && len(e.ID) > 0 {
		bad.Err = &CallError{ID: e.ID, Err: e, Outcome: OutcomeUnknown}
	}
	return bad
}

// maxToken is the longest key or id, in bytes, that an oversize looks at.
const maxToken = 256

// An oversize looks through a message above the limit while its framer skips it, to tell whose it is. Servers write the id first or last. It
// keeps none of the message but the key and the scalar at hand.
type oversizeScanner struct {
	limit     int
	size      int64 // announced, or passed so far
	sizeKnown bool  // size was announced
	reported  bool  // a FrameError was returned for it
	finished  bool  // there is nothing more to be found out

	depth     int
	quoted    bool // within a string
	escaped   bool // behind a backslash
	inValue   bool // behind the colon of a member of the message
	token     []byte
	truncated bool // token is cut off, or the value is no scalar
	isID      bool // the member at hand is the id

	id   ID
	ids  int // members called id
	kind Kind
}

// feed looks at the next piece. It returns an error once, as soon as it is known whose the message is, or with its last piece.
func (o *oversizeScanner) feed(chunk []byte, last bool) error {
	if !o.finished {
		o.scan(chunk)
	}
	if o.reported || !last && !(len(o.id) > 0 && o.kind != KindInvalid) {
		return nil
	}
	o.reported, o.finished = true, true
	e := &TooLargeError{Limit: o.limit, Size: o.size, Kind: o.kind}
	if o.ids == 1 {
		e.ID = o.id
	}
	if e.Kind == KindRequest && o.ids == 0 {
		e.Kind = KindNotification
	}
	return e.frameError()
}

// scan goes on with the scan of the message. It stops at its end, or when enough is known.
func (o *oversizeScanner) scan(b []byte) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case o.quoted:
			if o.depth > 1 && !o.escaped { // nothing in it matters but its end
				for i < len(b)-1 && c != '"' && c != '\\' {
					i++
					c = b[i]
				}
			}
			o.appendToken(c)
			switch {
			case o.escaped:
				o.escaped = false
			case c == '\\':
				o.escaped = true
			case c == '"':
				o.quoted = false
			}
		case c == '"':
			o.quoted = true
			o.appendToken(c)
		case o.depth == 0:
			if !isSpace(c) {
				if c != '{' {
					o.finished = true // a batch, or no message
					return
				}
				o.depth = 1
			}
		case c == '{', c == '[':
			o.depth++
			o.truncated = true
		case c == '}', c == ']':
			if o.depth--; o.depth == 0 {
				o.endMember()
				o.finished = true
				return
			}
		case o.depth > 1, isSpace(c):
		case c == ':':
			o.beginValue()
		case c == ',':
			o.endMember()
		default:
			o.appendToken(c)
		}
		if len(o.id) > 0 && o.kind != KindInvalid {
			return
		}
	}
}

// appendToken adds to the key or value at hand, if it is one of the message itself.
func (o *oversizeScanner) appendToken(c byte) {
	if o.depth != 1 || o.truncated {
		return
	}
	if o.truncated = len(o.token) == maxToken; !o.truncated {
		o.token = append(o.token, c)
	}
}

// beginValue looks at a key.
func (o *oversizeScanner) beginValue() {
	key := func(name string) bool {
		n := len(o.token)
		return !o.inValue && !o.truncated && n > 1 && o.token[0] == '"' && o.token[n-1] == '"' && jsonwire.RawEqual(o.token[1:n-1], name)
	}
	switch {
	case key("id"):
		o.isID = true
	case o.kind != KindInvalid:
	case key("method"):
		o.kind = KindRequest
	case key("result"):
		o.kind = KindResponse
	case key("error"):
		o.kind = KindError
	}
	o.inValue, o.truncated, o.token = true, false, o.token[:0]
}

// endMember looks at a value.
func (o *oversizeScanner) endMember() {
	if o.isID {
		o.ids++
		if !o.truncated && o.ids == 1 && len(o.token) > 0 && (o.token[0] == '"' || isInteger(o.token)) {
			o.id = ID(o.token).Clone()
		} else {
			o.id = nil // which is meant nobody can tell
		}
	}
	o.inValue, o.isID, o.truncated, o.token = false, false, false, o.token[:0]
}

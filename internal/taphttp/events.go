package taphttp

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"mcpwire/capture"
)

// maxField is how much of a field other than data is recorded, in bytes.
const maxField = 8 << 10

// An eventSink records the events of an event stream (https://html.spec.whatwg.org/multipage/server-sent-events.html), with all that is in them. Package
// internal/sse reads such streams as a client does, which does not see comments and fields that mean nothing to it.
//
// An event is recorded as soon as the byte that completes it is there. Comments that stand between events are when their lines are, because they say
// that the server is alive at that moment.
type eventSink struct {
	x    *exchange
	line []byte // the beginning of a line that is no data
	data *hoard // the data, its lines joined by LF
	lost int64  // bytes of data that were not held

	begun   bool // past the place for a byte order mark
	skipLF  bool // the last line ended with CR
	inLine  bool // in a line of data, whose value goes to data at once
	started bool // the value's first byte, which may be a space, has come

	fields bool // the event has any
	sse    *capture.SSE
	has    bool   // there is data
	says   []byte // the event's comments, joined by LF
}

func newEventSink(x *exchange) *eventSink {
	return &eventSink{x: x, data: x.hoard(), sse: new(capture.SSE)}
}

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	dataField     = []byte("data:")
)

func (s *eventSink) feed(p []byte, _ bool) {
	if s.skipLF && len(p) > 0 {
		s.skipLF = false
		if p[0] == '\n' {
			p = p[1:]
		}
	}
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			s.partial(p)
			break
		}
		s.partial(p[:i])
		s.endLine()
		cr := p[i] == '\r'
		p = p[i+1:]
		if cr {
			if len(p) == 0 {
				s.skipLF = true
			} else if p[0] == '\n' {
				p = p[1:]
			}
		}
	}
	if !s.fields && len(s.line) == 0 {
		s.comment()
	}
}

// partial takes in a piece of a line.
func (s *eventSink) partial(p []byte) {
	if s.inLine {
		s.addData(p)
		return
	}
	decided := len(dataField)
	if !s.begun {
		decided += len(byteOrderMark)
	}
	if k := min(len(p), decided-len(s.line)); k > 0 {
		s.line = append(s.line, p[:k]...)
		p = p[k:]
		text := s.text()
		if bytes.HasPrefix(text, dataField) {
			s.beginData()
			s.addData(text[len(dataField):])
			s.addData(p)
			return
		}
	}
	s.line = append(s.line, p[:min(len(p), maxField-min(len(s.line), maxField))]...)
}

// text returns the line so far.
func (s *eventSink) text() []byte {
	if s.begun {
		return s.line
	}
	return bytes.TrimPrefix(s.line, byteOrderMark)
}

func (s *eventSink) beginData() {
	if s.has {
		s.hold([]byte{'\n'})
	}
	s.has, s.fields, s.inLine, s.started = true, true, true, false
}

func (s *eventSink) addData(p []byte) {
	if len(p) == 0 {
		return
	}
	if !s.started {
		s.started = true
		p = bytes.TrimPrefix(p, []byte{' '})
	}
	s.hold(p)
}

func (s *eventSink) hold(p []byte) {
	if s.lost == 0 { // what is behind a hole would be misread
		p = p[s.data.add(p):]
	}
	s.lost += int64(len(p))
}

// endLine takes in a line.
func (s *eventSink) endLine() {
	line := s.text()
	s.line = s.line[:0]
	s.begun = true
	switch {
	case s.inLine:
		s.inLine = false
	case len(line) == 0:
		s.dispatch()
	case line[0] == ':':
		text := bytes.TrimPrefix(line[1:], []byte{' '})
		if s.sse.HasComment && len(s.says) < maxField {
			s.says = append(s.says, '\n')
		}
		s.sse.HasComment = true
		s.says = append(s.says, text[:min(len(text), maxField-min(len(s.says), maxField))]...)
	default:
		s.fields = true
		s.field(line)
	}
}

// field takes in a field that has no data in it.
func (s *eventSink) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "data": // without a colon
		s.beginData()
		s.inLine = false
		return
	case "event":
		s.sse.Event = string(value)
		return
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			s.sse.ID, s.sse.HasID = string(value), true
			return
		}
	case "retry":
		if d, ok := parseRetry(string(value)); ok {
			s.sse.Retry, s.sse.HasRetry = d, true
			return
		}
	}
	s.x.note(capture.ToClient, "a line of the event stream that clients pass over: "+printable(string(line)))
}

// parseRetry reads milliseconds; more than fit are as many as fit.
func parseRetry(s string) (time.Duration, bool) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	if s == "" {
		return 0, false
	}
	const most = math.MaxInt64 / uint64(time.Millisecond)
	ms, err := strconv.ParseUint(s, 10, 64)
	if err != nil || ms > most {
		ms = most
	}
	return time.Duration(ms) * time.Millisecond, true
}

// comment records comments that belong to no event.
func (s *eventSink) comment() {
	if s.sse.HasComment {
		s.sse.Comment = string(s.says)
		s.x.record(&capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, SSE: s.sse})
		s.sse, s.says = new(capture.SSE), s.says[:0]
	}
}

// dispatch records the event that an empty line has completed.
func (s *eventSink) dispatch() {
	if !s.fields {
		s.comment()
		return
	}
	s.sse.Comment = string(s.says)
	e := &capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, SSE: s.sse}
	if s.has {
		if e.Data = s.data.buf; e.Data == nil { // nil is no data field at all
			e.Data = []byte{}
		}
	}
	if s.lost > 0 {
		e.Cut, e.Len = true, int64(len(s.data.buf))+s.lost
	}
	named := s.sse.Event != "" && s.sse.Event != "message"
	if (len(e.Data) > 0 || s.lost > 0) && !named {
		e.Kind = capture.KindMessage
	} else {
		s.sse.HasData = s.has
	}
	s.x.record(e)
	if s.sse.Event == eventEndpoint && !e.Cut {
		s.x.foundEndpoint(string(e.Data))
	}
	s.reset()
}

func (s *eventSink) reset() {
	s.data.clear()
	s.sse, s.lost, s.fields, s.has, s.says = new(capture.SSE), 0, false, false, s.says[:0]
}

// end records what clients discard: an event that was not completed.
func (s *eventSink) end(whole bool) {
	if s.inLine || len(s.line) > 0 || s.fields {
		s.x.note(capture.ToClient, "the event stream ended within an event, which clients discard")
		s.x.recordPart(capture.ToClient, s.data.buf, 1, "")
	} else {
		s.comment()
	}
	s.reset()
	if !whole {
		s.x.note(capture.ToClient, "the event stream broke off")
	}
}

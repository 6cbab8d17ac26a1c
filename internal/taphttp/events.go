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
	x       *exchange
	line    []byte         // the beginning of a line that is no data
	data    *boundedBuffer // the data, its lines joined by LF
	dropped int64          // bytes of data that were not held

	pastBOM      bool // past the place for a byte order mark
	skipLF       bool // the last line ended with CR
	inLine       bool // in a line of data, whose value goes to data at once
	valueStarted bool // the value's first byte, which may be a space, has come

	fields   bool // the event has any
	sse      *capture.SSE
	hasData  bool   // there is data
	comments []byte // the event's comments, joined by LF
}

func newEventSink(x *exchange) *eventSink {
	return &eventSink{x: x, data: x.newBuffer(), sse: new(capture.SSE)}
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
			s.feedPart(p)
			break
		}
		s.feedPart(p[:i])
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
		s.recordComments()
	}
}

// feedPart takes in a piece of a line.
func (s *eventSink) feedPart(p []byte) {
	if s.inLine {
		s.addData(p)
		return
	}
	decided := len(dataField)
	if !s.pastBOM {
		decided += len(byteOrderMark)
	}
	if k := min(len(p), decided-len(s.line)); k > 0 {
		s.line = append(s.line, p[:k]...)
		p = p[k:]
		text := s.lineText()
		if bytes.HasPrefix(text, dataField) {
			s.beginData()
			s.addData(text[len(dataField):])
			s.addData(p)
			return
		}
	}
	s.line = append(s.line, p[:min(len(p), maxField-min(len(s.line), maxField))]...)
}

// lineText returns the line so far.
func (s *eventSink) lineText() []byte {
	if s.pastBOM {
		return s.line
	}
	return bytes.TrimPrefix(s.line, byteOrderMark)
}

func (s *eventSink) beginData() {
	if s.hasData {
		s.appendData([]byte{'\n'})
	}
	s.hasData, s.fields, s.inLine, s.valueStarted = true, true, true, false
}

func (s *eventSink) addData(p []byte) {
	if len(p) == 0 {
		return
	}
	if !s.valueStarted {
		s.valueStarted = true
		p = bytes.TrimPrefix(p, []byte{' '})
	}
	s.appendData(p)
}

func (s *eventSink) appendData(p []byte) {
	if s.dropped == 0 { // what is behind a hole would be misread
		p = p[s.data.add(p):]
	}
	s.dropped += int64(len(p))
}

// endLine takes in a line.
func (s *eventSink) endLine() {
	line := s.lineText()
	s.line = s.line[:0]
	s.pastBOM = true
	switch {
	case s.inLine:
		s.inLine = false
	case len(line) == 0:
		s.recordEvent()
	case line[0] == ':':
		text := bytes.TrimPrefix(line[1:], []byte{' '})
		if s.sse.HasComment && len(s.comments) < maxField {
			s.comments = append(s.comments, '\n')
		}
		s.sse.HasComment = true
		s.comments = append(s.comments, text[:min(len(text), maxField-min(len(s.comments), maxField))]...)
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

// recordComments records comments that belong to no event.
func (s *eventSink) recordComments() {
	if s.sse.HasComment {
		s.sse.Comment = string(s.comments)
		s.x.record(&capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, SSE: s.sse})
		s.sse, s.comments = new(capture.SSE), s.comments[:0]
	}
}

// recordEvent records the event that an empty line has completed.
func (s *eventSink) recordEvent() {
	if !s.fields {
		s.recordComments()
		return
	}
	s.sse.Comment = string(s.comments)
	e := &capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, SSE: s.sse}
	if s.hasData {
		if e.Data = s.data.buf; e.Data == nil { // nil is no data field at all
			e.Data = []byte{}
		}
	}
	if s.dropped > 0 {
		e.Cut, e.Len = true, int64(len(s.data.buf))+s.dropped
	}
	named := s.sse.Event != "" && s.sse.Event != "message"
	if (len(e.Data) > 0 || s.dropped > 0) && !named {
		e.Kind = capture.KindMessage
	} else {
		s.sse.HasData = s.hasData
	}
	s.x.record(e)
	if s.sse.Event == eventEndpoint && !e.Cut {
		s.x.bindEndpoint(string(e.Data))
	}
	s.reset()
}

func (s *eventSink) reset() {
	s.data.reset()
	s.sse, s.dropped, s.fields, s.hasData, s.comments = new(capture.SSE), 0, false, false, s.comments[:0]
}

// end records what clients discard: an event that was not completed.
func (s *eventSink) end(whole bool) {
	if s.inLine || len(s.line) > 0 || s.fields {
		s.x.note(capture.ToClient, "the event stream ended within an event, which clients discard")
		s.x.recordPart(capture.ToClient, s.data.buf, 1, "")
	} else {
		s.recordComments()
	}
	s.reset()
	if !whole {
		s.x.note(capture.ToClient, "the event stream broke off")
	}
}

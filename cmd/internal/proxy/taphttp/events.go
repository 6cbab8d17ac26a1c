package taphttp

import (
	"bytes"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/net/loopback"
	"mcpwire/internal/net/sse"
)

// maxField limits the recorded part of a field other than data, in bytes.
const maxField = 8 << 10

// An eventSink records the events of an event stream with all their fields and comments
// (https://html.spec.whatwg.org/multipage/server-sent-events.html). Package internal/net/sse, in
// contrast, reads streams like a client, which ignores comments and unknown fields.
//
// An event is recorded as soon as its last byte arrives. Comments between events are recorded as
// soon as their lines end, because they show that the server is alive.
type eventSink struct {
	rec *exchangeRecorder
	// bindEndpoint is called with the data of the endpoint event of HTTP+SSE.
	bindEndpoint func(data string)
	// intercept gets the events instead of the record, unless it is nil. Their data is valid during
	// the call.
	intercept func(*capture.Event)
	// line is the beginning of a line other than data.
	line []byte
	// data is the event's data, its lines joined by LF.
	data *boundedBuffer
	// dropped counts the bytes of data above the limit.
	dropped int64

	// pastBOM reports that no byte order mark can follow.
	pastBOM bool
	// skipLF reports that the last line ended with CR.
	skipLF bool
	// inLine reports a line of data, whose value goes to data directly.
	inLine bool
	// valueStarted reports that the value's first byte, possibly a space, has arrived.
	valueStarted bool

	// fields reports that the event has a field.
	fields bool
	sse    *capture.SSE
	// hasData reports that the event has a data field.
	hasData bool
	// comments are the event's comments, joined by LF.
	comments []byte
}

func newEventSink(x *exchange) *eventSink {
	return &eventSink{rec: &x.rec, bindEndpoint: x.bindEndpoint, data: x.rec.newBuffer(), sse: new(capture.SSE)}
}

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	dataField     = []byte("data:")
)

func (s *eventSink) record(e *capture.Event) {
	if s.intercept != nil {
		s.intercept(e)
	} else {
		s.rec.record(e)
	}
}

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

// feedPart handles a piece of a line.
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
	if s.dropped == 0 { // data after a gap would mislead
		p = p[s.data.add(p):]
	}
	s.dropped += int64(len(p))
}

// endLine handles the end of a line.
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

// field handles a field other than "data:".
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
	s.rec.note(capture.ToClient, "a line of the event stream that clients ignore: "+printable(string(line)))
}

// parseRetry parses milliseconds and limits them to the largest duration.
func parseRetry(s string) (time.Duration, bool) {
	const most = math.MaxInt64 / uint64(time.Millisecond)
	ms, err := strconv.ParseUint(s, 10, 64) // the largest number if it is out of range
	return time.Duration(min(ms, most)) * time.Millisecond, err == nil || errors.Is(err, strconv.ErrRange)
}

// recordComments records comments that belong to no event.
func (s *eventSink) recordComments() {
	if s.sse.HasComment {
		s.sse.Comment = string(s.comments)
		s.record(&capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, SSE: s.sse})
		s.sse, s.comments = new(capture.SSE), s.comments[:0]
	}
}

// recordEvent records the event that an empty line completes.
func (s *eventSink) recordEvent() {
	if !s.fields {
		s.recordComments()
		return
	}
	s.sse.Comment = string(s.comments)
	e := &capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, SSE: s.sse}
	if s.hasData {
		if e.Data = s.data.buf; e.Data == nil { // nil would mean no data field
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
	s.record(e)
	if s.sse.Event == eventEndpoint && !e.Cut {
		s.bindEndpoint(string(e.Data))
	}
	s.reset()
}

func (s *eventSink) reset() {
	s.data.reset()
	s.sse, s.dropped, s.fields, s.hasData, s.comments = new(capture.SSE), 0, false, false, s.comments[:0]
}

// end records an incomplete event, which clients discard.
func (s *eventSink) end(whole bool) {
	if s.inLine || len(s.line) > 0 || s.fields {
		s.rec.note(capture.ToClient, "the event stream ended within an event, which clients discard")
		s.rec.part(capture.ToClient, s.data.buf, 1, "")
	} else {
		s.recordComments()
	}
	s.reset()
	if !whole {
		s.rec.note(capture.ToClient, "the event stream broke off")
	}
}

// eventEndpoint is the event with which a server of revision 2024-11-05 announces the URL for
// messages
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
const eventEndpoint = "endpoint"

// bindEndpoint assigns POST requests to the endpoint to the session of this stream, which carries
// the responses.
func (x *exchange) bindEndpoint(data string) {
	if x.down.r.Method != http.MethodGet {
		return
	}
	ref, err := url.Parse(data)
	if err != nil {
		return
	}
	x.h.sessions.bind(endpointSpace, x.down.r.URL.ResolveReference(ref).RequestURI(), &x.session)
}

// rewriteURL returns the reference that leads through the tap, and whether it differs from data.
// Relative references need no change, since the tap has the paths of the server. what names the
// place of the reference, for notes.
func (x *exchange) rewriteURL(what, data string) (string, bool) {
	ref, err := url.Parse(data)
	if err != nil {
		x.rec.note(capture.ToClient, what+" contains no URL: "+printable(err.Error()))
		return data, false
	}
	if ref.Host == "" {
		return data, false
	}
	if !x.sameOrigin(ref) {
		x.rec.note(capture.ToClient, what+" names another origin than the server's, and bypasses the tap: "+printable(data))
		return data, false
	}
	scheme := ""
	if ref.Scheme != "" {
		if scheme = "http:"; x.down.r.TLS != nil {
			scheme = "https:"
		}
	}
	_, rest, _ := strings.Cut(data, "//")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[i:]
	} else {
		rest = ""
	}
	to := scheme + "//" + x.down.r.Host + rest
	x.rec.note(capture.ToClient, what+" was rewritten from "+printable(data)+" to "+printable(to))
	return to, true
}

// sameOrigin reports whether a URL has the server's origin. All names and addresses of the loopback
// interface count as equal.
func (x *exchange) sameOrigin(u *url.URL) bool {
	up := x.h.upstream
	if u.Scheme != "" && !strings.EqualFold(u.Scheme, up.Scheme) || portOf(u, up.Scheme) != portOf(up, up.Scheme) {
		return false
	}
	a, b := strings.ToLower(u.Hostname()), strings.ToLower(up.Hostname())
	return a == b || loopback.IsHost(a) && loopback.IsHost(b)
}

// portOf returns the port of a URL, which may have no scheme.
func portOf(u *url.URL, scheme string) string {
	if p := u.Port(); p != "" {
		return p
	}
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// A gate delays the first event with data of an event stream, since an endpoint event may need
// rewriting. Everything else passes unchanged.
type gate struct {
	x        *exchange
	open     bool
	scan     eventScanner
	buffered []byte
}

// maxHeldEvent limits the delayed bytes: an endpoint is a URL.
const maxHeldEvent = 16 << 10

// filter takes p and returns the bytes to forward now. They are valid until the next call.
func (g *gate) filter(p []byte) []byte {
	if g.open {
		return p
	}
	var out []byte
	for len(p) > 0 && !g.open {
		n, end := g.scan.next(p)
		g.buffered = append(g.buffered, p[:n]...)
		p = p[n:]
		if end == noEnd && len(g.buffered) <= maxHeldEvent {
			return out
		}
		g.open = end == noEnd
		if end == endOfEvent {
			e, err := sse.NewReader(bytes.NewReader(g.buffered), 0).Read()
			g.open = err == nil && e.Data != nil
			if g.open && e.Name == eventEndpoint && len(g.buffered) <= maxHeldEvent {
				g.buffered, _ = g.x.rewriteEndpoint(g.buffered, string(e.Data))
			}
		}
		out = append(out, g.flush()...)
	}
	return append(out, p...)
}

// flush returns the delayed bytes at the end of the stream.
func (g *gate) flush() []byte {
	out := g.buffered
	g.buffered = nil
	return out
}

// rewriteEndpoint returns an endpoint event whose URL leads through the tap, and that URL, or "" if
// the event is unchanged.
func (x *exchange) rewriteEndpoint(event []byte, data string) ([]byte, string) {
	if strings.Contains(data, "\n") {
		return event, ""
	}
	to, changed := x.rewriteURL("the endpoint event", data)
	if !changed {
		return event, ""
	}
	return withData(event, to, true), to
}

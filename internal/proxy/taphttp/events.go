package taphttp

import (
	"bytes"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
)

// maxField is how much of a field other than data is recorded, in bytes.
const maxField = 8 << 10

// An eventSink records the events of an event stream (https://html.spec.whatwg.org/multipage/server-sent-events.html), with all that is in them. Package
// internal/net/sse reads such streams as a client does, which does not see comments and fields that mean nothing to it.
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

// eventEndpoint is the name of the event by which a server of revision 2024-11-05 says where messages are to be posted
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
const eventEndpoint = "endpoint"

// bindEndpoint remembers which session a POST to the endpoint belongs to: its response comes on this stream.
func (x *exchange) bindEndpoint(data string) {
	if x.r.Method != http.MethodGet {
		return
	}
	ref, err := url.Parse(data)
	if err != nil {
		return
	}
	x.h.sessions.bind(endpointSpace, x.r.URL.ResolveReference(ref).RequestURI(), x)
}

// rewriteEndpoint returns the reference to an endpoint that leads through the tap, and whether it is another. What is relative does already, since the tap has the
// paths of the server.
func (x *exchange) rewriteEndpoint(data string) (string, bool) {
	ref, err := url.Parse(data)
	if err != nil {
		x.note(capture.ToClient, "the endpoint event holds no URL: "+printable(err.Error()))
		return data, false
	}
	if ref.Host == "" {
		return data, false
	}
	if !x.sameOrigin(ref) {
		x.note(capture.ToClient, "the endpoint event leads to another origin than that of the server, and past the tap: "+printable(data))
		return data, false
	}
	scheme := ""
	if ref.Scheme != "" {
		if scheme = "http:"; x.r.TLS != nil {
			scheme = "https:"
		}
	}
	_, rest, _ := strings.Cut(data, "//")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[i:]
	} else {
		rest = ""
	}
	to := scheme + "//" + x.r.Host + rest
	x.note(capture.ToClient, "the endpoint event was rewritten from "+printable(data)+" to "+printable(to))
	return to, true
}

// sameOrigin reports whether a URL is of the server's origin. Names and addresses of this machine's loopback are taken for one another.
func (x *exchange) sameOrigin(u *url.URL) bool {
	up := x.h.upstream
	if u.Scheme != "" && !strings.EqualFold(u.Scheme, up.Scheme) || port(u, up.Scheme) != port(up, up.Scheme) {
		return false
	}
	a, b := strings.ToLower(u.Hostname()), strings.ToLower(up.Hostname())
	return a == b || isLoopback(a) && isLoopback(b)
}

func port(u *url.URL, scheme string) string {
	if p := u.Port(); p != "" {
		return p
	}
	p, _ := net.LookupPort("tcp", scheme)
	if p == 443 {
		return "443"
	}
	return "80"
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// A gate holds the beginning of an event stream back until it is clear whether it is an endpoint event, which may have to be rewritten. It opens for
// good behind the first event that has data; everything passes as it came otherwise.
type gate struct {
	x        *exchange
	open     bool
	buffered []byte
}

// maxHeldEvent is how much is held back, in bytes: an endpoint is a URL.
const maxHeldEvent = 16 << 10

// filter returns what may be forwarded now that p has come. It is good until the next call.
func (g *gate) filter(p []byte) []byte {
	if g.open {
		return p
	}
	g.buffered = append(g.buffered, p...)
	var out []byte
	for !g.open {
		n, b := scanEvent(g.buffered)
		if !b.complete && !b.notEndpoint && len(g.buffered) <= maxHeldEvent {
			out = append(out, g.buffered[:n]...) // comments
			g.buffered = g.buffered[n:]
			return out
		}
		if b.complete && b.name == eventEndpoint && b.dataLines == 1 && n <= maxHeldEvent {
			out = append(out, g.rewrite(g.buffered[:n], b)...)
			g.open = true
		} else {
			out = append(out, g.buffered[:n]...)
			g.open = !b.complete || b.dataLines > 0
		}
		g.buffered = g.buffered[n:]
	}
	out = append(out, g.buffered...)
	g.buffered = nil
	return out
}

// flush returns what is held back when the stream ends.
func (g *gate) flush() []byte {
	out := g.buffered
	g.buffered = nil
	return out
}

func (g *gate) rewrite(event []byte, b eventHead) []byte {
	to, changed := g.x.rewriteEndpoint(string(event[b.from:b.to]))
	if !changed {
		return event
	}
	return append(append(bytes.Clone(event[:b.from]), to...), event[b.to:]...)
}

// A block is what is known of the event at the start of a text.
type eventHead struct {
	name        string
	dataLines   int
	from, to    int  // the value of the last data field
	complete    bool // its empty line is there
	notEndpoint bool // it is complete or not, but certainly no endpoint event
}

// scanEvent returns the event at the start of b, with its length; if it is not complete, the length is that of the comments and empty lines in front of it.
func scanEvent(b []byte) (int, eventHead) {
	var e eventHead
	front, fields := 0, false
	pos := 0
	for {
		i := bytes.IndexAny(b[pos:], "\r\n")
		if i < 0 {
			return front, e
		}
		line, start, next := b[pos:pos+i], pos, pos+i+1
		if b[next-1] == '\r' && next < len(b) && b[next] == '\n' {
			next++
		}
		pos = next
		if start == 0 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		switch {
		case len(line) == 0 && fields:
			e.complete = true
			return next, e
		case len(line) == 0, line[0] == ':':
			if !fields {
				front = next
			}
			continue
		}
		fields = true
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "event":
			e.name = string(value)
			e.notEndpoint = e.name != eventEndpoint
		case "data":
			e.dataLines++
			e.to = start + i
			e.from = e.to - len(value)
		}
	}
}

package taphttp

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/live"
)

// A heldStream forwards an event stream event by event, and holds those whose message matches.
// While one is held, the stream is not read: later events wait in the buffers of the connection,
// and then in the server. Comments between events are forwarded at once. Only the goroutine of the
// exchange uses a heldStream. Messages over HTTP+SSE are not held.
type heldStream struct {
	x     *exchange
	sink  *eventSink
	scan  eventScanner
	event *boundedBuffer
	// written reports that the record of the current event has forwarded it.
	written bool
	// streaming reports that the current event is too long to be held.
	streaming bool
	// begun reports that an event with data was forwarded.
	begun bool
	// overSSE reports that the stream began with the endpoint event of HTTP+SSE.
	overSSE bool
	err     error

	// answers are the posts of answers to the server.
	answers sync.WaitGroup
}

// interceptStream forwards an event stream and holds its messages.
func (x *exchange) interceptStream(resp *http.Response, conn *serverConn, coding string) {
	begin, list := x.receiveHead(resp, conn)
	if coding != "" || resp.ContentLength >= 0 { // events are forwarded decoded, and may be edited
		list = editHead(resp, list, -1)
		begin.Response, _ = x.responseHead(resp, nil)
	}
	x.rec.forwarded(begin)
	x.sendHead(resp, list)
	s := &heldStream{x: x, sink: newEventSink(x), event: x.rec.newBuffer()}
	s.event.max = min(s.event.max, maxHeldBody)
	why, err := s.run(resp, coding)
	s.answers.Wait()
	x.endResponse(resp, why, err)
}

// run forwards the stream. If it is cut off, run returns an error and the reason for the record.
func (s *heldStream) run(resp *http.Response, coding string) (why string, err error) {
	x := s.x
	whole := false
	defer func() {
		s.sink.intercept = nil
		s.sink.end(whole)
	}()
	if err := x.down.flush(); err != nil {
		return x.down.endReason("client", err), err
	}
	body := io.Reader(resp.Body)
	if coding != "" {
		if body, err = newBoundedDecoder(coding, resp.Body); err != nil {
			return x.down.endReason("upstream", err), err
		}
	}
	buf := chunks.Get().(*[32 << 10]byte)
	defer chunks.Put(buf)
	for {
		n, err := body.Read(buf[:])
		if werr := s.feed(buf[:n]); werr != nil {
			return x.down.endReason("client", werr), werr
		}
		switch {
		case err == io.EOF:
			if werr := s.finish(); werr != nil {
				return x.down.endReason("client", werr), werr
			}
			whole = true
			return "", nil
		case err != nil:
			_ = s.finish() // err is the reason
			return x.down.endReason("upstream", err), err
		}
	}
}

// A boundedDecoder decodes a stream, up to a multiple of its input.
type boundedDecoder struct {
	src, decoder io.Reader
	in, out      int64
}

func newBoundedDecoder(coding string, src io.Reader) (*boundedDecoder, error) {
	d := &boundedDecoder{src: src}
	var err error
	d.decoder, err = newDecoder(coding, (*decoderInput)(d))
	return d, err
}

// Read implements [io.Reader].
func (d *boundedDecoder) Read(p []byte) (int, error) {
	n, err := d.decoder.Read(p)
	if d.out += int64(n); d.out > freeDecodedBytes+maxDecodedRatio*d.in {
		return 0, errDecodedTooLarge
	}
	return n, err
}

// A decoderInput counts the input of a boundedDecoder.
type decoderInput boundedDecoder

// Read implements [io.Reader].
func (d *decoderInput) Read(p []byte) (int, error) {
	n, err := d.src.Read(p)
	d.in += int64(n)
	return n, err
}

// feed forwards the events that end in p.
func (s *heldStream) feed(p []byte) error {
	for len(p) > 0 && s.err == nil {
		n, end := s.scan.next(p)
		part := p[:n]
		p = p[n:]
		if !s.streaming {
			part = part[s.event.add(part):]
		}
		if len(part) > 0 && !s.streaming {
			s.streaming = true
			s.pass(s.event.buf)
			s.event.reset()
		}
		if s.streaming {
			s.pass(part)
		}
		switch {
		case end == noEnd:
		case s.streaming:
			s.streaming = false
		default:
			s.endEvent(end)
			s.event.reset()
		}
	}
	return s.err
}

// pass records and forwards bytes unchanged.
func (s *heldStream) pass(p []byte) {
	s.sink.intercept = nil
	s.sink.feed(p, false)
	if s.err == nil {
		s.err = s.x.down.write(p, false)
	}
}

// endEvent handles the complete event, or comment, in s.event.
func (s *heldStream) endEvent(end eventEnd) {
	s.written = end == endOfComment
	if s.written {
		s.pass(s.event.buf)
		return
	}
	s.sink.intercept = s.recordEvent
	s.sink.feed(s.event.buf, false)
	if !s.written && s.err == nil {
		s.err = s.x.down.write(s.event.buf, false)
	}
}

// recordEvent records an event of the stream, and holds and forwards it if it is a message.
func (s *heldStream) recordEvent(e *capture.Event) {
	x := s.x
	first := !s.begun && len(e.Data) > 0
	s.begun = s.begun || first
	if e.Kind != capture.KindMessage || e.Cut || s.overSSE {
		if first && x.down.r.Method == http.MethodGet && e.SSE.Event == eventEndpoint && !e.Cut {
			s.begin(e)
			return
		}
		x.rec.record(e)
		return
	}
	x.h.interceptor.learn(e.Data)
	text := s.event.buf
	s.written = true
	r, n, err := x.decide(e)
	if err != nil {
		s.err = err
		return
	}
	switch r.Action {
	case live.Answer:
		s.answers.Go(func() { x.answerServer(n, r.Data) })
		fallthrough
	case live.Drop:
		s.drop(e)
		return
	case live.Edit:
		text = withData(text, r.Data, true)
		edited := *e
		edited.Data, edited.Len = []byte(r.Data), int64(len(r.Data))
		e = &edited
	}
	x.rec.link(n, x.rec.forwarded(e), r.Rule)
	s.err = x.down.write(text, false)
}

// drop forwards the id and the retry time of an event without its message, since they are about the
// stream.
func (s *heldStream) drop(e *capture.Event) {
	if !e.SSE.HasID && !e.SSE.HasRetry {
		return
	}
	rest := *e.SSE
	rest.Event, rest.HasData, rest.Comment, rest.HasComment = "", false, "", false
	s.x.rec.forwarded(&capture.Event{Kind: capture.KindSSE, Dir: e.Dir, SSE: &rest})
	s.err = s.x.down.write(withData(s.event.buf, "", false), false)
}

// begin handles the endpoint event, with which a stream of HTTP+SSE begins.
func (s *heldStream) begin(e *capture.Event) {
	x := s.x
	data := string(e.Data)
	n := x.rec.received(e)
	text, to := x.rewriteEndpoint(s.event.buf, data)
	if to != "" {
		forwarded := *e
		forwarded.Data, forwarded.Len = []byte(to), int64(len(to))
		x.rec.link(n, x.rec.forwarded(&forwarded), "endpoint")
	} else {
		x.rec.forwarded(e)
	}
	x.bindEndpoint(data) // before the client uses it
	x.rec.note(e.Dir, "the transport is HTTP+SSE, whose messages are not held: use a server with Streamable HTTP for that")
	s.overSSE, s.written = true, true
	s.err = x.down.write(text, false)
}

// finish forwards an incomplete event at the end of the stream, which clients discard.
func (s *heldStream) finish() error {
	if s.streaming || len(s.event.buf) == 0 {
		return nil
	}
	s.sink.intercept = nil
	s.sink.feed(s.event.buf, false)
	return s.x.down.write(s.event.buf, false)
}

// An eventEnd says what ends in a piece of an event stream.
type eventEnd int

const (
	noEnd        eventEnd = iota
	endOfEvent            // an event, at its empty line
	endOfComment          // a comment or an empty line between events
)

// An eventScanner cuts an event stream into events, in agreement with eventSink.
type eventScanner struct {
	// line counts the bytes of the current line.
	line int
	// comment reports that the current line is a comment.
	comment bool
	// fields reports that the event has a line other than comments.
	fields bool
	// skipLF reports that the last line ended with CR.
	skipLF bool
}

// next returns the length of the beginning of p up to the first end, and what ends there.
func (s *eventScanner) next(p []byte) (int, eventEnd) {
	for i, c := range p {
		if s.skipLF {
			s.skipLF = false
			if c == '\n' {
				continue
			}
		}
		if c != '\n' && c != '\r' {
			if s.line == 0 {
				s.comment = c == ':'
			}
			s.line++
			continue
		}
		s.skipLF = c == '\r'
		empty := s.line == 0
		s.line = 0
		switch {
		case empty && s.fields:
			s.fields = false
			return i + 1, endOfEvent
		case empty, s.comment && !s.fields:
			return i + 1, endOfComment
		case !s.comment:
			s.fields = true
		}
	}
	return len(p), noEnd
}

// withData returns an event with other data, or without data and event name. It keeps the other
// lines and their ends.
func withData(event []byte, data string, hasData bool) []byte {
	var out []byte
	done := !hasData
	for len(event) > 0 {
		n := bytes.IndexAny(event, "\r\n")
		if n < 0 {
			n = len(event)
		}
		end := n
		if end < len(event) {
			end++
			if event[end-1] == '\r' && end < len(event) && event[end] == '\n' {
				end++
			}
		}
		line, lineEnd := event[:n], event[n:end]
		event = event[end:]
		name, value, _ := bytes.Cut(bytes.TrimPrefix(line, byteOrderMark), []byte{':'})
		switch {
		case string(name) == "data":
			if !done {
				done = true
				field := "data: "
				if len(value) > 0 && value[0] != ' ' && !strings.Contains("\n"+data, "\n ") {
					field = "data:"
				}
				for text := range strings.SplitSeq(data, "\n") {
					out = append(append(append(out, field...), text...), lineEnd...)
				}
			}
		case !hasData && (string(name) == "event" || len(name) == 0 && len(line) > 0):
		default:
			out = append(append(out, line...), lineEnd...)
		}
	}
	return out
}

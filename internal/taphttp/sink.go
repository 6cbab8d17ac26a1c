package taphttp

import (
	"bytes"
	"net/http"

	"mcpwire/capture"
)

// A sink records a body while it goes by. Its methods are called by one goroutine at a time.
type sink interface {
	// feed is called before p is forwarded; last tells that nothing comes behind it.
	feed(p []byte, last bool)
	// end is called once, when no more will come. whole tells that the body ended as it should.
	end(whole bool)
}

var jsonrpcMember = []byte(`"jsonrpc"`)

// isMessage reports whether a body holds what the protocol calls a message, or should. Other bodies are those of authorization and what is else at the
// same origin.
func (x *exchange) isMessage(data []byte, h http.Header, expectMessage bool) bool {
	if x.isEndpoint && expectMessage && isJSON(mediaType(h)) {
		return true
	}
	text := bytes.TrimLeft(data, " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[') && bytes.Contains(text, jsonrpcMember)
}

// recordBody records a body that is complete, and in a content coding unless that is "". good is whether it should be a message if it is at the endpoint.
func (x *exchange) recordBody(dir capture.Dir, data []byte, h http.Header, coding string, expectMessage bool) {
	if len(data) == 0 {
		return
	}
	e := &capture.Event{Kind: capture.KindBody, Dir: dir, Data: data}
	if coding != "" {
		decoded := boundedBuffer{budget: &x.h.budget, max: x.h.opts.MaxBody}
		defer decoded.release()
		if err := decodeWhole(coding, data, &decoded); err != nil {
			e.Encoding = coding
			x.record(e)
			x.note(dir, "the body could not be decoded: "+printable(err.Error()))
			return
		}
		e.Data = decoded.buf
	}
	if x.isMessage(e.Data, h, expectMessage) {
		e.Kind = capture.KindMessage
	}
	x.record(e)
}

// recordPart records a part of a body.
func (x *exchange) recordPart(dir capture.Dir, data []byte, part int, coding string) {
	if len(data) > 0 {
		x.record(&capture.Event{Kind: capture.KindBody, Dir: dir, Data: data, Part: part, Encoding: coding})
	}
}

// A partSink records what comes as parts of a body, as they are forwarded.
type partSink struct {
	x      *exchange
	dir    capture.Dir
	coding string
	part   int
}

func (s *partSink) feed(p []byte, _ bool) {
	s.part++
	s.x.recordPart(s.dir, p, s.part, s.coding)
}

func (s *partSink) end(whole bool) {
	if !whole {
		s.x.note(s.dir, "the body broke off")
	}
}

// A bodySink records a body in one piece, before the last of it is forwarded: when that is known by its length, or by its being complete JSON. A body
// of another kind, without a length, is recorded behind its end. What is too large is recorded in parts.
type bodySink struct {
	x             *exchange
	header        http.Header
	coding        string // that it comes in
	expectMessage bool   // see isMessage
	buffer        *boundedBuffer
	json          jsonEnd
	part          int // of a body in parts
	done          bool
}

func (s *bodySink) feed(p []byte, last bool) {
	if s.done || s.part > 0 {
		s.recordTail(p)
		return
	}
	n := s.buffer.add(p)
	if n < len(p) {
		s.recordTail(s.buffer.buf)
		s.buffer.release()
		s.recordTail(p[n:])
		return
	}
	if s.json.feed(p) || last {
		s.recordWhole()
	}
}

// recordWhole records what has come as the body.
func (s *bodySink) recordWhole() {
	s.done = true
	s.x.recordBody(capture.ToClient, s.buffer.buf, s.header, s.coding, s.expectMessage)
	s.buffer.release()
}

// recordTail records a part.
func (s *bodySink) recordTail(p []byte) {
	if len(p) > 0 {
		s.part++
		s.x.recordPart(capture.ToClient, p, s.part, s.coding)
	}
}

func (s *bodySink) end(whole bool) {
	switch {
	case s.done, s.part > 0:
	case whole:
		s.recordWhole()
	default:
		s.recordTail(s.buffer.buf)
		s.buffer.release()
	}
	if !whole {
		s.x.note(capture.ToClient, "the body broke off")
	}
}

// A lineSink records lines of messages.
type lineSink struct {
	x       *exchange
	dir     capture.Dir
	buffer  *boundedBuffer
	dropped int64 // bytes of the line that were not held
}

func newLineSink(x *exchange, dir capture.Dir) *lineSink {
	return &lineSink{x: x, dir: dir, buffer: x.newBuffer()}
}

func (s *lineSink) feed(p []byte, _ bool) {
	for {
		line, rest, found := bytes.Cut(p, []byte("\n"))
		s.dropped += int64(len(line) - s.buffer.add(line))
		if !found {
			return
		}
		s.recordLine(capture.FramingLF)
		p = rest
	}
}

func (s *lineSink) recordLine(f capture.Framing) {
	e := &capture.Event{Kind: capture.KindMessage, Dir: s.dir, Data: s.buffer.buf, Framing: f}
	if s.dropped > 0 {
		e.Cut, e.Len = true, int64(len(s.buffer.buf))+s.dropped
	} else if data, ok := bytes.CutSuffix(e.Data, []byte("\r")); ok && f == capture.FramingLF {
		e.Data, e.Framing = data, capture.FramingCRLF
	}
	s.x.record(e)
	s.buffer.reset()
	s.dropped = 0
}

func (s *lineSink) end(whole bool) {
	if len(s.buffer.buf) > 0 || s.dropped > 0 {
		s.recordLine(capture.FramingNone)
	}
	if !whole {
		s.x.note(s.dir, "the body broke off")
	}
}

// A jsonEnd finds the end of an object or an array in a stream, without judging what is in it.
type jsonEnd struct {
	depth         int
	begun, quoted bool
	escaped       bool
	notJSON       bool // it does not begin like one
}

// feed reports whether the value ended in p, with nothing but space behind it.
func (j *jsonEnd) feed(p []byte) (complete bool) {
	for _, c := range p {
		switch {
		case j.notJSON:
			return false
		case j.quoted:
			switch {
			case j.escaped:
				j.escaped = false
			case c == '\\':
				j.escaped = true
			case c == '"':
				j.quoted = false
			}
		case c == ' ', c == '\t', c == '\r', c == '\n':
		case complete:
			j.notJSON = true
		case c == '{', c == '[':
			j.depth++
			j.begun = true
		case !j.begun:
			j.notJSON = true
		case c == '"':
			j.quoted = true
		case c == '}', c == ']':
			if j.depth--; j.depth == 0 {
				complete = true
			}
		}
	}
	return complete && !j.notJSON
}

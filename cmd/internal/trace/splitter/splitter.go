// Package splitter splits the byte stream of a client or a server on a pipe into frames, as
// captures store them: lines, and blocks behind a Content-Length header, in any mixture. It accepts
// any bytes and keeps all of them.
//
// Package jsonrpc reads messages; this package reads whatever was sent.
package splitter

import (
	"bytes"
	"strconv"

	"mcpwire/capture"
)

const (
	maxHeader = 8 << 10 // bytes of a possible header
	// minCopy is the first capacity in bytes for a frame in pieces. It doubles.
	minCopy = 64 << 10
	// maxHeapCopy is the size in bytes above which a frame gets its own memory, released after it.
	maxHeapCopy = 1 << 20
	// maxBodyBytes limits a valid Content-Length.
	maxBodyBytes = 1 << 53
)

// A Splitter splits a byte stream into frames and passes each to Sink when it is complete. It never
// fails: any stream is a sequence of frames, whose bytes concatenated are the stream again, see
// AppendRaw.
//
// Invariant: the first len(copied) bytes of a frame from an earlier chunk are in copied. In state
// inHeader, all of them are in header instead.
type Splitter struct {
	// Sink receives each frame. The event and its Data are valid during the call.
	Sink func(*capture.Event)
	// maxCopy limits the bytes of a frame in pieces that sink receives.
	maxCopy int
	// WantCopy decides whether to copy a frame of size bytes. nil means always.
	WantCopy func(size int) bool
	// Event has what all frames have in common.
	Event capture.Event

	state  splitState
	copied []byte
	// skipCopy drops the rest of the frame.
	skipCopy bool
	// mapped reports that copied is from newLarge.
	mapped bool
	// reusable is the previous copied, for reuse.
	reusable []byte
	// size counts the bytes of the frame so far, without its header.
	size int64
	// lastByte is the last byte of the frame so far, if size > 0.
	lastByte byte
	header   []byte
	// prefix is the header of the current body.
	prefix string
	// bodyLeft counts the bytes of the body that are missing.
	bodyLeft int64
}

type splitState uint8

const (
	betweenFrames splitState = iota
	inLine
	inHeader // a possible header
	inBody
)

// New returns a splitter for one direction. sink gets at most max+1 bytes of a frame in pieces: one
// more than max, so that truncation can find a character boundary.
func New(dir capture.Dir, max int, sink func(*capture.Event)) *Splitter {
	return &Splitter{Sink: sink, maxCopy: max, Event: capture.Event{Kind: capture.KindMessage, Dir: dir}}
}

// Write takes the next piece of the stream.
func (s *Splitter) Write(p []byte) {
	for len(p) > 0 {
		if s.state == betweenFrames {
			s.state = inLine
			if hasHeaderPrefix(p) {
				s.state = inHeader
			}
		}
		switch s.state {
		case inLine:
			p = s.feedLine(p)
		case inHeader:
			p = s.feedHeader(p)
		case inBody:
			p = s.feedBody(p)
		}
	}
}

// Partial reports whether a frame has begun and not ended.
func (s *Splitter) Partial() bool { return s.state != betweenFrames }

// BodyLeft returns the bytes that are missing from the current frame, and reports whether it is a
// body with a Content-Length.
func (s *Splitter) BodyLeft() (left int64, ok bool) { return s.bodyLeft, s.state == inBody }

// Close handles the end of the stream.
func (s *Splitter) Close() {
	switch s.state {
	case inHeader:
		s.rejectHeader()
		if s.state == inLine {
			s.emit(s.copied, capture.FramingNone)
		}
	case inLine:
		s.emit(s.copied, capture.FramingNone)
	case inBody:
		s.emit(s.copied, capture.FramingHeader)
	}
}

// feedLine takes the part of a line that p has.
func (s *Splitter) feedLine(p []byte) (rest []byte) {
	i := bytes.IndexByte(p, '\n')
	if i < 0 {
		s.copyPart(p)
		return nil
	}
	line := p[:i]
	if s.size > 0 {
		s.copyPart(line)
		line = s.copied
	} else if s.size = int64(i); i > 0 {
		s.lastByte = line[i-1]
	}
	s.endLine(line)
	return p[i+1:]
}

// endLine emits a line of s.size bytes that begins with data.
func (s *Splitter) endLine(data []byte) {
	if s.size == 0 || s.lastByte != '\r' {
		s.emit(data, capture.FramingLF)
		return
	}
	if int64(len(data)) == s.size {
		data = data[:len(data)-1]
	}
	s.size--
	s.emit(data, capture.FramingCRLF)
}

// copyPart copies a piece of the frame as far as sink needs it.
func (s *Splitter) copyPart(p []byte) {
	if len(p) == 0 {
		return
	}
	s.size += int64(len(p))
	s.lastByte = p[len(p)-1]
	// Copy one byte more than maxCopy, so that truncation can find a character boundary.
	p = p[:min(len(p), s.maxCopy+1-len(s.copied))]
	need := len(s.copied) + len(p)
	if s.WantCopy != nil && (len(s.copied) == 0 || need > cap(s.copied)) && !s.WantCopy(need) {
		s.skipCopy = true
	}
	if s.skipCopy {
		return
	}
	if need > cap(s.copied) {
		s.grow(need)
	}
	s.copied = append(s.copied, p...)
}

// grow makes room for need bytes in copied.
func (s *Splitter) grow(need int) {
	if need > maxHeapCopy && !s.mapped {
		if b := newLarge(s.maxCopy + 1); b != nil {
			s.reusable, s.copied, s.mapped = s.copied, append(b, s.copied...), true
			return
		}
	}
	grown := make([]byte, len(s.copied), min(max(2*cap(s.copied), need, minCopy), s.maxCopy+1))
	copy(grown, s.copied)
	s.copied = grown
}

// TakeMemory transfers the memory of a large frame to its caller, sink, and returns the function
// that frees it. It returns nil if the frame shares reusable memory.
func (s *Splitter) TakeMemory() (free func()) {
	if !s.mapped || len(s.Event.Data) == 0 || &s.Event.Data[0] != &s.copied[0] {
		return nil
	}
	memory := s.copied
	s.copied, s.reusable, s.mapped = s.reusable[:0], nil, false
	return func() { freeLarge(memory) }
}

// resetCopy empties copied and frees the memory of a large frame.
func (s *Splitter) resetCopy() {
	switch {
	case s.mapped:
		freeLarge(s.copied)
		s.copied, s.reusable, s.mapped = s.reusable[:0], nil, false
	case cap(s.copied) > maxHeapCopy:
		s.copied = nil
	default:
		s.copied = s.copied[:0]
	}
}

// emit passes on a frame of s.size bytes that begins with data, and prepares for the next.
func (s *Splitter) emit(data []byte, framing capture.Framing) {
	e := &s.Event
	e.Data, e.Framing = data, framing
	e.Cut = int64(len(data)) < s.size
	e.Len = s.size
	e.Prefix = ""
	if framing == capture.FramingHeader {
		e.Prefix = s.prefix
	}
	if e.Data == nil {
		e.Data = []byte{}
	}
	s.state, s.size, s.bodyLeft, s.skipCopy = betweenFrames, 0, 0, false
	s.Sink(e)
	e.Data = nil
	s.resetCopy()
}

// feedHeader takes the part of a possible header line that p has.
func (s *Splitter) feedHeader(p []byte) (rest []byte) {
	i := bytes.IndexByte(p, '\n')
	end := i + 1
	if i < 0 {
		end = len(p)
	}
	if len(s.header)+end > maxHeader {
		s.rejectHeader()
		s.state = inLine // even if p begins like a header
		return p
	}
	start := bytes.LastIndexByte(s.header, '\n') + 1
	s.header = append(s.header, p[:end]...)
	switch line := s.header[start:]; {
	case !hasHeaderPrefix(s.header):
		s.rejectHeader()
	case i < 0:
	case len(line) == 1 || len(line) == 2 && line[0] == '\r':
		s.endHeader()
	case !isField(line):
		s.rejectHeader()
	}
	return p[end:]
}

// endHeader handles a complete block in header.
func (s *Splitter) endHeader() {
	n, ok := contentLength(s.header)
	if !ok {
		s.rejectHeader()
		return
	}
	if string(s.header) != s.prefix {
		s.prefix = string(s.header)
	}
	s.header = s.header[:0]
	s.state, s.bodyLeft = inBody, n
	if n == 0 {
		s.emit(nil, capture.FramingHeader)
	}
}

// rejectHeader splits header into lines. It does not parse them as headers again, which might never
// end.
func (s *Splitter) rejectHeader() {
	text := s.header
	s.state = betweenFrames
	for len(text) > 0 {
		s.state = inLine
		text = s.feedLine(text)
	}
	s.header = s.header[:0]
}

// feedBody takes the part of a body that p has.
func (s *Splitter) feedBody(p []byte) (rest []byte) {
	if int64(len(p)) < s.bodyLeft {
		s.bodyLeft -= int64(len(p))
		s.copyPart(p)
		return nil
	}
	part := p[:s.bodyLeft]
	rest = p[s.bodyLeft:]
	s.bodyLeft = 0
	if s.size == 0 {
		s.size = int64(len(part))
		s.emit(part, capture.FramingHeader)
		return rest
	}
	s.copyPart(part)
	s.emit(s.copied, capture.FramingHeader)
	return rest
}

// headerNames are the possible beginnings of a frame header.
var headerNames = [...]string{"content-length:", "content-type:"}

// hasHeaderPrefix reports whether p is a prefix of a header, or begins with one.
func hasHeaderPrefix(p []byte) bool {
	for _, name := range headerNames {
		n := min(len(p), len(name))
		i := 0
		for i < n && lower(p[i]) == name[i] {
			i++
		}
		if i == n {
			return true
		}
	}
	return false
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// isField reports whether a line is a header field.
func isField(line []byte) bool {
	name, _, ok := bytes.Cut(line, []byte(":"))
	for _, c := range name {
		if l := lower(c); (l < 'a' || l > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return ok && len(name) > 0
}

// contentLength returns the length in a header, if it has a valid one.
func contentLength(header []byte) (n int64, ok bool) {
	for line := range bytes.Lines(header) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if !bytes.EqualFold(name, []byte("content-length")) {
			continue
		}
		v, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 63)
		if err != nil || v > maxBodyBytes || ok && int64(v) != n {
			return 0, false
		}
		n, ok = int64(v), true
	}
	return n, ok
}

// AppendRaw appends the wire bytes of a frame, which must not be cut.
func AppendRaw(dst []byte, e *capture.Event) []byte {
	dst = append(append(dst, e.Prefix...), e.Data...)
	switch e.Framing {
	case capture.FramingLF:
		dst = append(dst, '\n')
	case capture.FramingCRLF:
		dst = append(dst, "\r\n"...)
	}
	return dst
}

package tap

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
)

// A recorder passes events on to whom they concern. Its methods may be called by several goroutines at once.
type recorder struct {
	w       *capture.Writer      // may be nil
	observe func(*capture.Event) // may be nil
	log     func(string)
	session atomic.Uint64 // of what has no frame: starts, ends and notes

	mu    sync.Mutex // orders what observe sees as the capture has it
	start time.Time
	n     uint64
}

// enabled reports whether anybody wants to know of frames.
func (r *recorder) enabled() bool { return r.w != nil || r.observe != nil }

// record records an event. It does not keep it.
func (r *recorder) record(e *capture.Event) {
	if r.observe == nil {
		if r.w != nil {
			r.w.Record(e)
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	seen := *e
	seen.N, seen.At = r.n, time.Now()
	seen.T = seen.At.Sub(r.start)
	if r.w != nil {
		if n := r.w.Record(e); n > 0 {
			seen.N = n
		}
	}
	r.observe(&seen)
}

// newSplitter returns one that records the frames. The memory of large ones goes to the writer, so that they are held once.
func (r *recorder) newSplitter(dir capture.Dir, max int) *splitter {
	s := newSplitter(dir, max, r.record)
	if r.observe == nil && r.w != nil {
		s.wantCopy = r.w.Wants
		s.sink = func(e *capture.Event) {
			if free := s.takeMemory(); free != nil {
				r.w.RecordOwned(e, free)
			} else {
				r.w.Record(e)
			}
		}
	}
	return s
}

// recordEvent records what has no frame.
func (r *recorder) recordEvent(e capture.Event) {
	e.Session = r.session.Load()
	r.record(&e)
}

// note records a remark, and tells the user.
func (r *recorder) note(text string) {
	r.recordEvent(capture.Event{Kind: capture.KindNote, Data: []byte(text)})
	r.log(text)
}

// recordEOF records the end of a direction.
func (r *recorder) recordEOF(dir capture.Dir) {
	r.recordEvent(capture.Event{Kind: capture.KindEOF, Dir: dir})
}

// stderrLines returns what records standard error, nil if nothing does.
func (r *recorder) stderrLines() *capture.Lines {
	if r.w == nil {
		return nil
	}
	return r.w.Lines(capture.Event{Kind: capture.KindStderr, Session: r.session.Load()})
}

const (
	maxHeader    = 8 << 10  // of a block that may be a header
	minCopy      = 64 << 10 // what is taken for a frame in pieces; it doubles
	maxHeapCopy  = 1 << 20  // more is memory of its own, which is given back behind the frame
	maxBodyBytes = 1 << 53  // a Content-Length above is none
)

// A splitter tells frames apart in a stream of bytes, and hands each to sink when it is complete. It never fails: any stream is a sequence of frames, and
// putting their bytes behind one another gives the stream again, see appendRaw.
//
// Invariants: a frame that has begun in an earlier chunk has its first len(copy) bytes in copy, unless state is inHeader, when all of it is in header.
type splitter struct {
	sink     func(*capture.Event) // the event and its Data are good during the call
	maxCopy  int                  // bytes of a frame in pieces that are handed to sink
	wantCopy func(size int) bool  // whether a frame of so many bytes is worth copying; nil: all are

	event    capture.Event
	state    splitState
	copied   []byte
	skipCopy bool   // the rest of the frame is not copied
	mapped   bool   // copy is of newLarge
	reusable []byte // what copy was before that, to be used again
	size     int64  // of the frame up to here, without its header
	lastByte byte   // of the frame up to here, if size > 0
	header   []byte
	prefix   string // of the header of the body under way
	bodyLeft int64  // bytes of it that have not come
}

type splitState uint8

const (
	betweenFrames splitState = iota
	inLine
	inHeader // maybe
	inBody
)

func newSplitter(dir capture.Dir, max int, sink func(*capture.Event)) *splitter {
	return &splitter{sink: sink, maxCopy: max, event: capture.Event{Kind: capture.KindMessage, Dir: dir}}
}

// write takes the next piece of the stream.
func (s *splitter) write(p []byte) {
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

// partial reports whether a frame has begun and not ended.
func (s *splitter) partial() bool { return s.state != betweenFrames }

// close takes the end of the stream.
func (s *splitter) close() {
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

// feedLine takes what p has of a line.
func (s *splitter) feedLine(p []byte) (rest []byte) {
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

// endLine hands over a line of s.size bytes that begins with data.
func (s *splitter) endLine(data []byte) {
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

// copyPart remembers a piece of the frame, as far as that is wanted.
func (s *splitter) copyPart(p []byte) {
	if len(p) == 0 {
		return
	}
	s.size += int64(len(p))
	s.lastByte = p[len(p)-1]
	// One more than is wanted: whoever cuts it to size sees where a character ends.
	p = p[:min(len(p), s.maxCopy+1-len(s.copied))]
	need := len(s.copied) + len(p)
	if s.wantCopy != nil && (len(s.copied) == 0 || need > cap(s.copied)) && !s.wantCopy(need) {
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

// grow makes room for so many bytes in copy.
func (s *splitter) grow(need int) {
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

// takeMemory gives the memory of a large frame to the one who is told of it, from within sink, and returns what gives it back to the system: nil if the frame has none of its own.
func (s *splitter) takeMemory() (free func()) {
	if !s.mapped || len(s.event.Data) == 0 || &s.event.Data[0] != &s.copied[0] {
		return nil
	}
	memory := s.copied
	s.copied, s.reusable, s.mapped = s.reusable[:0], nil, false
	return func() { freeLarge(memory) }
}

// resetCopy makes copy empty, and gives back what a large frame has taken.
func (s *splitter) resetCopy() {
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

// emit hands over a frame of s.size bytes that begins with data, and is ready for the next.
func (s *splitter) emit(data []byte, framing capture.Framing) {
	e := &s.event
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
	s.sink(e)
	e.Data = nil
	s.resetCopy()
}

// feedHeader takes what p has of a line of what may be a header.
func (s *splitter) feedHeader(p []byte) (rest []byte) {
	i := bytes.IndexByte(p, '\n')
	end := i + 1
	if i < 0 {
		end = len(p)
	}
	if len(s.header)+end > maxHeader {
		s.rejectHeader()
		s.state = inLine // also if p begins like a header
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

// endHeader is called with a whole block in header.
func (s *splitter) endHeader() {
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

// rejectHeader makes lines of what is in header. They are not looked at as headers again, or there would be no end of it.
func (s *splitter) rejectHeader() {
	text := s.header
	s.state = betweenFrames
	for len(text) > 0 {
		s.state = inLine
		text = s.feedLine(text)
	}
	s.header = s.header[:0]
}

// feedBody takes what p has of a body.
func (s *splitter) feedBody(p []byte) (rest []byte) {
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

// headerNames are what a header of a frame begins with.
var headerNames = [...]string{"content-length:", "content-type:"}

// hasHeaderPrefix reports whether p begins as a header does, as far as it goes.
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

// isField reports whether a line is a field of a header.
func isField(line []byte) bool {
	name, _, ok := bytes.Cut(line, []byte(":"))
	for _, c := range name {
		if l := lower(c); (l < 'a' || l > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return ok && len(name) > 0
}

// contentLength returns the length that a header gives, if it gives one.
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

// appendRaw appends the bytes that a frame had on the wire, if it is not cut.
func appendRaw(dst []byte, e *capture.Event) []byte {
	dst = append(append(dst, e.Prefix...), e.Data...)
	switch e.Framing {
	case capture.FramingLF:
		dst = append(dst, '\n')
	case capture.FramingCRLF:
		dst = append(dst, "\r\n"...)
	}
	return dst
}

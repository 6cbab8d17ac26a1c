package jsonrpc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"mcpwire/internal/json/jsonwire"
)

// A Framer moves frames, each of which holds one message or one batch, over a transport. [NewFramer] makes one for any byte stream; implement it
// for a transport that has message boundaries of its own.
//
// One goroutine may read while another writes; neither method is called twice at once.
type Framer interface {
	// ReadFrame waits for the next frame. The slice is valid until the next call, or for good if the Framer is a [MessageTransport]. io.EOF means that the peer is done.
	// A *FrameError means that one frame was unusable and was passed over, a *CallError that one call has failed, [ErrGap] that there is a gap: the next call reads on behind it.
	// Look for a *CallError first: a *FrameError wraps one if the frame is the answer to a call, too large to be read.
	ReadFrame() ([]byte, error)
	// WriteFrame sends one message, which has no line breaks in it. It does not keep msg.
	WriteFrame(msg []byte) error
	// Close ends both directions and makes a blocked ReadFrame return.
	Close() error
}

// A FrameError tells of one frame that could not be read. The stream goes on behind it.
type FrameError struct {
	Code   Code   // what to answer with
	Reason string // what was wrong and how to mend it
	// Err is a *[TooLargeError] if the frame is above the limit, or a *[CallError] that wraps one if it answers a request that is known; else nil.
	Err error
}

func (e *FrameError) Error() string { return e.Reason }

// Unwrap returns Err.
func (e *FrameError) Unwrap() error { return e.Err }

// DefaultMaxFrame is the largest frame that is read by default, in bytes.
const DefaultMaxFrame = 64 << 20

func newTooLarge(limit int) *FrameError {
	return &FrameError{Code: CodeInvalidRequest, Reason: fmt.Sprintf("frame of more than %d bytes was skipped: send less, or raise the receiver's frame limit", limit)}
}

// A source is what the reading loop of Conn wants of a framer: to know when no further frame can be had without waiting, and to hand the
// memory under a frame to whoever goes on using it.
type source interface {
	// next returns a frame that is buffered already, errNeedMore when there is none, or a *FrameError or *CallError, or ErrGap.
	next() ([]byte, error)
	// fill waits for more input. idle tells that nothing in this process waits for the reader's processor.
	fill(idle bool) error
	// detach leaves the memory under the frames handed out so far to their users; held is how much that is.
	detach()
	bufferSize() int
	// begin and finish put the framing around a message that is appended to dst between the two calls; start is len(dst) before begin.
	begin(dst []byte) []byte
	finish(dst []byte, start int) []byte
	// write sends framed bytes.
	write(p []byte) error
	// Close makes a fill that is under way return.
	Close() error
}

var errNeedMore = errors.New("no complete frame is buffered")

// sourceOf returns the framer itself if it reads a stream of bytes, and an adapter otherwise.
func sourceOf(f Framer) source {
	if s, ok := f.(source); ok {
		return s
	}
	_, ownsFrames := f.(MessageTransport)
	return &frameSource{Framer: f, ownsFrames: ownsFrames}
}

// A frameSource reads a foreign Framer. It copies each frame that is not given to it, because the leader's follower may still use the last one.
type frameSource struct {
	Framer
	ownsFrames bool
	frame      []byte
	err        error
}

func (s *frameSource) next() ([]byte, error) {
	if s.frame == nil && s.err == nil {
		return nil, errNeedMore
	}
	frame, err := s.frame, s.err
	s.frame, s.err = nil, nil
	return frame, err
}

func (s *frameSource) fill(bool) error {
	frame, err := s.ReadFrame()
	if err == nil {
		if s.frame = frame; !s.ownsFrames || frame == nil {
			s.frame = append(make([]byte, 0, len(frame)+1), frame...)
		}
		return nil
	}
	if bad, ok := errors.AsType[*FrameError](err); ok {
		s.err = bad
		return nil
	}
	if lost, ok := errors.AsType[*CallError](err); ok {
		s.err = lost
		return nil
	}
	if err == ErrGap {
		s.err = err
		return nil
	}
	return err
}

func (s *frameSource) detach()                 {}
func (s *frameSource) bufferSize() int         { return 0 } // each frame has memory of its own
func (s *frameSource) begin(dst []byte) []byte { return dst }

// finish separates messages as lines do, so that write can tell several of them apart.
func (s *frameSource) finish(dst []byte, _ int) []byte { return append(dst, '\n') }

func (s *frameSource) write(p []byte) error {
	for msg := range bytes.Lines(p) {
		if err := s.WriteFrame(msg[:len(msg)-1]); err != nil {
			return err
		}
	}
	return nil
}

// Framing is how frames are told apart in a stream of bytes.
type Framing uint8

const (
	// FramingAuto takes the framing that the peer's first bytes show, and answers in it.
	FramingAuto Framing = iota
	// FramingLine is newline-delimited JSON, what MCP uses over stdio (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio).
	// "\r\n" ends a line too, blank lines are passed over, and a last line that the end of input cuts off counts.
	FramingLine
	// FramingHeader puts a Content-Length header before each message, as the Language Server Protocol does. The length counts bytes.
	FramingHeader
)

func (f Framing) String() string {
	switch f {
	case FramingLine:
		return "line"
	case FramingHeader:
		return "header"
	}
	return "auto"
}

// FramerOptions are the options of NewFramer. The zero value is ready to use.
type FramerOptions struct {
	Framing  Framing
	MaxFrame int // bytes; 0 is DefaultMaxFrame. Larger frames are skipped to their end and reported as a *FrameError
}

// A StreamFramer is a Framer over a stream of bytes: standard input and output, a socket, a net.Pipe.
type StreamFramer struct {
	rw      io.ReadWriteCloser
	idle    idleReader // rw, if it is one
	max     int
	framing Framing // of the input; FramingAuto until it is known
	out     atomic.Uint32

	// buf[start:end] is input that is not yet handed out; buf[start:scanned] is known to hold no line end.
	buf                 []byte
	start, scanned, end int
	chunks              [][]byte // of a long line, before buf: a buffer that grew would cost several times as much as the line
	chunkBytes          int
	line                []byte // that was handed out and was in parts; nil if its user has it now
	underusedReads      int    // reads since buf was last well used
	readErr             error
	emptyReads          int // reads in a row that brought nothing

	oversize  *oversizeScanner // the frame above the limit that is being skipped; nil if none is
	skipping  bool             // with headers: passing over the rest of a frame
	skipLeft  int64            // with headers: bytes of the frame still to be passed over; -1 up to the next header
	bodyLen   int              // with headers: length of the body at start, when its header has been read; else -1
	badHeader *FrameError
}

// An idleReader has a second way of reading, cheaper but holding on to a processor, for when nothing else wants one. Close must make it return too.
type idleReader interface {
	ReadIdle(p []byte) (int, error)
}

const (
	minBuffer         = 64 << 10 // what a pipe holds
	maxIdleBuffer     = 1 << 20  // buffers of this size are given back when a while nothing large came; longer lines are kept in parts until they end
	maxUnderusedReads = 64       // that while, in reads
	maxEmptyReads     = 100      // reads without data or error after which a reader counts as broken
)

// NewFramer returns a framer that reads and writes rw. nil options are the defaults. Closing the framer closes rw.
func NewFramer(rw io.ReadWriteCloser, opts *FramerOptions) *StreamFramer {
	if opts == nil {
		opts = &FramerOptions{}
	}
	f := &StreamFramer{rw: rw, framing: opts.Framing, max: opts.MaxFrame, bodyLen: -1}
	f.idle, _ = rw.(idleReader)
	if f.max <= 0 {
		f.max = DefaultMaxFrame
	}
	f.out.Store(uint32(opts.Framing))
	f.buf = make([]byte, minBuffer)
	return f
}

// Framing returns the framing in use, FramingAuto as long as it is not known.
func (f *StreamFramer) Framing() Framing { return Framing(f.out.Load()) }

// ReadFrame implements [Framer].
func (f *StreamFramer) ReadFrame() ([]byte, error) {
	for {
		frame, err := f.next()
		if err != errNeedMore {
			return frame, err
		}
		if err := f.fill(false); err != nil {
			return nil, err
		}
	}
}

// WriteFrame implements [Framer].
func (f *StreamFramer) WriteFrame(msg []byte) error {
	if n := len(msg) + headerRoom; n > minBuffer {
		buf := f.newBuffer(n)
		defer putBuffer(buf)
		return f.write(f.finish(append(f.begin(buf[:0]), msg...), 0))
	}
	out := sendBuffers.Get().(*[]byte)
	defer putSendBuffer(out)
	*out = f.finish(append(f.begin((*out)[:0]), msg...), 0)
	return f.write(*out)
}

// Close implements [Framer].
func (f *StreamFramer) Close() error { return f.rw.Close() }

func (f *StreamFramer) next() ([]byte, error) {
	if f.framing == FramingAuto {
		for f.start < f.end && isSpace(f.buf[f.start]) {
			f.start++ // whatever comes of it, it has no meaning
		}
		f.scanned = f.start
		if f.framing = detectFraming(f.buf[f.start:f.end], f.readErr != nil); f.framing == FramingAuto {
			return nil, f.incomplete()
		}
		f.out.Store(uint32(f.framing))
	}
	if f.framing == FramingHeader {
		return f.nextHeader()
	}
	return f.nextLine()
}

// incomplete is what next returns when the buffer holds no complete frame.
func (f *StreamFramer) incomplete() error {
	if f.readErr != nil {
		return f.readErr
	}
	return errNeedMore
}

func (f *StreamFramer) fill(idle bool) error {
	if f.readErr != nil {
		return f.readErr
	}
	if f.line != nil {
		putBuffer(f.line)
		f.line = nil
	}
	f.makeRoom()
	var n int
	var err error
	if idle && f.idle != nil {
		n, err = f.idle.ReadIdle(f.buf[f.end:])
	} else {
		n, err = f.rw.Read(f.buf[f.end:])
	}
	f.end += n
	if f.emptyReads++; n > 0 {
		f.emptyReads = 0
	} else if err == nil && f.emptyReads == maxEmptyReads {
		err = io.ErrNoProgress
	}
	// An error is kept back until what was read before it is handed out; the frame it may have cut off is next's to judge.
	f.readErr = err
	return nil
}

// makeRoom makes sure that buf has room behind end.
func (f *StreamFramer) makeRoom() {
	if f.start == f.end {
		f.start, f.scanned, f.end = 0, 0, 0
		if f.underusedReads++; len(f.buf) >= maxIdleBuffer && f.underusedReads > maxUnderusedReads {
			f.buf = make([]byte, minBuffer)
		}
	}
	if need := f.bodyLen; f.end-f.start > minBuffer || need > minBuffer {
		f.underusedReads = 0
	}
	switch {
	case f.bodyLen > 0 && f.start+f.bodyLen > len(f.buf):
		f.moveTo(f.newBuffer(f.bodyLen))
	case f.end < len(f.buf):
	case f.start > len(f.buf)/2:
		f.moveTo(f.buf)
	case f.framing == FramingLine && len(f.buf) >= maxIdleBuffer:
		f.stashChunk()
	case len(f.buf) < f.max+minBuffer:
		f.moveTo(f.newBuffer(min(2*len(f.buf), f.max+minBuffer)))
	default:
		f.moveTo(f.buf) // what is due is less than max
	}
}

// stashChunk makes a part of what buf holds of a line whose end has not come.
func (f *StreamFramer) stashChunk() {
	f.chunks = append(f.chunks, f.buf[f.start:f.end])
	f.chunkBytes += f.end - f.start
	f.buf = f.newBuffer(maxIdleBuffer)
	f.start, f.scanned, f.end = 0, 0, 0
}

// joinChunks returns the line of which rest is the end, in one piece.
func (f *StreamFramer) joinChunks(rest []byte) []byte {
	if f.chunks == nil {
		return rest
	}
	n := f.chunkBytes + len(rest)
	line := f.newBuffer(n)[:0]
	for _, part := range f.chunks {
		line = append(line, part...)
	}
	line = append(line, rest...)
	f.dropChunks()
	f.line = line
	return line
}

// dropChunks forgets the parts. Nothing aliases them.
func (f *StreamFramer) dropChunks() {
	for _, part := range f.chunks {
		putBuffer(part)
	}
	f.chunks, f.chunkBytes = nil, 0
}

func (f *StreamFramer) moveTo(buf []byte) {
	copy(buf, f.buf[f.start:f.end])
	old := f.buf
	f.buf = buf
	f.scanned, f.end, f.start = f.scanned-f.start, f.end-f.start, 0
	if &old[0] != &buf[0] {
		putBuffer(old)
	}
}

// newBuffer returns a buffer of at least n bytes, which no frame aliases.
func (f *StreamFramer) newBuffer(n int) []byte {
	if b, ok := largeBuffers.Get().(*[]byte); ok && len(*b) >= n {
		return *b
	}
	size := minBuffer
	for size < n && size < maxIdleBuffer {
		size *= 2
	}
	if size < n {
		size = (n + minBuffer - 1) / minBuffer * minBuffer // the next may be a little larger
	}
	return make([]byte, size)
}

// largeBuffers holds buffers that grew for a large frame, so that the next one need not touch fresh memory. The collector empties it.
var largeBuffers sync.Pool

func putBuffer(b []byte) {
	if b = b[:cap(b)]; len(b) > minBuffer {
		largeBuffers.Put(&b)
	}
}

func (f *StreamFramer) bufferSize() int { return len(f.buf) }

func (f *StreamFramer) detach() {
	f.line = nil
	n := max(minBuffer, f.end-f.start)
	if f.bodyLen > n {
		n = f.bodyLen
	}
	buf := f.newBuffer(n)
	copy(buf, f.buf[f.start:f.end])
	f.buf = buf
	f.scanned, f.end, f.start = f.scanned-f.start, f.end-f.start, 0
}

func (f *StreamFramer) begin(dst []byte) []byte {
	if Framing(f.out.Load()) == FramingHeader {
		return append(dst, headerBlank...)
	}
	return dst
}

func (f *StreamFramer) finish(dst []byte, start int) []byte {
	if dst[start] == headerBlank[0] { // not by the framing in use: that may have become known since begin
		return putHeader(dst, start)
	}
	return append(dst, '\n')
}

func (f *StreamFramer) write(p []byte) error {
	n, err := f.rw.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// nextLine returns the next line that is not blank.
func (f *StreamFramer) nextLine() ([]byte, error) {
	for {
		i := bytes.IndexByte(f.buf[f.scanned:f.end], '\n')
		if i < 0 {
			return f.lastLine()
		}
		line := f.buf[f.start : f.scanned+i]
		f.start = f.scanned + i + 1
		f.scanned = f.start
		if f.oversize != nil || f.chunkBytes+len(line) > f.max {
			if err := f.skipChunk(line, true); err != nil {
				return nil, err
			}
			continue
		}
		if line = f.joinChunks(line); !isBlank(line) {
			return line, nil
		}
	}
}

// lastLine deals with a line whose end has not come: it waits for it, gives up on it, or takes it as it is at the end of input.
func (f *StreamFramer) lastLine() ([]byte, error) {
	f.scanned = f.end
	line := f.buf[f.start:f.end]
	if f.oversize != nil || f.chunkBytes+len(line) > f.max {
		f.start = f.end
		if err := f.skipChunk(line, f.readErr != nil); err != nil {
			return nil, err
		}
		return nil, f.incomplete()
	}
	if f.readErr == nil {
		return nil, errNeedMore
	}
	f.start = f.end
	if line = f.joinChunks(line); !isBlank(line) {
		return line, nil
	}
	return nil, f.readErr
}

// skipChunk passes over a piece of a frame above the limit, and the parts before it. It returns a *FrameError once for each such frame.
func (f *StreamFramer) skipChunk(chunk []byte, last bool) error {
	if f.oversize == nil {
		f.oversize = &oversizeScanner{limit: f.max}
	}
	if !f.oversize.sizeKnown {
		f.oversize.size += int64(f.chunkBytes + len(chunk))
	}
	var err error
	for _, stashed := range f.chunks {
		err = cmp.Or(err, f.oversize.feed(stashed, false))
	}
	f.dropChunks()
	err = cmp.Or(err, f.oversize.feed(chunk, last))
	if last {
		f.oversize = nil
	}
	return err
}

// isBlank reports whether a line holds only white space.
func isBlank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

const (
	contentLength = "content-length"
	headerRoom    = 32 // at most what putHeader writes
	maxHeader     = 8 << 10
	maxLengthLine = len(contentLength) + 24 // longest line that findHeader takes for a header
)

var headerBlank = make([]byte, headerRoom)

// putHeader writes the header of the message in dst[start+headerRoom:] and closes the gap.
func putHeader(dst []byte, start int) []byte {
	n := len(dst) - start - headerRoom
	var h [headerRoom]byte
	head := append(h[:0], "Content-Length: "...)
	head = append(strconv.AppendInt(head, int64(n), 10), "\r\n\r\n"...)
	body := copy(dst[start:], head) + start
	copy(dst[body:], dst[start+headerRoom:])
	return dst[:body+n]
}

// detectFraming tells the framing by the first bytes of a stream that are no white space. It answers FramingAuto when they are too few.
func detectFraming(b []byte, eof bool) Framing {
	const prefix = "content-"
	for i := range min(len(b), len(prefix)) {
		if lower(b[i]) != prefix[i] {
			return FramingLine
		}
	}
	switch {
	case len(b) >= len(prefix):
		return FramingHeader
	case eof && len(b) > 0:
		return FramingLine
	}
	return FramingAuto
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// nextHeader returns the next body. What it can't make sense of is passed over up to the next thing that looks like a header: no JSON text can
// hold one, because it has a raw line break right behind a number outside of a string's grammar.
func (f *StreamFramer) nextHeader() ([]byte, error) {
	for {
		if f.badHeader != nil { // told before the rest is skipped, which may wait for the peer
			err := f.badHeader
			f.badHeader = nil
			return nil, err
		}
		if f.skipping {
			from := f.start
			done := f.skip()
			if f.oversize != nil {
				if err := f.skipChunk(f.buf[from:f.start], done); err != nil {
					return nil, err
				}
			}
			if !done {
				return nil, f.incomplete()
			}
		}
		if f.bodyLen < 0 {
			if ok, err := f.readHeader(); err != nil || !ok {
				return nil, err
			}
			continue // to what the header led to
		}
		if f.end-f.start >= f.bodyLen {
			body := f.buf[f.start : f.start+f.bodyLen]
			f.start += f.bodyLen
			f.scanned = f.start
			f.bodyLen = -1
			return body, nil
		}
		if f.readErr == nil {
			return nil, errNeedMore
		}
		f.bodyLen = -1
		f.start = f.end
		return nil, &FrameError{Code: CodeParseError, Reason: "the input ended within a frame: Content-Length is larger than what followed"}
	}
}

// readHeader reads a header block, if one is complete, and sets body or starts skipping. ok is false when err or the caller's next step is final.
func (f *StreamFramer) readHeader() (ok bool, err error) {
	for f.start < f.end && (f.buf[f.start] == '\r' || f.buf[f.start] == '\n') {
		f.start++ // line breaks between frames do no harm
	}
	f.scanned = f.start
	block := f.buf[f.start:f.end]
	n := headerEnd(block)
	if n > maxHeader || n < 0 && len(block) > maxHeader {
		f.resync(1, fmt.Sprintf("no end of the header within %d bytes", maxHeader))
		return true, nil
	}
	if n < 0 {
		switch {
		case f.readErr != nil && len(block) > 0:
			f.start = f.end
			return false, &FrameError{Code: CodeParseError, Reason: "the input ended within a header"}
		}
		return false, f.incomplete()
	}
	length, reason := parseHeader(block[:n])
	if reason != "" {
		if length < 0 {
			n = 1 // a good header may be further down, behind a piece of something else
		}
		f.resync(n, reason)
		return true, nil
	}
	f.start += n
	f.scanned = f.start
	if length > int64(f.max) {
		f.oversize = &oversizeScanner{limit: f.max, size: length, sizeKnown: true}
		f.skipping, f.skipLeft = true, length
		return true, nil
	}
	f.bodyLen = int(length)
	return true, nil
}

// resync makes the framer look for a header behind the first n bytes, so that the one that was refused is not found again.
func (f *StreamFramer) resync(n int, reason string) {
	f.badHeader = &FrameError{Code: CodeParseError, Reason: "bad frame header: " + reason}
	f.skipping, f.skipLeft = true, -1
	f.start += n
}

// skip passes over input up to the end of the frame or the next header, whichever comes first, and reports whether it got there.
func (f *StreamFramer) skip() bool {
	b := f.buf[f.start:f.end]
	n := len(b)
	if f.skipLeft >= 0 && f.skipLeft < int64(n) {
		n = int(f.skipLeft)
	}
	if at := findHeader(b[:n]); at >= 0 {
		f.start += at
		f.scanned, f.skipping = f.start, false
		return true
	}
	done := f.skipLeft >= 0 && int64(n) == f.skipLeft
	keep := 0
	if !done && f.readErr == nil {
		keep = min(n, maxLengthLine) // a header may have come in part
	}
	f.start += n - keep
	f.scanned = f.start
	if f.skipLeft >= 0 {
		f.skipLeft -= int64(n - keep)
	}
	if f.readErr != nil && !done {
		done = true
		f.start = f.end
	}
	if done {
		f.skipping = false
	}
	return done
}

// headerEnd returns the length of the header block with the blank line that ends it, or -1.
func headerEnd(b []byte) int {
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 {
			return -1
		}
		line := b[i : i+j]
		i += j + 1
		if len(line) == 0 || len(line) == 1 && line[0] == '\r' {
			return i
		}
	}
}

// parseHeader returns the body length, or why there is none. With a reason, the length is negative unless there were several.
func parseHeader(block []byte) (length int64, reason string) {
	length = -1
	for line := range bytes.Lines(block) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		name = bytes.TrimSpace(name)
		if !ok || !isFieldName(name) {
			return -1, fmt.Sprintf("line %.40q is no header field", line)
		}
		if !bytes.EqualFold(name, []byte(contentLength)) {
			continue // Content-Type and whatever else comes
		}
		value = bytes.TrimSpace(value)
		n, err := strconv.ParseUint(string(value), 10, 62)
		switch {
		case err != nil:
			return -1, fmt.Sprintf("Content-Length %.40q is not a length in bytes", value)
		case length >= 0 && length != int64(n):
			return length, "two Content-Length headers that differ"
		}
		length = int64(n)
	}
	if length < 0 {
		return -1, "Content-Length is missing"
	}
	return length, ""
}

// isFieldName tells header fields from pieces of a body, JSON above all.
func isFieldName(b []byte) bool {
	for _, c := range b {
		if l := lower(c); (l < 'a' || l > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return len(b) > 0
}

// findHeader returns where something that looks like a header starts: Content-Length, a number and a line break.
func findHeader(b []byte) int {
	for i := 0; i < len(b); i++ {
		j := bytes.IndexAny(b[i:], "cC")
		if j < 0 {
			return -1
		}
		i += j
		line := b[i:min(len(b), i+maxLengthLine)]
		if len(line) > len(contentLength) && bytes.EqualFold(line[:len(contentLength)], []byte(contentLength)) && isLengthLine(line[len(contentLength):]) {
			return i
		}
	}
	return -1
}

func isLengthLine(b []byte) bool {
	line, _, ok := bytes.Cut(b, []byte("\n"))
	if !ok || len(line) == 0 || line[0] != ':' {
		return false
	}
	value := bytes.TrimSpace(line[1:])
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(value) > 0
}

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

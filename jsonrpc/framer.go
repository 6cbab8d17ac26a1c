package jsonrpc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"mcpwire/internal/json/jsonwire"
)

// A Framer moves frames over a transport. Each frame holds one message or one batch. [NewFramer]
// returns one for any byte stream; implement Framer for a transport that has its own message
// boundaries.
//
// One goroutine may read while another writes. Neither method is called concurrently with itself.
type Framer interface {
	// ReadFrame waits for the next frame. The slice is valid until the next call. io.EOF means that
	// the peer is done.
	//
	// After these errors the next call reads on: a *FrameError means that one frame was invalid and
	// was skipped, a *CallError that one call failed, [ErrGap] that messages may be missing. Test
	// for *CallError first: a *FrameError wraps one if the frame answers a call and is too large.
	ReadFrame() ([]byte, error)
	// WriteFrame sends one message, which has no line breaks in it. It does not keep msg.
	WriteFrame(msg []byte) error
	// Close ends both directions and makes a blocked ReadFrame return.
	Close() error
}

// A Server answers the messages of a framer. A *server.Server is one.
type Server interface {
	// Serve runs until ctx ends, or until the framer's input ends and the accepted requests are
	// answered or the server's own deadline for them has passed.
	Serve(ctx context.Context, f Framer) error
}

// A FrameError is the error of one frame that could not be read. The stream goes on after the
// frame.
type FrameError struct {
	// Code is the code of the error response.
	Code Code
	// Reason says what was wrong and how to fix it.
	Reason string
	// Err is a *[TooLargeError] if the frame is above the limit, or a *[CallError] that wraps one
	// if the frame answers a known request. Otherwise it is nil.
	Err error
}

func (e *FrameError) Error() string { return e.Reason }

// Unwrap returns Err.
func (e *FrameError) Unwrap() error { return e.Err }

// DefaultMaxFrame is the default limit of a frame, in bytes.
const DefaultMaxFrame = 64 << 20

func newTooLarge(limit int) *FrameError {
	return &FrameError{Code: CodeInvalidRequest, Reason: fmt.Sprintf("frame of more than %d bytes was skipped: send less, or raise the receiver's frame limit", limit)}
}

// Framing is how a byte stream is divided into frames.
type Framing uint8

const (
	// FramingAuto detects the framing from the peer's first bytes, and answers in it.
	FramingAuto Framing = iota
	// FramingLine is newline-delimited JSON, as MCP uses it over stdio
	// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio). "\r\n"
	// ends a line too, blank lines and a byte order mark before a message are skipped, and a last
	// line without a line break counts unless its JSON is cut off.
	FramingLine
	// FramingHeader puts a Content-Length header before each message, as the Language Server
	// Protocol does. The length counts bytes.
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
	Framing Framing
	// MaxFrame limits a frame, in bytes. Zero means DefaultMaxFrame. Larger frames are skipped and
	// reported as a *FrameError.
	MaxFrame int
}

// A streamFramer is a Framer over a byte stream. It is also a Source of internal/rpc, with which
// the connections of this module read and write many frames at a time without copies.
type streamFramer struct {
	rw io.ReadWriteCloser
	// idle is rw if it is an idleReader, and otherwise nil.
	idle idleReader
	// try is rw if it is a tryWriter, and otherwise nil.
	try tryWriter
	max int
	// framing is the framing of the input. It is FramingAuto until it is known.
	framing Framing
	out     atomic.Uint32

	// buf[start:end] is unread input. buf[start:scanned] contains no line end.
	buf                 []byte
	start, scanned, end int
	// chunks holds the parts of a long line that precede buf. Growing a buffer would cost several
	// times as much as the line.
	chunks     [][]byte
	chunkBytes int
	// line is the last line that was joined from chunks. It is nil if its user took it over.
	line []byte
	// underusedReads counts reads since buf was last well used.
	underusedReads int
	readErr        error
	// emptyReads counts consecutive reads without data.
	emptyReads int

	// oversize scans the skipped frame above the limit. It may be nil.
	oversize *oversizeScanner
	// skipping says, with headers, that the rest of a frame is skipped.
	skipping bool
	// skipLeft counts, with headers, the bytes of the frame that remain to be skipped. It is -1 if
	// the next header ends the skipping.
	skipLeft int64
	// bodyLen is, with headers, the length of the body at start after its header was read, else -1.
	bodyLen   int
	badHeader *FrameError
}

// An idleReader has a second way of reading, which is cheaper but keeps a processor busy. It is for
// times without other work. Close must make it return too.
type idleReader interface {
	ReadIdle(p []byte) (int, error)
}

// A tryWriter can also write what fits without a wait. It returns no errors: Write does, which is
// called for the rest.
type tryWriter interface {
	TryWrite(p []byte) int
}

const (
	minBuffer = 64 << 10 // the capacity of a pipe
	// Buffers of this size are released after maxUnderusedReads reads without large input, and
	// larger ones at once. Longer lines are kept in chunks until they end.
	maxIdleBuffer     = 1 << 20
	maxUnderusedReads = 64
	maxEmptyReads     = 100 // then io.ErrNoProgress
)

// NewFramer returns a framer over a byte stream: standard input and output, a socket, a net.Pipe.
// Nil opts mean the defaults. Closing the framer closes rw.
func NewFramer(rw io.ReadWriteCloser, opts *FramerOptions) Framer { return newFramer(rw, opts) }

func newFramer(rw io.ReadWriteCloser, opts *FramerOptions) *streamFramer {
	if opts == nil {
		opts = &FramerOptions{}
	}
	f := &streamFramer{rw: rw, framing: opts.Framing, max: opts.MaxFrame, bodyLen: -1}
	f.idle, _ = rw.(idleReader)
	f.try, _ = rw.(tryWriter)
	if f.max <= 0 {
		f.max = DefaultMaxFrame
	}
	f.out.Store(uint32(opts.Framing))
	f.buf = make([]byte, minBuffer)
	return f
}

// Framing returns the framing in use. It is FramingAuto until it is known.
func (f *streamFramer) Framing() Framing { return Framing(f.out.Load()) }

func (f *streamFramer) ReadFrame() ([]byte, error) {
	for {
		frame, err := f.NextFrame()
		if frame != nil || err != nil {
			return frame, err
		}
		if err := f.Fill(false); err != nil {
			return nil, err
		}
	}
}

func (f *streamFramer) WriteFrame(msg []byte) error {
	if n := len(msg) + headerRoom; n > minBuffer {
		buf := f.newBuffer(n)
		defer putBuffer(buf)
		return f.WriteFrames(f.FinishFrame(append(f.BeginFrame(buf[:0]), msg...), 0))
	}
	out := writeBuffers.Get().(*[]byte)
	defer func() {
		if cap(*out) <= minBuffer {
			writeBuffers.Put(out)
		}
	}()
	*out = f.FinishFrame(append(f.BeginFrame((*out)[:0]), msg...), 0)
	return f.WriteFrames(*out)
}

// writeBuffers holds memory for frames that are written.
var writeBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (f *streamFramer) Close() error { return f.rw.Close() }

func (f *streamFramer) NextFrame() ([]byte, error) {
	if f.framing == FramingAuto {
		for f.start < f.end && isSpace(f.buf[f.start]) {
			f.start++ // white space has no meaning in any framing
		}
		f.scanned = f.start
		if f.framing = detectFraming(f.buf[f.start:f.end], f.readErr != nil); f.framing == FramingAuto {
			return nil, f.readErr
		}
		f.out.Store(uint32(f.framing))
	}
	if f.framing == FramingHeader {
		return f.nextHeader()
	}
	return f.nextLine()
}

func (f *streamFramer) Fill(idle bool) error {
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
	// Hold an error back until the input before it is consumed. NextFrame handles a frame that is
	// cut off.
	f.readErr = err
	return nil
}

// makeRoom ensures that buf has room after end.
func (f *streamFramer) makeRoom() {
	if f.start == f.end {
		f.start, f.scanned, f.end = 0, 0, 0
		if len(f.buf) > maxIdleBuffer { // it is not kept while nothing arrives
			putBuffer(f.buf)
			f.buf = f.newBuffer(maxIdleBuffer)
		}
		if f.underusedReads++; len(f.buf) >= maxIdleBuffer && f.underusedReads > maxUnderusedReads {
			f.buf = make([]byte, minBuffer)
		}
	}
	if max(f.end-f.start, f.bodyLen) > minBuffer {
		f.underusedReads = 0
	}
	switch {
	case f.bodyLen > 0 && f.start+f.bodyLen > len(f.buf):
		f.moveTo(f.newBuffer(f.bodyLen))
	case f.end < len(f.buf):
	case f.start > len(f.buf)/2:
		f.moveTo(f.buf)
	case f.framing == FramingLine && len(f.buf) >= maxIdleBuffer:
		if !f.moveToLarge() {
			f.stashChunk()
		}
	case len(f.buf) < f.max+minBuffer:
		f.moveTo(f.newBuffer(min(2*len(f.buf), f.max+minBuffer)))
	default:
		f.moveTo(f.buf) // the rest of the frame is less than max
	}
}

// moveToLarge moves an incomplete line to the memory of an earlier long line, if there is any. The
// next long line is often as long, and then takes no chunks.
func (f *streamFramer) moveToLarge() bool {
	if f.chunks != nil || len(f.buf) > maxIdleBuffer {
		return false
	}
	buf := pooledBuffer(maxIdleBuffer + minBuffer)
	if buf == nil {
		return false
	}
	f.moveTo(buf)
	return true
}

// stashChunk moves the part of an incomplete line in buf to chunks.
func (f *streamFramer) stashChunk() {
	f.chunks = append(f.chunks, f.buf[f.start:f.end])
	f.chunkBytes += f.end - f.start
	f.buf = f.newBuffer(maxIdleBuffer)
	f.start, f.scanned, f.end = 0, 0, 0
}

// joinChunks returns chunks and rest as one line.
func (f *streamFramer) joinChunks(rest []byte) []byte {
	if f.chunks == nil {
		return rest
	}
	n := f.chunkBytes + len(rest)
	line := pooledBuffer(n)
	if line == nil {
		// Join does not clear the memory first, unlike make.
		line = bytes.Join(append(f.chunks, rest, padding[:]), nil)[:n]
	} else {
		line = line[:0]
		for _, part := range f.chunks {
			line = append(line, part...)
		}
		line = append(line, rest...)
	}
	f.dropChunks()
	f.line = line
	return line
}

// dropChunks releases the chunks. No frame aliases them.
func (f *streamFramer) dropChunks() {
	for _, part := range f.chunks {
		putBuffer(part)
	}
	f.chunks, f.chunkBytes = nil, 0
}

// padding is room after a joined line, for the input after it and for a slightly longer line.
var padding [minBuffer]byte

func (f *streamFramer) moveTo(buf []byte) {
	copy(buf, f.buf[f.start:f.end])
	old := f.buf
	f.buf = buf
	f.scanned, f.end, f.start = f.scanned-f.start, f.end-f.start, 0
	if &old[0] != &buf[0] {
		putBuffer(old)
	}
}

// newBuffer returns a buffer of at least n bytes that no frame aliases.
func (f *streamFramer) newBuffer(n int) []byte {
	if b := pooledBuffer(n); b != nil {
		return b
	}
	size := minBuffer
	for size < n && size < maxIdleBuffer {
		size *= 2
	}
	if size < n {
		size = (n + minBuffer - 1) / minBuffer * minBuffer // room for a slightly larger frame
	}
	return make([]byte, size)
}

// These hold buffers that grew for a large frame, so that the next large frame need not touch fresh
// memory. The garbage collector empties them. Chunks are apart from joined lines: a chunk must not
// take the memory of a line, and the next line not find that of a chunk.
var (
	chunkBuffers sync.Pool // up to maxIdleBuffer bytes each
	largeBuffers sync.Pool // more
)

func bufferPool(n int) *sync.Pool {
	if n <= maxIdleBuffer {
		return &chunkBuffers
	}
	return &largeBuffers
}

// pooledBuffer returns a buffer of at least n bytes that was used before, or nil.
func pooledBuffer(n int) []byte {
	if b, ok := bufferPool(n).Get().(*[]byte); ok && len(*b) >= n {
		return *b
	}
	return nil
}

func putBuffer(b []byte) {
	if b = b[:cap(b)]; len(b) > minBuffer {
		bufferPool(len(b)).Put(&b)
	}
}

func (f *streamFramer) BufferSize() int { return len(f.buf) }

func (f *streamFramer) Release(frame []byte) { putBuffer(frame) }

func (f *streamFramer) Detach() {
	f.line = nil
	buf := f.newBuffer(max(minBuffer, f.end-f.start, f.bodyLen))
	copy(buf, f.buf[f.start:f.end])
	f.buf = buf
	f.scanned, f.end, f.start = f.scanned-f.start, f.end-f.start, 0
}

func (f *streamFramer) BeginFrame(dst []byte) []byte {
	if Framing(f.out.Load()) == FramingHeader {
		return append(dst, headerBlank...)
	}
	return dst
}

func (f *streamFramer) FinishFrame(dst []byte, start int) []byte {
	if dst[start] == headerBlank[0] { // not f.out, which may have become known since begin
		return putHeader(dst, start)
	}
	return append(dst, '\n')
}

func (f *streamFramer) WriteFrames(p []byte) error {
	n, err := f.rw.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

func (f *streamFramer) TryWriteFrames(p []byte) int {
	if f.try == nil {
		return 0
	}
	return f.try.TryWrite(p)
}

// nextLine returns the next line that is not blank.
func (f *streamFramer) nextLine() ([]byte, error) {
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
		if line = trimLine(f.joinChunks(line)); line != nil {
			return line, nil
		}
	}
}

// lastLine handles an incomplete line: it waits for more, skips the line if it is too long, or
// returns it at the end of input, unless its JSON is cut off.
func (f *streamFramer) lastLine() ([]byte, error) {
	f.scanned = f.end
	line := f.buf[f.start:f.end]
	if f.oversize != nil || f.chunkBytes+len(line) > f.max {
		f.start = f.end
		if err := f.skipChunk(line, f.readErr != nil); err != nil {
			return nil, err
		}
		return nil, f.readErr
	}
	if f.readErr == nil {
		return nil, nil
	}
	f.start = f.end
	line = trimLine(f.joinChunks(line))
	if line == nil {
		return nil, f.readErr
	}
	// A response that is cut off must not count as received: its call fails with the connection.
	if line[0] == '{' || line[0] == '[' {
		bad, ok := errors.AsType[*jsonwire.SyntaxError](jsonwire.Valid(line, 0))
		if ok && bad.Offset == len(line) {
			return nil, &FrameError{Code: CodeParseError, Reason: "the input ended within a message"}
		}
	}
	return line, nil
}

// skipChunk skips a part of a frame above the limit, and the chunks before it. It returns a
// *FrameError once for each such frame.
func (f *streamFramer) skipChunk(chunk []byte, last bool) error {
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

// trimMark returns a frame without the byte order mark at its start, which RFC 8259, section 8.1,
// allows to ignore.
func trimMark(frame []byte) []byte {
	if len(frame) >= 3 && frame[0] == 0xef && frame[1] == 0xbb && frame[2] == 0xbf {
		return frame[3:]
	}
	return frame
}

// trimLine is trimMark for a line. It returns nil if the line holds only white space.
func trimLine(line []byte) []byte {
	line = trimMark(line)
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return line
		}
	}
	return nil
}

const (
	contentLength = "content-length"
	headerRoom    = 32 // upper bound for putHeader
	maxHeader     = 8 << 10
	maxLengthLine = len(contentLength) + 24 // longest line that findHeader accepts
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

// detectFraming returns the framing that the first bytes of a stream show, which are not white
// space. It returns FramingAuto if there are too few.
func detectFraming(b []byte, eof bool) Framing {
	const prefix = "content-"
	n := min(len(b), len(prefix))
	switch {
	case !bytes.EqualFold(b[:n], []byte(prefix[:n])):
		return FramingLine
	case n == len(prefix):
		return FramingHeader
	case eof && n > 0:
		return FramingLine
	}
	return FramingAuto
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// nextHeader returns the next body. It skips invalid input up to the next text that looks like a
// header. A JSON text cannot contain one, because a header has a raw line break right after a
// number.
func (f *streamFramer) nextHeader() ([]byte, error) {
	for {
		// Return the error before skipping the rest, which may wait for the peer.
		if f.badHeader != nil {
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
				return nil, f.readErr
			}
		}
		if f.bodyLen < 0 {
			if ok, err := f.readHeader(); err != nil || !ok {
				return nil, err
			}
			continue
		}
		if f.end-f.start >= f.bodyLen {
			body := f.buf[f.start : f.start+f.bodyLen]
			f.start += f.bodyLen
			f.scanned = f.start
			f.bodyLen = -1
			return trimMark(body), nil
		}
		if f.readErr == nil {
			return nil, nil
		}
		f.bodyLen = -1
		f.start = f.end
		return nil, &FrameError{Code: CodeParseError, Reason: "the input ended within a frame: Content-Length is larger than the body"}
	}
}

// readHeader reads a complete header block and sets bodyLen or starts skipping. ok is false if the
// caller must return err.
func (f *streamFramer) readHeader() (ok bool, err error) {
	for f.start < f.end && (f.buf[f.start] == '\r' || f.buf[f.start] == '\n') {
		f.start++ // line breaks between frames are harmless
	}
	f.scanned = f.start
	block := f.buf[f.start:f.end]
	n := headerEnd(block)
	if n > maxHeader || n < 0 && len(block) > maxHeader {
		f.resync(1, fmt.Sprintf("no end of the header within %d bytes", maxHeader))
		return true, nil
	}
	if n < 0 {
		if f.readErr != nil && len(block) > 0 {
			f.start = f.end
			return false, &FrameError{Code: CodeParseError, Reason: "the input ended within a header"}
		}
		return false, f.readErr
	}
	length, reason := parseHeader(block[:n])
	if reason != "" {
		if length < 0 {
			n = 1 // a valid header may follow inside the block
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

// resync skips to a header after the first n bytes, so that it does not find the rejected one
// again.
func (f *streamFramer) resync(n int, reason string) {
	f.badHeader = &FrameError{Code: CodeParseError, Reason: "bad frame header: " + reason}
	f.skipping, f.skipLeft = true, -1
	f.start += n
}

// skip skips input up to the end of the frame or the next header, whichever is first. It reports
// whether it got there.
func (f *streamFramer) skip() bool {
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
		keep = min(n, maxLengthLine) // a header may have arrived in part
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

// parseHeader returns the body length, or the reason why it is invalid. With a reason, the length
// is negative unless the block has several.
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
			return -1, fmt.Sprintf("line %.40q is not a header field", line)
		}
		if !bytes.EqualFold(name, []byte(contentLength)) {
			continue // for example Content-Type
		}
		value = bytes.TrimSpace(value)
		n, err := strconv.ParseUint(string(value), 10, 62)
		switch {
		case err != nil:
			return -1, fmt.Sprintf("Content-Length %.40q is not a length in bytes", value)
		case length >= 0 && length != int64(n):
			return length, "two different Content-Length headers"
		}
		length = int64(n)
	}
	if length < 0 {
		return -1, "Content-Length is missing"
	}
	return length, ""
}

// isFieldName distinguishes header fields from parts of a body, such as JSON.
func isFieldName(b []byte) bool {
	for _, c := range b {
		if l := c | 0x20; (l < 'a' || l > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return len(b) > 0
}

// findHeader returns the offset of text that looks like a header (Content-Length, a number and a
// line break), or -1.
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
	return len(value) > 0 && len(bytes.Trim(value, "0123456789")) == 0
}

// A TooLargeError is the error for a message above the receiver's limit. The rest of the message is
// skipped, and the connection goes on. A call with too large a response fails with a *[CallError]
// that wraps it, over every transport.
type TooLargeError struct {
	// Limit is the size limit of a message, in bytes.
	Limit int
	// Size is a lower bound of the message's size, in bytes: the size in its header, or what had
	// arrived when the error was made. Zero means unknown.
	Size int64
	// Kind is the kind that the first members of the message show. It is KindInvalid if they show
	// none, and for a batch.
	Kind Kind
	// ID is the id of the message. It is nil if it is absent or unknown.
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

// Is reports whether target is [ErrMalformed] and the message is a response, which is unreadable.
func (e *TooLargeError) Is(target error) bool { return target == ErrMalformed && e.isResponse() }

// isResponse reports whether the message is known to be a response.
func (e *TooLargeError) isResponse() bool { return e.Kind == KindResponse || e.Kind == KindError }

// frameError returns the framer's error for the message.
func (e *TooLargeError) frameError() *FrameError {
	bad := newTooLarge(e.Limit)
	bad.Err = e
	if e.isResponse() && len(e.ID) > 0 {
		bad.Err = &CallError{ID: e.ID, Err: e, Outcome: OutcomeUnknown}
	}
	return bad
}

// maxToken limits a key or id that an oversizeScanner reads, in bytes.
const maxToken = 256

// An oversizeScanner scans a message above the limit for its kind and id while the framer skips it.
// Servers write the id first or last. It keeps only the current key or scalar.
type oversizeScanner struct {
	limit int
	// size is the announced size, or the number of bytes skipped so far.
	size int64
	// sizeKnown says that size was announced.
	sizeKnown bool
	// reported says that a FrameError was returned.
	reported bool
	// finished says that nothing more can be found out.
	finished bool

	depth   int
	quoted  bool
	escaped bool
	// inValue says that the scanner is after the colon of a top-level member.
	inValue bool
	token   []byte
	// truncated says that token is cut off, or that the value is not a scalar.
	truncated bool
	// isID says that the current member is the id.
	isID bool

	id ID
	// ids counts the members named id.
	ids  int
	kind Kind
}

// feed scans the next part. It returns an error once: when kind and id are known, or with the last
// part.
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

// scan scans the next bytes. It stops at the end of the message, or when kind and id are known.
func (o *oversizeScanner) scan(b []byte) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case o.quoted:
			if o.depth > 1 && !o.escaped { // only the end of the string matters
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
					o.finished = true // a batch or an invalid message
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

// appendToken appends c to the current key or value if it belongs to the top level.
func (o *oversizeScanner) appendToken(c byte) {
	if o.depth != 1 || o.truncated {
		return
	}
	if o.truncated = len(o.token) == maxToken; !o.truncated {
		o.token = append(o.token, c)
	}
}

// beginValue handles the key before a colon.
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

// endMember handles the value of a member.
func (o *oversizeScanner) endMember() {
	if o.isID {
		o.ids++
		if !o.truncated && o.ids == 1 && len(o.token) > 0 && (o.token[0] == '"' || isInteger(o.token)) {
			o.id = ID(o.token).Clone()
		} else {
			o.id = nil // ambiguous
		}
	}
	o.inValue, o.isID, o.truncated, o.token = false, false, false, o.token[:0]
}

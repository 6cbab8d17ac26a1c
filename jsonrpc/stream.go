package jsonrpc

import (
	"io"
	"sync"
	"sync/atomic"
)

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

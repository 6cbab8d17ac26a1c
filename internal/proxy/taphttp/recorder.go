package taphttp

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
)

// A recorder hands events to the capture and to whoever looks on.
type recorder struct {
	out     *capture.Writer // nil records nothing
	observe func(*capture.Event)
	start   time.Time

	mu sync.Mutex // held while an event is numbered and observed, so that the observer sees the order of the numbers
	n  uint64     // of the last event, without out
}

// record is called before the bytes are forwarded.
func (r *recorder) record(e *capture.Event) {
	if r.observe == nil {
		if r.out != nil {
			r.out.Record(e)
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out != nil {
		e.N = r.out.Record(e)
	} else {
		r.n++
		e.N = r.n
	}
	e.T = time.Since(r.start)
	r.observe(e)
}

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

// contentCoding returns the coding that a body is in, "" if it is in none.
func contentCoding(h http.Header) string {
	c := strings.ToLower(strings.TrimSpace(strings.Join(h.Values("Content-Encoding"), ", ")))
	if c == "identity" {
		return ""
	}
	return c
}

var (
	errCoding          = errors.New("a content coding that the tap does not know")
	errDecodedTooLarge = errors.New("it becomes too large")
)

func newDecoder(coding string, r io.Reader) (io.Reader, error) {
	switch coding {
	case "gzip", "x-gzip":
		return gzip.NewReader(r)
	case "deflate": // with the header of zlib, as it should be, or without
		b := bufio.NewReader(r)
		head, err := b.Peek(2)
		if err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		if head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
			return zlib.NewReader(b)
		}
		return flate.NewReader(b), nil
	}
	return nil, fmt.Errorf("%w: %.40q", errCoding, coding)
}

// decodeWhole decodes a body into a hoard.
func decodeWhole(coding string, data []byte, into *boundedBuffer) error {
	r, err := newDecoder(coding, bytes.NewReader(data))
	if err != nil {
		return err
	}
	chunk := chunks.Get().(*[32 << 10]byte)
	defer chunks.Put(chunk)
	for {
		n, err := r.Read(chunk[:])
		switch {
		case into.add(chunk[:n]) < n:
			return errDecodedTooLarge
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// How much may come out of a compressed stream: a fixed amount, and what text shrinks to.
const (
	freeDecodedBytes = 8 << 20 // bytes
	maxDecodedRatio  = 100
)

// A decodingSink decodes a copy of a compressed body for another sink. It decodes all there is of each chunk before the chunk is forwarded; nothing is
// kept of it. A goroutine decodes, in turns with the one that feeds; end waits for it.
type decodingSink struct {
	x      *exchange
	coding string
	next   sink

	chunks   chan []byte
	wantMore chan struct{} // the decoder wants more
	done     chan struct{} // closed when it has ended
	err      error         // why, once done is closed
	in       int64         // bytes

	part   int // of what is recorded undecoded
	noted  bool
	closed bool
	unread []byte // the goroutine's, as is eof
	eof    bool
}

func newDecodingSink(x *exchange, coding string, next sink) *decodingSink {
	d := &decodingSink{x: x, coding: coding, next: next, chunks: make(chan []byte), wantMore: make(chan struct{}), done: make(chan struct{})}
	go d.run()
	return d
}

// Read implements [io.Reader], for the decoder.
func (d *decodingSink) Read(p []byte) (int, error) {
	for len(d.unread) == 0 {
		if d.eof {
			return 0, io.EOF
		}
		if d.in > 0 {
			d.wantMore <- struct{}{}
		}
		chunk, ok := <-d.chunks
		if !ok {
			d.eof = true
			return 0, io.EOF
		}
		d.in += int64(len(chunk))
		d.unread = chunk
	}
	n := copy(p, d.unread)
	d.unread = d.unread[n:]
	return n, nil
}

func (d *decodingSink) run() {
	defer close(d.done)
	r, err := newDecoder(d.coding, d)
	if err != nil {
		d.err = err
		return
	}
	buf := make([]byte, 32<<10)
	var out int64
	for {
		n, err := r.Read(buf)
		if out += int64(n); out > freeDecodedBytes+maxDecodedRatio*d.in {
			d.err = errDecodedTooLarge
			return
		}
		if n > 0 {
			d.next.feed(buf[:n], false)
		}
		if err != nil {
			d.err = err
			return
		}
	}
}

func (d *decodingSink) feed(p []byte, last bool) {
	if len(p) > 0 {
		select {
		case d.chunks <- p:
			select {
			case <-d.wantMore:
			case <-d.done:
			}
		case <-d.done:
			d.recordRaw(p)
		}
	}
	if last {
		d.finish()
	}
}

// finish waits for the decoder, which finds no more to decode.
func (d *decodingSink) finish() {
	if !d.closed {
		d.closed = true
		close(d.chunks)
		<-d.done
	}
}

// recordRaw records what the decoder has no use for.
func (d *decodingSink) recordRaw(p []byte) {
	d.noteError()
	d.part++
	d.x.record(&capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Data: p, Part: d.part, Encoding: d.coding})
}

// noteError says once why not all was decoded.
func (d *decodingSink) noteError() {
	if !d.noted && d.err != nil && !errors.Is(d.err, io.EOF) {
		d.noted = true
		d.x.note(capture.ToClient, "the body could not be decoded any further: "+printable(d.err.Error()))
	}
}

func (d *decodingSink) end(whole bool) {
	d.finish()
	if whole {
		d.noteError()
	}
	d.next.end(whole)
}

// A budget bounds what all exchanges together hold in memory for the record.
type budget struct {
	max  int64
	used atomic.Int64
}

// reserve reports whether there is room for n more bytes, which are taken then.
func (b *budget) reserve(n int) bool {
	if b.used.Add(int64(n)) > b.max {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

func (b *budget) release(n int) { b.used.Add(-int64(n)) }

// A hoard is a growing text that counts for a budget.
type boundedBuffer struct {
	budget   *budget
	max      int // bytes
	buf      []byte
	reserved int // from b
}

// add appends p, as much of it as there is room for, and returns how much that was.
func (b *boundedBuffer) add(p []byte) int {
	n := min(len(p), b.max-len(b.buf))
	if more := len(b.buf) + n - cap(b.buf); more > 0 && !b.grow(len(b.buf)+n) {
		n = cap(b.buf) - len(b.buf)
	}
	b.buf = append(b.buf, p[:n]...)
	return n
}

// grow makes room for size bytes, and for more if that is cheap.
func (b *boundedBuffer) grow(size int) bool {
	for _, want := range [...]int{min(max(size, 2*cap(b.buf), 512), max(b.max, size)), size} {
		if more := want - b.reserved; b.budget.reserve(more) {
			b.reserved += more
			b.buf = append(make([]byte, 0, want), b.buf...)
			return true
		}
	}
	return false
}

// maxIdleBuffer is what an idle stream may hold on to, in bytes.
const maxIdleBuffer = 32 << 10

// reset empties it, and gives back what is large.
func (b *boundedBuffer) reset() {
	if cap(b.buf) > maxIdleBuffer {
		b.release()
		return
	}
	b.buf = b.buf[:0]
}

// release gives everything back.
func (b *boundedBuffer) release() {
	b.budget.release(b.reserved)
	b.buf, b.reserved = nil, 0
}

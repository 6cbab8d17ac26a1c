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

// A recorder passes events to the capture and the observer.
type recorder struct {
	// out is the capture. nil records nothing.
	out     *capture.Writer
	observe func(*capture.Event)
	start   time.Time

	// mu is held while an event is numbered and observed, so that the observer sees events in
	// order.
	mu sync.Mutex
	// n is the number of the last event if out is nil.
	n uint64
}

// record records an event and returns its number, or 0 without a capture and an observer. Callers
// call it before they forward the bytes.
func (r *recorder) record(e *capture.Event) (n uint64) {
	if r.observe == nil {
		if r.out != nil {
			n = r.out.Record(e)
		}
		return n
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
	return e.N
}

// A sink records a body while it is forwarded. One goroutine at a time calls its methods.
type sink interface {
	// feed is called before p is forwarded. last reports that p is the end of the body.
	feed(p []byte, last bool)
	// end is called once at the end. whole reports that the body is complete.
	end(whole bool)
}

// A partSink records each chunk as a part of a body.
type partSink struct {
	rec    *exchangeRecorder
	dir    capture.Dir
	coding string
	part   int
}

func (s *partSink) feed(p []byte, _ bool) {
	s.part++
	s.rec.part(s.dir, p, s.part, s.coding)
}

func (s *partSink) end(whole bool) {
	if !whole {
		s.rec.note(s.dir, "the body broke off")
	}
}

// A bodySink records a body in one piece before its last byte is forwarded, if the length or the
// end of the JSON text reveals that byte. Other bodies without a length are recorded after their
// end, and too large ones in parts.
type bodySink struct {
	rec    *exchangeRecorder
	header http.Header
	// coding is the content coding of the body.
	coding string
	// expectMessage is the argument of isMessage.
	expectMessage bool
	buffer        *boundedBuffer
	json          jsonEnd
	// part counts the parts of a body in parts.
	part int
	done bool
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

// recordWhole records the buffered data as the whole body.
func (s *bodySink) recordWhole() {
	s.done = true
	s.rec.body(capture.ToClient, s.buffer.buf, s.header, s.coding, s.expectMessage)
	s.buffer.release()
}

// recordTail records a part.
func (s *bodySink) recordTail(p []byte) {
	if len(p) > 0 {
		s.part++
		s.rec.part(capture.ToClient, p, s.part, s.coding)
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
		s.rec.note(capture.ToClient, "the body broke off")
	}
}

// A lineSink records lines of messages.
type lineSink struct {
	rec    *exchangeRecorder
	dir    capture.Dir
	buffer *boundedBuffer
	// dropped counts the bytes of the line above the limit.
	dropped int64
}

func newLineSink(rec *exchangeRecorder, dir capture.Dir) *lineSink {
	return &lineSink{rec: rec, dir: dir, buffer: rec.newBuffer()}
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
	s.rec.record(e)
	s.buffer.reset()
	s.dropped = 0
}

func (s *lineSink) end(whole bool) {
	if len(s.buffer.buf) > 0 || s.dropped > 0 {
		s.recordLine(capture.FramingNone)
	}
	if !whole {
		s.rec.note(s.dir, "the body broke off")
	}
}

// A jsonEnd finds the end of an object or array in a stream without validating it.
type jsonEnd struct {
	depth         int
	begun, quoted bool
	escaped       bool
	// notJSON reports a text that is not an object or array.
	notJSON bool
}

// feed reports whether the value ended in p, with only space after it.
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

// contentCoding returns the content coding of a body, or "" for plain bytes.
func contentCoding(h http.Header) string {
	c := strings.ToLower(strings.TrimSpace(strings.Join(h.Values("Content-Encoding"), ", ")))
	if c == "identity" {
		return ""
	}
	return c
}

var (
	errCoding          = errors.New("unknown content coding")
	errDecodedTooLarge = errors.New("the decoded body is too large")
)

func newDecoder(coding string, r io.Reader) (io.Reader, error) {
	switch coding {
	case "gzip", "x-gzip":
		return gzip.NewReader(r)
	// This is the zlib format, as specified, or a raw deflate stream.
	case "deflate":
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

// decodeWhole decodes a body into a buffer.
func decodeWhole(coding string, data []byte, into *boundedBuffer) error {
	r, err := newDecoder(coding, bytes.NewReader(data))
	if err != nil {
		return err
	}
	switch _, err = into.readFrom(r); err {
	case nil:
		return errDecodedTooLarge
	case io.EOF:
		return nil
	}
	return err
}

// The limits of decoded data: a fixed amount plus a multiple of the input, far above the ratio of
// text.
const (
	freeDecodedBytes = 8 << 20 // bytes
	maxDecodedRatio  = 100
)

// A decodingSink decodes a copy of a compressed body for another sink. It decodes each chunk as far
// as possible before the chunk is forwarded, and keeps none of it. Its goroutine takes turns with
// the caller of feed; end waits for it.
type decodingSink struct {
	rec    *exchangeRecorder
	coding string
	next   sink

	chunks chan []byte
	// wantMore signals that the decoder needs more input.
	wantMore chan struct{}
	// done is closed when the decoder has ended.
	done chan struct{}
	// err is the reason, valid after done is closed.
	err error
	// in counts the input bytes.
	in int64

	// part counts the parts recorded undecoded.
	part   int
	noted  bool
	closed bool
	// unread and eof belong to the goroutine.
	unread []byte
	eof    bool
}

func newDecodingSink(rec *exchangeRecorder, coding string, next sink) *decodingSink {
	d := &decodingSink{rec: rec, coding: coding, next: next, chunks: make(chan []byte), wantMore: make(chan struct{}), done: make(chan struct{})}
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

// finish ends the decoder's input and waits for it.
func (d *decodingSink) finish() {
	if !d.closed {
		d.closed = true
		close(d.chunks)
		<-d.done
	}
}

// recordRaw records input after the end of the decoder.
func (d *decodingSink) recordRaw(p []byte) {
	d.noteError()
	d.part++
	d.rec.record(&capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Data: p, Part: d.part, Encoding: d.coding})
}

// noteError records once why decoding stopped early.
func (d *decodingSink) noteError() {
	if !d.noted && d.err != nil && !errors.Is(d.err, io.EOF) {
		d.noted = true
		d.rec.note(capture.ToClient, "the rest of the body could not be decoded: "+printable(d.err.Error()))
	}
}

func (d *decodingSink) end(whole bool) {
	d.finish()
	if whole {
		d.noteError()
	}
	d.next.end(whole)
}

// A budget limits the memory of all exchanges for recording, in bytes.
type budget struct {
	max  int64
	used atomic.Int64
}

// reserve reserves n bytes and reports whether there was room.
func (b *budget) reserve(n int) bool {
	if b.used.Add(int64(n)) > b.max {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

func (b *budget) release(n int) { b.used.Add(-int64(n)) }

// A boundedBuffer is a growing buffer that counts toward a budget.
type boundedBuffer struct {
	budget *budget
	// max limits the buffer in bytes.
	max int
	buf []byte
	// reserved counts the bytes reserved from budget.
	reserved int
}

// add appends as much of p as there is room for, and returns that number of bytes.
func (b *boundedBuffer) add(p []byte) int {
	n := min(len(p), b.max-len(b.buf))
	if more := len(b.buf) + n - cap(b.buf); more > 0 && !b.grow(len(b.buf)+n) {
		n = cap(b.buf) - len(b.buf)
	}
	b.buf = append(b.buf, p[:n]...)
	return n
}

// readFrom reads r until an error, which it returns: io.EOF at the end. If there is no more room,
// it returns what it has read of the rest.
func (b *boundedBuffer) readFrom(r io.Reader) (rest []byte, err error) {
	chunk := chunks.Get().(*[32 << 10]byte)
	defer chunks.Put(chunk)
	for {
		n, err := r.Read(chunk[:])
		if kept := b.add(chunk[:n]); kept < n {
			return bytes.Clone(chunk[kept:n]), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// grow makes room for size bytes, or more if the budget allows.
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

// maxIdleBuffer limits the memory that an idle stream keeps, in bytes.
const maxIdleBuffer = 32 << 10

// reset empties the buffer and releases large memory.
func (b *boundedBuffer) reset() {
	if cap(b.buf) > maxIdleBuffer {
		b.release()
		return
	}
	b.buf = b.buf[:0]
}

// release releases all memory.
func (b *boundedBuffer) release() {
	b.budget.release(b.reserved)
	b.buf, b.reserved = nil, 0
}

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

	"mcpwire/capture"
)

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

package taphttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"mcpwire/capture"
)

// firstRoom is how much is set aside for a body of which more was announced than has come, in bytes.
const firstRoom = 1 << 20

// sent is a request's body on its way to the server.
type sent struct {
	io.ReadCloser
	whole []byte // it, if it has been read
}

// wholeBody returns a body that net/http recognises as one that is in memory: it goes out in one piece with the head.
func wholeBody(data []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) }

// requestBody returns the body to send on. As a rule it has been read by then: while there is something left of the body of an HTTP/1 request, net/http
// closes the connection behind the first response, and loses what of it was not sent yet. Servers do respond before they have read the body.
func (x *exchange) requestBody() (sent, error) {
	r := x.r
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		x.nextHead()
		return sent{http.NoBody, nil}, nil
	}
	media := mediaType(r.Header)
	expects := hasToken(r.Header["Expect"], "100-continue")
	short := r.ContentLength > 0 && r.ContentLength <= int64(x.h.opts.MaxBody)
	switch {
	case expects && short:
		if h := x.hoard(); h.grow(int(r.ContentLength)) {
			x.rc.EnableFullDuplex()
			return sent{&expectedBody{x: x, buf: h.buf}, nil}, nil
		}
	case expects, media == typeLines, !short && (r.ContentLength > 0 || !isJSON(media)):
	default:
		return x.readBody(media)
	}
	x.rc.EnableFullDuplex()
	return sent{x.streamed(nil, media), nil}, nil
}

// readBody reads the whole body, unless it turns out to be too large.
func (x *exchange) readBody(media string) (sent, error) {
	h := x.hoard()
	if x.r.ContentLength > 0 {
		h.grow(min(int(x.r.ContentLength), firstRoom))
	}
	defer x.unwatch()
	chunk := chunks.Get().(*[32 << 10]byte)
	defer chunks.Put(chunk)
	for {
		x.watchdog()
		if err := x.aborted(); err != nil {
			return sent{}, err
		}
		n, err := x.r.Body.Read(chunk[:])
		if kept := h.add(chunk[:n]); kept < n {
			x.rc.EnableFullDuplex()
			x.unwatch()
			return sent{x.streamed(append(h.buf[:len(h.buf):len(h.buf)], chunk[kept:n]...), media), nil}, nil
		}
		if int64(len(h.buf)) >= firstRoom && int64(cap(h.buf)) < x.r.ContentLength {
			h.grow(int(x.r.ContentLength)) // the rest at once, not by copying
		}
		switch {
		case err == io.EOF:
			x.nextHead()
			x.recordBody(capture.ToServer, h.buf, x.r.Header, contentCoding(x.r.Header), true)
			return sent{wholeBody(h.buf), h.buf}, nil
		case err != nil:
			x.recordPart(capture.ToServer, h.buf, 1, contentCoding(x.r.Header))
			return sent{}, x.clientError(err)
		}
	}
}

// streamed returns a body that goes to the server as it comes. first has come.
func (x *exchange) streamed(first []byte, media string) io.ReadCloser {
	b := &streamedBody{x: x, src: io.MultiReader(bytes.NewReader(first), x.r.Body)}
	if media == typeLines {
		b.sink = newLineSink(x, capture.ToServer)
	} else {
		b.sink = &partSink{x: x, dir: capture.ToServer, coding: contentCoding(x.r.Header)}
	}
	return b
}

// A streamedBody is recorded part by part.
type streamedBody struct {
	x    *exchange
	src  io.Reader
	sink sink
}

// Read implements [io.Reader].
func (b *streamedBody) Read(p []byte) (int, error) {
	b.x.informed.settle()
	if b.x.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.src.Read(p)
	if b.x.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	if n > 0 {
		b.sink.feed(p[:n], err == io.EOF)
	}
	switch {
	case err == io.EOF:
		b.sink.end(true)
		b.x.nextHead()
	case err != nil:
		b.sink.end(false)
	}
	return n, err
}

// Close implements [io.Closer]. The body belongs to net/http.
func (*streamedBody) Close() error { return nil }

// An expectedBody is read when the server has asked for it (https://www.rfc-editor.org/rfc/rfc9110#section-10.1.1), and then as a whole.
type expectedBody struct {
	x    *exchange
	buf  []byte // room for all of it
	rest *bytes.Reader
	err  error
}

// Read implements [io.Reader].
func (b *expectedBody) Read(p []byte) (int, error) {
	if b.rest == nil && b.err == nil {
		b.fill()
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *expectedBody) fill() {
	b.x.informed.settle()
	if b.x.over.Load() {
		b.err = http.ErrBodyReadAfterClose
		return
	}
	n, err := io.ReadFull(b.x.r.Body, b.buf[:b.x.r.ContentLength])
	if err == nil {
		_, err = io.ReadFull(b.x.r.Body, make([]byte, 1)) // its end
	}
	if b.x.over.Load() {
		b.err = http.ErrBodyReadAfterClose
		return
	}
	if !errors.Is(err, io.EOF) || n < int(b.x.r.ContentLength) {
		b.x.recordPart(capture.ToServer, b.buf[:n], 1, contentCoding(b.x.r.Header))
		b.err = b.x.clientError(err)
		return
	}
	b.x.nextHead()
	b.x.recordBody(capture.ToServer, b.buf[:n], b.x.r.Header, contentCoding(b.x.r.Header), true)
	b.rest = bytes.NewReader(b.buf[:n])
}

// Close implements [io.Closer].
func (*expectedBody) Close() error { return nil }

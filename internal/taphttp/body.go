package taphttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"mcpwire/capture"
)

// minBodyBuffer is how much is set aside for a body of which more was announced than has come, in bytes.
const minBodyBuffer = 1 << 20

// upstreamBody is a request's body on its way to the server.
type upstreamBody struct {
	io.ReadCloser
	data []byte // it, if it has been read
}

// bytesBody returns a body that net/http recognises as one that is in memory: it goes out in one piece with the head.
func bytesBody(data []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) }

// requestBody returns the body to send on. As a rule it has been read by then: while there is something left of the body of an HTTP/1 request, net/http
// closes the connection behind the first response, and loses what of it was not sent yet. Servers do respond before they have read the body.
func (x *exchange) requestBody() (upstreamBody, error) {
	r := x.r
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		x.expectNextHead()
		return upstreamBody{http.NoBody, nil}, nil
	}
	media := mediaType(r.Header)
	expects := hasToken(r.Header["Expect"], "100-continue")
	short := r.ContentLength > 0 && r.ContentLength <= int64(x.h.opts.MaxBody)
	switch {
	case expects && short:
		if buffer := x.newBuffer(); buffer.grow(int(r.ContentLength)) {
			x.rc.EnableFullDuplex()
			return upstreamBody{&expectedBody{x: x, buf: buffer.buf}, nil}, nil
		}
	case expects, media == typeLines, !short && (r.ContentLength > 0 || !isJSON(media)):
	default:
		return x.readBody(media)
	}
	x.rc.EnableFullDuplex()
	return upstreamBody{x.streamBody(nil, media), nil}, nil
}

// readBody reads the whole body, unless it turns out to be too large.
func (x *exchange) readBody(media string) (upstreamBody, error) {
	buffer := x.newBuffer()
	if x.r.ContentLength > 0 {
		buffer.grow(min(int(x.r.ContentLength), minBodyBuffer))
	}
	defer x.disarmBodyTimeout()
	chunk := chunks.Get().(*[32 << 10]byte)
	defer chunks.Put(chunk)
	for {
		x.armBodyTimeout()
		if err := x.abortErr(); err != nil {
			return upstreamBody{}, err
		}
		n, err := x.r.Body.Read(chunk[:])
		if kept := buffer.add(chunk[:n]); kept < n {
			x.rc.EnableFullDuplex()
			x.disarmBodyTimeout()
			return upstreamBody{x.streamBody(append(buffer.buf[:len(buffer.buf):len(buffer.buf)], chunk[kept:n]...), media), nil}, nil
		}
		if int64(len(buffer.buf)) >= minBodyBuffer && int64(cap(buffer.buf)) < x.r.ContentLength {
			buffer.grow(int(x.r.ContentLength)) // the rest at once, not by copying
		}
		switch {
		case err == io.EOF:
			x.expectNextHead()
			x.recordBody(capture.ToServer, buffer.buf, x.r.Header, contentCoding(x.r.Header), true)
			return upstreamBody{bytesBody(buffer.buf), buffer.buf}, nil
		case err != nil:
			x.recordPart(capture.ToServer, buffer.buf, 1, contentCoding(x.r.Header))
			return upstreamBody{}, x.clientError(err)
		}
	}
}

// streamBody returns a body that goes to the server as it comes. first has come.
func (x *exchange) streamBody(first []byte, media string) io.ReadCloser {
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
	b.x.interim.waitForwarded()
	if b.x.returned.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.src.Read(p)
	if b.x.returned.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	if n > 0 {
		b.sink.feed(p[:n], err == io.EOF)
	}
	switch {
	case err == io.EOF:
		b.sink.end(true)
		b.x.expectNextHead()
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
	b.x.interim.waitForwarded()
	if b.x.returned.Load() {
		b.err = http.ErrBodyReadAfterClose
		return
	}
	n, err := io.ReadFull(b.x.r.Body, b.buf[:b.x.r.ContentLength])
	if err == nil {
		_, err = io.ReadFull(b.x.r.Body, make([]byte, 1)) // its end
	}
	if b.x.returned.Load() {
		b.err = http.ErrBodyReadAfterClose
		return
	}
	if !errors.Is(err, io.EOF) || n < int(b.x.r.ContentLength) {
		b.x.recordPart(capture.ToServer, b.buf[:n], 1, contentCoding(b.x.r.Header))
		b.err = b.x.clientError(err)
		return
	}
	b.x.expectNextHead()
	b.x.recordBody(capture.ToServer, b.buf[:n], b.x.r.Header, contentCoding(b.x.r.Header), true)
	b.rest = bytes.NewReader(b.buf[:n])
}

// Close implements [io.Closer].
func (*expectedBody) Close() error { return nil }

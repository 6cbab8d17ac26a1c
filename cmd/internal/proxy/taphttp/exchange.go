package taphttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"mcpwire/capture"
	"mcpwire/internal/trace/httphead"
)

// An exchange is a request with its response.
type exchange struct {
	h       *Handler
	down    downstream
	rec     exchangeRecorder
	session exchangeSession
	interim interim
	// header is the header of the request on the wire, or nil if unknown.
	header []capture.Header
	// returned reports that the handler has returned or is about to.
	returned atomic.Bool
}

// finish releases the resources of the exchange.
func (x *exchange) finish() {
	x.returned.Store(true)
	x.rec.end("the tap failed") // after a panic
	if x.down.conn != nil && x.down.r.ProtoMajor == 1 && !x.down.bodyRead.Load() && x.down.abortErr() != nil {
		x.down.conn.Close() // net/http would wait for the rest of the body
	}
	x.down.cancel(nil)
	x.rec.releaseBuffers()
	x.h.sessions.unassign(&x.session)
	x.h.remove(x)
}

// isStandingStream reports whether the exchange is a standing stream.
func (x *exchange) isStandingStream() bool {
	return x.down.r.Method == http.MethodGet || x.down.r.Header.Get("Mcp-Method") == methodListen
}

const methodListen = "subscriptions/listen"

// recordRequest records the head of the request.
func (x *exchange) recordRequest() {
	r := x.down.r
	if x.down.conn != nil && r.ProtoMajor == 1 {
		if list, ok := x.down.conn.head.take(); ok && sameFields(list, r.Header) {
			x.header = list
		}
	}
	head := httphead.ServerRequest(r)
	if x.header != nil {
		head.Headers = x.header
	}
	x.rec.record(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: head})
}

// refuse answers instead of the server. It records no response, since that would be attributed to
// the server.
func (x *exchange) refuse(status int, why string) {
	x.rec.end("rejected by the tap with status " + strconv.Itoa(status) + ": " + why)
	x.down.writeError(status, why)
}

// forward forwards the request to the server and the response to the client. Its path is:
//
//	requestBody         read and record the body, or stream it through a recording sink
//	upstreamRequest     copy target and end-to-end headers; set Host and Origin
//	roundTrip           send it; forwardInterim passes informational responses on
//	forwardResponse     record the head, bind a new session id, copy the headers
//	forwardBody         feed each chunk to sinkFor's sink, then pass it through gate and write
//	forwardTrailers     copy the trailers
func (x *exchange) forward() {
	body, err := x.requestBody()
	if err != nil {
		x.requestFailed(err)
		return
	}
	if resp, conn := x.roundTrip(x.upstreamRequest(body)); resp != nil {
		defer resp.Body.Close()
		x.forwardResponse(resp, conn)
	}
}

// roundTrip sends the request and returns the response and its connection. If there is none, it
// answers the client and returns nil.
func (x *exchange) roundTrip(out *http.Request) (*http.Response, *serverConn) {
	info := &x.interim
	ctx := httptrace.WithClientTrace(x.down.ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			if c, ok := i.Conn.(*serverConn); ok {
				c.head.expect()
				info.mu.Lock()
				info.conn = c
				info.mu.Unlock()
			}
		},
		Got100Continue: info.bodyRequested,
		Got1xxResponse: func(status int, header textproto.MIMEHeader) error { x.forwardInterim(status, header); return nil },
	})
	resp, err := x.h.transport.RoundTrip(out.WithContext(ctx))
	info.mu.Lock()
	info.done = true
	conn := info.conn
	info.mu.Unlock()
	if err != nil {
		x.upstreamFailed(err)
		return nil, nil
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode > 999 {
		resp.Body.Close()
		x.upstreamFailed(errors.New("a response with an invalid status"))
		return nil, nil
	}
	return resp, conn
}

// upstreamFailed answers a request that has no response.
func (x *exchange) upstreamFailed(err error) {
	if x.down.ctx.Err() != nil {
		x.rec.end(x.down.endReason("upstream", err))
		panic(http.ErrAbortHandler)
	}
	why := "no response from the server: " + x.down.endReason("upstream", err)
	x.h.opts.Logger.Warn("no response from the server", "method", x.down.r.Method, "path", printable(x.down.r.URL.Path), "error", err)
	x.rec.end(why)
	status := http.StatusBadGateway
	if isTimeout(err) {
		status = http.StatusGatewayTimeout
	}
	x.down.writeError(status, why)
}

// requestFailed ends an exchange with an incomplete request.
func (x *exchange) requestFailed(err error) {
	x.rec.end("the request broke off: " + x.down.endReason("client", err))
	if errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(context.Cause(x.down.ctx), errShutdown) {
		x.down.writeError(http.StatusRequestTimeout, "the request's body did not arrive")
		return
	}
	panic(http.ErrAbortHandler)
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

// upstreamRequest returns the request for the server. It keeps the client's target byte for byte
// and sets the server's own Host.
func (x *exchange) upstreamRequest(body upstreamBody) *http.Request {
	u := &url.URL{
		Scheme: x.h.upstream.Scheme, Host: x.h.upstream.Host,
		Path: x.down.r.URL.Path, RawPath: x.down.r.URL.RawPath, RawQuery: x.down.r.URL.RawQuery, ForceQuery: x.down.r.URL.ForceQuery,
	}
	out := &http.Request{
		Method: x.down.r.Method, URL: u, Host: x.h.upstream.Host, Header: x.upstreamHeader(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: body.ReadCloser, ContentLength: x.down.r.ContentLength, Trailer: x.down.r.Trailer,
	}
	// The transport may retry on a connection that was closed before it sent anything.
	if body.data != nil {
		out.GetBody = func() (io.ReadCloser, error) { return bytesBody(body.data), nil }
	}
	return out
}

// upstreamHeader returns the header of the request for the server.
func (x *exchange) upstreamHeader() http.Header {
	header := endToEnd(x.down.r.Header, x.header)
	delete(header, "Host")
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = []string{""} // prevents the default of net/http
	}
	switch own := x.down.r.Header.Get("Origin"); {
	case x.h.opts.Origin == "", own == "":
	case !x.h.access.trusts(own):
		x.rec.note(capture.ToServer, "the Origin header was not changed, because it belongs to a page of another machine")
	default:
		for name := range header {
			if http.CanonicalHeaderKey(name) == "Origin" {
				delete(header, name)
			}
		}
		if x.h.opts.Origin != "drop" {
			header["Origin"] = []string{x.h.opts.Origin}
		}
		x.rec.note(capture.ToServer, "the Origin header was replaced, as configured: "+x.h.opts.Origin)
	}
	return header
}

// interim is the state of the informational responses to a request, which goroutines of the
// transport report.
type interim struct {
	mu sync.Mutex
	// done reports that the transport has returned.
	done bool
	// conn is the connection of the last attempt, or nil if its heads are not visible.
	conn *serverConn
	// forwarded is closed when 100 Continue was sent to the client. It is nil until the server
	// requests the body.
	forwarded chan struct{}
}

// bodyRequested notes that the server requests the body. The transport calls it before it reads the
// body and before forwardInterim.
func (i *interim) bodyRequested() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forwarded = make(chan struct{})
}

// waitForwarded waits until the client has received the server's request for the body. Otherwise
// reading the body would make net/http send one too.
func (i *interim) waitForwarded() {
	i.mu.Lock()
	forwarded := i.forwarded
	i.mu.Unlock()
	if forwarded != nil {
		<-forwarded
	}
}

// forwardInterim forwards an informational response.
func (x *exchange) forwardInterim(status int, header textproto.MIMEHeader) {
	i := &x.interim
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.forwarded != nil && status == http.StatusContinue {
		defer close(i.forwarded)
		i.forwarded = nil
	}
	if i.done {
		return
	}
	x.rec.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{
		Status: status, Proto: "HTTP/1.1", Headers: httphead.Headers(http.Header(header), false),
	}})
	if x.down.r.ProtoMajor == 1 && x.down.r.ProtoMinor == 0 {
		return // HTTP/1.0 has no informational responses
	}
	h := x.down.w.Header()
	for name, values := range endToEnd(http.Header(header), nil) {
		h[name] = values
	}
	x.down.w.WriteHeader(status)
	clear(h)
}

// minBodyBuffer is the initial buffer size in bytes for a larger announced body.
const minBodyBuffer = 1 << 20

// upstreamBody is a request body for the server.
type upstreamBody struct {
	io.ReadCloser
	// data is the body if it has been read, or nil.
	data []byte
}

// bytesBody returns a body that net/http recognizes as one in memory, and sends together with the
// head.
func bytesBody(data []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) }

// requestBody returns the body to forward. Usually it reads it first: if a part of an HTTP/1
// request body is unread, net/http closes the connection after the response and loses unsent data.
// Some servers respond before they have read the body.
func (x *exchange) requestBody() (upstreamBody, error) {
	r := x.down.r
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		x.down.expectNextHead()
		return upstreamBody{http.NoBody, nil}, nil
	}
	media := mediaType(r.Header)
	expects := hasToken(r.Header["Expect"], "100-continue")
	short := r.ContentLength > 0 && r.ContentLength <= int64(x.h.opts.MaxBody)
	switch {
	case expects && short && x.h.interceptor != nil: // the tap requests the body
		return x.readBody(media)
	case expects && short:
		if buffer := x.rec.newBuffer(); buffer.grow(int(r.ContentLength)) {
			x.down.rc.EnableFullDuplex()
			return upstreamBody{&expectedBody{x: x, buf: buffer.buf}, nil}, nil
		}
	case expects, media == typeLines, !short && (r.ContentLength > 0 || !isJSON(media)):
	default:
		return x.readBody(media)
	}
	x.down.rc.EnableFullDuplex()
	return upstreamBody{x.streamBody(nil, media), nil}, nil
}

// readBody reads the whole body, unless it is too large.
func (x *exchange) readBody(media string) (upstreamBody, error) {
	buffer := x.rec.newBuffer()
	if x.h.interceptor != nil {
		buffer.max = min(buffer.max, maxHeldBody)
	}
	if x.down.r.ContentLength > 0 {
		buffer.grow(min(int(x.down.r.ContentLength), minBodyBuffer))
	}
	defer x.down.disarmBodyTimeout()
	chunk := chunks.Get().(*[32 << 10]byte)
	defer chunks.Put(chunk)
	for {
		x.down.armBodyTimeout()
		if err := x.down.abortErr(); err != nil {
			return upstreamBody{}, err
		}
		n, err := x.down.r.Body.Read(chunk[:])
		if kept := buffer.add(chunk[:n]); kept < n {
			x.down.rc.EnableFullDuplex()
			x.down.disarmBodyTimeout()
			return upstreamBody{x.streamBody(append(buffer.buf[:len(buffer.buf):len(buffer.buf)], chunk[kept:n]...), media), nil}, nil
		}
		if int64(len(buffer.buf)) >= minBodyBuffer && int64(cap(buffer.buf)) < x.down.r.ContentLength {
			buffer.grow(int(x.down.r.ContentLength)) // the rest without more copies
		}
		switch {
		case err == io.EOF:
			x.down.expectNextHead()
			if x.h.interceptor == nil { // otherwise, intercept records it
				x.rec.body(capture.ToServer, buffer.buf, x.down.r.Header, contentCoding(x.down.r.Header), true)
			}
			return upstreamBody{bytesBody(buffer.buf), buffer.buf}, nil
		case err != nil:
			x.rec.part(capture.ToServer, buffer.buf, 1, contentCoding(x.down.r.Header))
			return upstreamBody{}, x.down.clientError(err)
		}
	}
}

// streamBody returns a body that is forwarded as it arrives. first is the part that has been read.
func (x *exchange) streamBody(first []byte, media string) io.ReadCloser {
	b := &streamedBody{x: x, src: io.MultiReader(bytes.NewReader(first), x.down.r.Body)}
	if media == typeLines {
		b.sink = newLineSink(&x.rec, capture.ToServer)
	} else {
		b.sink = &partSink{rec: &x.rec, dir: capture.ToServer, coding: contentCoding(x.down.r.Header)}
	}
	return b
}

// A streamedBody is recorded in parts.
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
		b.x.down.expectNextHead()
	case err != nil:
		b.sink.end(false)
	}
	return n, err
}

// Close implements [io.Closer]. net/http owns the body.
func (*streamedBody) Close() error { return nil }

// An expectedBody is read completely when the server has requested it
// (https://www.rfc-editor.org/rfc/rfc9110#section-10.1.1).
type expectedBody struct {
	x *exchange
	// buf has room for the whole body.
	buf  []byte
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
	n, err := io.ReadFull(b.x.down.r.Body, b.buf[:b.x.down.r.ContentLength])
	if err == nil {
		_, err = io.ReadFull(b.x.down.r.Body, make([]byte, 1)) // expects EOF
	}
	if b.x.returned.Load() {
		b.err = http.ErrBodyReadAfterClose
		return
	}
	if !errors.Is(err, io.EOF) || n < int(b.x.down.r.ContentLength) {
		b.x.rec.part(capture.ToServer, b.buf[:n], 1, contentCoding(b.x.down.r.Header))
		b.err = b.x.down.clientError(err)
		return
	}
	b.x.down.expectNextHead()
	b.x.rec.body(capture.ToServer, b.buf[:n], b.x.down.r.Header, contentCoding(b.x.down.r.Header), true)
	b.rest = bytes.NewReader(b.buf[:n])
}

// Close implements [io.Closer].
func (*expectedBody) Close() error { return nil }

// chunks are buffers for forwarded data.
var chunks = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// forwardResponse forwards the response to the client. It panics if the response is cut off.
func (x *exchange) forwardResponse(resp *http.Response, conn *serverConn) {
	head, list := x.responseHead(resp, conn)
	x.rec.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: head})
	x.responseBegan(resp)
	x.sendHead(resp, list)
	x.sendBody(resp)
}

// responseBegan handles what the head of a response says about the session.
func (x *exchange) responseBegan(resp *http.Response) {
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" && x.down.r.Header.Get("Mcp-Session-Id") == "" {
		x.h.sessions.bind(sessionSpace, id, &x.session)
	}
}

// sendHead forwards the head of a response. list has its fields as on the wire, or is nil.
func (x *exchange) sendHead(resp *http.Response, list []capture.Header) {
	h := x.down.w.Header()
	for name, values := range endToEnd(resp.Header, list) {
		if len(values) == 1 && (strings.EqualFold(name, "Location") || strings.EqualFold(name, "Content-Location")) {
			values[0], _ = x.rewriteURL(name, values[0])
		}
		h[name] = values
	}
	// net/http would add these.
	for _, name := range []string{"Date", "Content-Type"} {
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
	if names := httphead.TrailerNames(resp.Trailer); names != "" {
		h["Trailer"] = []string{names}
	}
	x.down.w.WriteHeader(resp.StatusCode)
}

// sendBody forwards the body and ends the exchange. It panics if the response is cut off.
func (x *exchange) sendBody(resp *http.Response) {
	why, err := x.forwardBody(resp)
	x.endResponse(resp, why, err)
}

// endResponse ends the exchange after the body. It panics if err is not nil.
func (x *exchange) endResponse(resp *http.Response, why string, err error) {
	if err == nil {
		x.forwardTrailers(resp.Trailer)
	}
	x.rec.end(why)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// responseHead returns the head of the response, and its fields as on the wire, or nil if unknown.
func (x *exchange) responseHead(resp *http.Response, conn *serverConn) (head *capture.Response, exact []capture.Header) {
	if conn != nil && resp.ProtoMajor == 1 {
		if list, ok := conn.head.take(); ok && sameFields(list, resp.Header) {
			exact = list
		}
	}
	head = httphead.Response(resp)
	if exact != nil {
		head.Headers = exact
	}
	return head, exact
}

// sinkFor returns the sink that records the body of a response.
func (x *exchange) sinkFor(resp *http.Response) sink {
	coding := contentCoding(resp.Header)
	var s sink
	switch media := mediaType(resp.Header); {
	case media == typeEvents:
		s = newEventSink(x)
	case media == typeLines:
		s = newLineSink(&x.rec, capture.ToClient)
	// The whole body arrives before its last byte is forwarded.
	case coding != "" && resp.ContentLength >= 0:
		return &bodySink{rec: &x.rec, header: resp.Header, coding: coding, expectMessage: resp.StatusCode < 300, buffer: x.rec.newBuffer()}
	default:
		s = &bodySink{rec: &x.rec, header: resp.Header, expectMessage: resp.StatusCode < 300, buffer: x.rec.newBuffer()}
	}
	if coding != "" {
		return newDecodingSink(&x.rec, coding, s)
	}
	return s
}

// forwardBody forwards the body. If the body is cut off, it returns an error and the reason for the
// record.
func (x *exchange) forwardBody(resp *http.Response) (why string, err error) {
	if x.down.r.Method == http.MethodHead || resp.ContentLength == 0 {
		return "", nil
	}
	rec := x.sinkFor(resp)
	whole := false
	defer func() { rec.end(whole) }()
	g := &gate{x: x, open: x.down.r.Method != http.MethodGet || mediaType(resp.Header) != typeEvents || contentCoding(resp.Header) != ""}
	if resp.ContentLength < 0 {
		if err := x.down.flush(); err != nil {
			return x.down.endReason("client", err), err
		}
	}
	buf := chunks.Get().(*[32 << 10]byte)
	defer chunks.Put(buf)
	var read int64
	for {
		n, err := resp.Body.Read(buf[:])
		read += int64(n)
		last := err == io.EOF || err == nil && read == resp.ContentLength
		if n > 0 || last {
			rec.feed(buf[:n], last)
			out := g.filter(buf[:n])
			if last || err != nil {
				out = append(out, g.flush()...)
			}
			if werr := x.down.write(out, last); werr != nil {
				return x.down.endReason("client", werr), werr
			}
		}
		switch {
		case last:
			whole = true
			return "", nil
		case err != nil:
			return x.down.endReason("upstream", err), err
		}
	}
}

// forwardTrailers forwards the fields after the body
// (https://www.rfc-editor.org/rfc/rfc9110#section-6.5).
func (x *exchange) forwardTrailers(t http.Header) {
	h := x.down.w.Header()
	for _, f := range httphead.Headers(t, false) {
		x.rec.note(capture.ToClient, "trailer "+printable(f.Name)+": "+printable(f.Value))
		if hasToken(h["Trailer"], f.Name) {
			h.Add(f.Name, f.Value)
		} else {
			h.Add(http.TrailerPrefix+f.Name, f.Value)
		}
	}
}

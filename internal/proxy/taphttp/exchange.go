package taphttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/net/neterror"
	"mcpwire/internal/trace/httphead"
)

// An exchange is a request with its response.
type exchange struct {
	h          *Handler
	w          http.ResponseWriter
	r          *http.Request
	rc         *http.ResponseController
	ctx        context.Context
	cancel     context.CancelCauseFunc
	number     uint64
	conn       *clientConn // nil if the listener is not ours
	isEndpoint bool        // it is at the path of the URL that is tapped

	// The handler's sessions have these.
	connNumber  *connNumber
	session     uint64
	provisional bool // the number is the connection's, and may become a session's

	header      []capture.Header // of the request, as on the wire; nil if that is not known
	endRecorded bool             // KindEnd was recorded
	returned    atomic.Bool      // the handler has returned, or is about to

	bodyRead atomic.Bool // all of the request's body
	interim  interim
	buffers  []*boundedBuffer // to give back
}

// record records an event of this exchange.
func (x *exchange) record(e *capture.Event) {
	e.Session, e.Exchange = x.session, x.number
	x.h.rec.record(e)
}

// note records a remark.
func (x *exchange) note(dir capture.Dir, text string) {
	x.record(&capture.Event{Kind: capture.KindNote, Dir: dir, Data: []byte(text)})
}

// recordEnd records that the exchange is over, and why if that is not the normal end.
func (x *exchange) recordEnd(why string) {
	if !x.endRecorded {
		x.endRecorded = true
		e := &capture.Event{Kind: capture.KindEnd}
		if why != "" {
			e.Data = []byte(why)
		}
		x.record(e)
	}
}

// abortLocked ends the exchange, also one whose client neither sends nor reads. The handler's lock keeps it from being over: its deadlines would not be ours any more.
func (x *exchange) abortLocked() {
	x.cancel(errShutdown)
	w := x.w
	if outer, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		w = outer.Unwrap() // what is around net/http's is for one goroutine
	}
	rc, past := http.NewResponseController(w), time.Unix(1, 0)
	rc.SetReadDeadline(past)
	rc.SetWriteDeadline(past)
}

// abortErr is asked behind the setting of a deadline, which may have undone that of abortLocked.
func (x *exchange) abortErr() error {
	if errors.Is(context.Cause(x.ctx), errShutdown) {
		return errShutdown
	}
	return nil
}

// finish gives back what the exchange has taken.
func (x *exchange) finish() {
	x.returned.Store(true)
	x.recordEnd("the tap failed") // a panic
	if x.conn != nil && x.r.ProtoMajor == 1 && !x.bodyRead.Load() && x.abortErr() != nil {
		x.conn.Close() // net/http would wait for the rest of the body
	}
	x.cancel(nil)
	x.releaseBuffers()
	x.h.sessions.unassign(x)
	x.h.remove(x)
}

func (x *exchange) releaseBuffers() {
	for _, b := range x.buffers {
		b.release()
	}
}

// newBuffer returns a place for a body or an event.
func (x *exchange) newBuffer() *boundedBuffer {
	b := &boundedBuffer{budget: &x.h.budget, max: x.h.opts.MaxBody}
	x.buffers = append(x.buffers, b)
	return b
}

// standing reports whether the exchange is one that does not end by itself.
func (x *exchange) standing() bool {
	return x.r.Method == http.MethodGet || x.r.Header.Get("Mcp-Method") == methodListen
}

const methodListen = "subscriptions/listen"

// recordRequest records the head of the request.
func (x *exchange) recordRequest() {
	r := x.r
	if x.conn != nil && r.ProtoMajor == 1 {
		if list, ok := x.conn.head.take(); ok && sameFields(list, r.Header) {
			x.header = list
		}
	}
	head := httphead.ServerRequest(r)
	if x.header != nil {
		head.Headers = x.header
	}
	x.record(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: head})
}

// expectNextHead is called when the body of the request has been read and nothing of the response has been sent: what the client sends from now on is its next request.
func (x *exchange) expectNextHead() {
	x.bodyRead.Store(true)
	if x.conn != nil && x.r.ProtoMajor == 1 {
		x.conn.head.expect()
	}
}

// refuse answers in the place of the server. That is no event of a response, since the server is not to be judged by it.
func (x *exchange) refuse(status int, why string) {
	x.recordEnd("refused by the tap with status " + strconv.Itoa(status) + ": " + why)
	x.writeError(status, why)
}

// writeError sends a response of the tap's own.
func (x *exchange) writeError(status int, why string) {
	h := x.w.Header()
	clear(h)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	if x.r.ProtoMajor == 1 {
		h.Set("Connection", "close") // a body that was not read is in the way of the next request
	}
	x.w.WriteHeader(status)
	if x.r.Method != http.MethodHead {
		x.w.Write([]byte("mcpwire tap: " + why + "\n"))
	}
}

// endReason says why the exchange ended early, in view of an error of the given side.
func (x *exchange) endReason(side string, err error) string {
	// net/http cancels the context of a request whose connection reached a deadline, too.
	switch cause := context.Cause(x.ctx); {
	case errors.Is(cause, errShutdown):
		return errShutdown.Error()
	case errors.Is(err, errSlowReader):
		return err.Error()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return side + " timed out"
	case cause != nil, errors.Is(err, errClientGone):
		return errClientGone.Error()
	case neterror.IsReset(err):
		return side + " reset"
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return side + ": no address of the host is known: " + dns.Err
	}
	return side + ": " + printable(err.Error())
}

// printable bounds a text that peers have a part in, and takes what terminals could act upon out of it.
func printable(s string) string {
	const most = 300
	q := strconv.QuoteToASCII(s[:min(len(s), most)])
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// forward sends the request to the server and brings back the response.
func (x *exchange) forward() {
	body, err := x.requestBody()
	if err != nil {
		x.requestFailed(err)
		return
	}
	out := x.upstreamRequest(body)
	info := &x.interim
	ctx := httptrace.WithClientTrace(x.ctx, &httptrace.ClientTrace{
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
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusOK || resp.StatusCode > 999 {
		x.upstreamFailed(errors.New("a response with a status that is none"))
		return
	}
	x.forwardResponse(resp, conn)
}

// upstreamFailed answers a request that has no response.
func (x *exchange) upstreamFailed(err error) {
	if x.ctx.Err() != nil {
		x.recordEnd(x.endReason("upstream", err))
		panic(http.ErrAbortHandler)
	}
	why := "no response from the server: " + x.endReason("upstream", err)
	x.h.opts.Logger.Warn("no response from the server", "method", x.r.Method, "path", printable(x.r.URL.Path), "error", err)
	x.recordEnd(why)
	status := http.StatusBadGateway
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		status = http.StatusGatewayTimeout
	}
	x.writeError(status, why)
}

// requestFailed ends an exchange whose request did not come whole.
func (x *exchange) requestFailed(err error) {
	x.recordEnd("the request broke off: " + x.endReason("client", err))
	if errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(context.Cause(x.ctx), errShutdown) {
		x.writeError(http.StatusRequestTimeout, "the request's body did not come")
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

// upstreamRequest returns the request as the server is to get it. Its target is that of the client, byte for byte; its Host is the server's own.
func (x *exchange) upstreamRequest(body upstreamBody) *http.Request {
	u := &url.URL{
		Scheme: x.h.upstream.Scheme, Host: x.h.upstream.Host,
		Path: x.r.URL.Path, RawPath: x.r.URL.RawPath, RawQuery: x.r.URL.RawQuery, ForceQuery: x.r.URL.ForceQuery,
	}
	header := endToEnd(x.r.Header, x.header)
	delete(header, "Host")
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = []string{""} // net/http would name itself
	}
	switch own := x.r.Header.Get("Origin"); {
	case x.h.opts.Origin == "", own == "":
	case !x.h.access.trusts(own):
		x.note(capture.ToServer, "the Origin header was left as it is, since it is that of a page of another machine")
	default:
		for name := range header {
			if http.CanonicalHeaderKey(name) == "Origin" {
				delete(header, name)
			}
		}
		if x.h.opts.Origin != "drop" {
			header["Origin"] = []string{x.h.opts.Origin}
		}
		x.note(capture.ToServer, "the Origin header was replaced as the tap was told: "+x.h.opts.Origin)
	}
	out := &http.Request{
		Method: x.r.Method, URL: u, Host: x.h.upstream.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: body.ReadCloser, ContentLength: x.r.ContentLength, Trailer: x.r.Trailer,
	}
	if body.data != nil { // for a connection that turns out to be closed before anything was sent
		out.GetBody = func() (io.ReadCloser, error) { return bytesBody(body.data), nil }
	}
	return out
}

// interim is what is known of the informational responses to a request, which come from goroutines of the transport.
type interim struct {
	mu        sync.Mutex
	done      bool          // the response has come, or none will
	conn      *serverConn   // by which the request was sent last, if its heads are seen
	forwarded chan struct{} // closed when the client has been told that the server wants the body; nil while the server has not said so
}

// bodyRequested is called when the server wants the body, before the body is read and before inform is called.
func (i *interim) bodyRequested() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forwarded = make(chan struct{})
}

// waitForwarded waits until the client knows what the server has said of the body. To read the body before that would have net/http ask for it as well.
func (i *interim) waitForwarded() {
	i.mu.Lock()
	forwarded := i.forwarded
	i.mu.Unlock()
	if forwarded != nil {
		<-forwarded
	}
}

// forwardInterim passes on an informational response.
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
	x.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{
		Status: status, Proto: "HTTP/1.1", Headers: httphead.Headers(http.Header(header), false),
	}})
	if x.r.ProtoMajor == 1 && x.r.ProtoMinor == 0 {
		return // there are none in HTTP/1.0
	}
	h := x.w.Header()
	for name, values := range endToEnd(http.Header(header), nil) {
		h[name] = values
	}
	x.w.WriteHeader(status)
	clear(h)
}

// armBodyTimeout bounds how long a body may stay away.
func (x *exchange) armBodyTimeout() { x.rc.SetReadDeadline(time.Now().Add(x.h.opts.BodyTimeout)) }

func (x *exchange) disarmBodyTimeout() { x.rc.SetReadDeadline(time.Time{}) }

// clientError tells a body that broke off from one that is wrong.
func (x *exchange) clientError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled) {
		return errClientGone
	}
	return err
}

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

// chunks are buffers for what goes by.
var chunks = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// forwardResponse brings the response to the client. It panics if it breaks off.
func (x *exchange) forwardResponse(resp *http.Response, conn *serverConn) {
	list := x.recordResponse(resp, conn)
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" && x.r.Header.Get("Mcp-Session-Id") == "" {
		x.h.sessions.bind(sessionSpace, id, x)
	}
	h := x.w.Header()
	for name, values := range endToEnd(resp.Header, list) {
		h[name] = values
	}
	for _, name := range []string{"Date", "Content-Type"} { // net/http would add them
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
	if names := httphead.TrailerNames(resp.Trailer); names != "" {
		h["Trailer"] = []string{names}
	}
	x.w.WriteHeader(resp.StatusCode)
	why, err := x.forwardBody(resp)
	if err == nil {
		x.forwardTrailers(resp.Trailer)
	}
	x.recordEnd(why)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// recordResponse records the head of the response, and returns its fields as they were on the wire, nil if that is not known.
func (x *exchange) recordResponse(resp *http.Response, conn *serverConn) (exact []capture.Header) {
	if conn != nil && resp.ProtoMajor == 1 {
		if list, ok := conn.head.take(); ok && sameFields(list, resp.Header) {
			exact = list
		}
	}
	head := httphead.Response(resp)
	if exact != nil {
		head.Headers = exact
	}
	x.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: head})
	if to, err := resp.Location(); err == nil && to.Host != "" && strings.Contains(resp.Header.Get("Location"), "//") {
		x.note(capture.ToClient, "the Location leads past the tap")
	}
	return exact
}

// sinkFor returns what records the body of a response.
func (x *exchange) sinkFor(resp *http.Response) sink {
	coding := contentCoding(resp.Header)
	var s sink
	switch media := mediaType(resp.Header); {
	case media == typeEvents:
		s = newEventSink(x)
	case media == typeLines:
		s = newLineSink(x, capture.ToClient)
	case coding != "" && resp.ContentLength >= 0: // all of it is there before the last of it is forwarded
		return &bodySink{x: x, header: resp.Header, coding: coding, expectMessage: resp.StatusCode < 300, buffer: x.newBuffer()}
	default:
		s = &bodySink{x: x, header: resp.Header, expectMessage: resp.StatusCode < 300, buffer: x.newBuffer()}
	}
	if coding != "" {
		return newDecodingSink(x, coding, s)
	}
	return s
}

// forwardBody forwards the body. The error tells that it broke off, and why is what to say of it.
func (x *exchange) forwardBody(resp *http.Response) (why string, err error) {
	if x.r.Method == http.MethodHead || resp.ContentLength == 0 {
		return "", nil
	}
	rec := x.sinkFor(resp)
	whole := false
	defer func() { rec.end(whole) }()
	g := &gate{x: x, open: x.r.Method != http.MethodGet || mediaType(resp.Header) != typeEvents || contentCoding(resp.Header) != ""}
	if resp.ContentLength < 0 {
		if err := x.flush(); err != nil {
			return x.endReason("client", err), err
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
			if werr := x.write(out, last); werr != nil {
				return x.endReason("client", werr), werr
			}
		}
		switch {
		case last:
			whole = true
			return "", nil
		case err != nil:
			return x.endReason("upstream", err), err
		}
	}
}

// write forwards p at once. The deadline is for a client that does not read: what it leaves is left at the server meanwhile.
func (x *exchange) write(p []byte, last bool) error {
	if len(p) == 0 {
		return nil
	}
	x.rc.SetWriteDeadline(time.Now().Add(x.h.opts.WriteTimeout))
	if err := x.abortErr(); err != nil {
		return err
	}
	if _, err := x.w.Write(p); err != nil {
		return x.writeFailed(err)
	}
	if last { // the end of it goes along
		return nil
	}
	return x.flush()
}

func (x *exchange) flush() error {
	x.rc.SetWriteDeadline(time.Now().Add(x.h.opts.WriteTimeout))
	if err := x.abortErr(); err != nil {
		return err
	}
	if err := x.rc.Flush(); err != nil {
		return x.writeFailed(err)
	}
	x.rc.SetWriteDeadline(time.Time{}) // HTTP/2 would end a quiet stream when it is reached
	return nil
}

func (x *exchange) writeFailed(err error) error {
	if isTimeout(err) {
		return fmt.Errorf("%w for %v", errSlowReader, x.h.opts.WriteTimeout)
	}
	return errClientGone
}

// forwardTrailers passes on the fields behind the body (https://www.rfc-editor.org/rfc/rfc9110#section-6.5).
func (x *exchange) forwardTrailers(t http.Header) {
	h := x.w.Header()
	for _, f := range httphead.Headers(t, false) {
		x.note(capture.ToClient, "trailer "+printable(f.Name)+": "+printable(f.Value))
		if hasToken(h["Trailer"], f.Name) {
			h.Add(f.Name, f.Value)
		} else {
			h.Add(http.TrailerPrefix+f.Name, f.Value)
		}
	}
}

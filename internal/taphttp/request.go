package taphttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/httphead"
)

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

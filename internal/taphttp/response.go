package taphttp

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/httphead"
)

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

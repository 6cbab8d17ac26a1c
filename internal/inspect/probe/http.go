package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/net/sse"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/trace/httphead"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An httpConn is a conn over HTTP.
type httpConn struct {
	r       *run
	session uint64
	// modern adds the headers that repeat the body.
	modern bool
	// sessionHeader holds the headers of all requests: the session and the negotiated revision.
	sessionHeader http.Header
}

func newWeb(r *run, j *job, modern bool) *httpConn {
	return &httpConn{r: r, session: r.nextSession(j), modern: modern, sessionHeader: http.Header{}}
}

// alive implements conn. HTTP exchanges are independent.
func (hc *httpConn) alive() bool { return true }

// close implements conn. It deletes the session, if there is one.
func (hc *httpConn) close() {
	if hc.sessionHeader.Get("Mcp-Session-Id") == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	hc.send(ctx, outgoing{method: http.MethodDelete})
}

// An exchange is a request with its response.
type exchange struct {
	conn      *httpConn
	n         uint64
	start     time.Time
	cancel    context.CancelFunc
	lateTimer *time.Timer
}

func (x *exchange) record(e *capture.Event) uint64 {
	e.Session, e.Exchange = x.conn.session, x.n
	return x.conn.r.recorder.record(e)
}

// send implements conn.
func (hc *httpConn) send(ctx context.Context, q outgoing) reply {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x := &exchange{conn: hc, n: hc.r.nextExchange(), start: time.Now(), cancel: cancel}
	a := reply{state: answered, dir: capture.ToServer, exchange: x.n}
	request, err := hc.request(ctx, &q)
	if err != nil {
		a.state, a.err = disconnected, err
		return a
	}
	a.requestEvent = x.record(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: &capture.Request{
		Method: request.Method, URL: request.URL.RequestURI(), Proto: "HTTP/1.1", Headers: httphead.Headers(request.Header, false, capture.Header{Name: "Host", Value: request.Host}),
	}})
	if len(q.body) > 0 {
		a.requestEvent = x.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: q.body})
	}
	a.event = a.requestEvent
	x.lateTimer = time.AfterFunc(hc.r.replyTimeout(q), cancel)
	defer x.lateTimer.Stop()
	resp, err := hc.r.transport.RoundTrip(request)
	if err != nil {
		x.recordFailure(&a, ctx, err)
		return a
	}
	defer resp.Body.Close()
	a.event, a.dir = x.recordHead(resp), capture.ToClient
	a.status, a.header = resp.StatusCode, resp.Header
	x.readBody(ctx, &a, &q, resp)
	a.took = time.Since(x.start)
	return a
}

// recordFailure ends an exchange without a response.
func (x *exchange) recordFailure(a *reply, ctx context.Context, err error) {
	a.state, a.err, a.took = disconnected, withoutURL(err), time.Since(x.start)
	if ctx.Err() != nil {
		a.state, a.err = timedOut, nil
	}
	x.record(&capture.Event{Kind: capture.KindEnd, Data: []byte(endText(a))})
}

func endText(a *reply) string {
	if a.state == timedOut {
		return "nothing came in time"
	}
	if a.err != nil {
		return clip.Characters(a.err.Error(), 300)
	}
	return ""
}

// withoutURL removes the URL from an error, because it may contain secrets.
func withoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}

// request returns the HTTP request for a message.
func (hc *httpConn) request(ctx context.Context, q *outgoing) (*http.Request, error) {
	method := q.method
	if method == "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, hc.r.target.URL, bytes.NewReader(q.body))
	if err != nil {
		return nil, withoutURL(err)
	}
	if len(q.body) == 0 {
		r.Body, r.ContentLength, r.GetBody = nil, 0, nil
	}
	for name, values := range hc.r.target.Header {
		if strings.EqualFold(name, "Host") && len(values) > 0 {
			r.Host = values[0]
			continue
		}
		r.Header[name] = slices.Clone(values)
	}
	r.Header.Set("User-Agent", hc.r.opts.Client+"/"+hc.r.opts.Version)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
	} else if method == http.MethodGet {
		r.Header.Set("Accept", "text/event-stream")
	}
	for name, values := range hc.sessionHeader {
		r.Header[name] = slices.Clone(values)
	}
	if hc.modern && len(q.body) > 0 {
		setStandardHeaders(r.Header, q.body)
	}
	if q.header != nil {
		q.header(r.Header)
	}
	if q.host != "" {
		r.Host = q.host
	}
	return r, nil
}

// setStandardHeaders sets the headers that repeat the body of a modern message.
// Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
func setStandardHeaders(h http.Header, body []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(body, &m, 0) != nil {
		return
	}
	h.Set("MCP-Protocol-Version", mcp.LatestRevision.String())
	if v := metaText(&m, mcp.MetaProtocolVersion); v != "" {
		h.Set("MCP-Protocol-Version", v)
	}
	h.Set("Mcp-Method", string(m.Method))
	if param := era.NameParam(m.Method); param != "" {
		if v, ok := m.Param(param); ok {
			h.Set("Mcp-Name", era.EncodeHeaderValue(textOf(v)))
		}
	}
}

// recordHead records the head of the response.
func (x *exchange) recordHead(resp *http.Response) uint64 {
	return x.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{
		Status: resp.StatusCode, Proto: resp.Proto, Headers: httphead.Headers(resp.Header, false),
	}})
}

func mediaType(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind
}

// readBody reads the body of the response.
func (x *exchange) readBody(ctx context.Context, a *reply, q *outgoing, resp *http.Response) {
	kind := mediaType(resp.Header)
	if kind == "text/event-stream" {
		x.readStream(ctx, a, q, resp.Body)
		return
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFrame+1))
	if len(body) > maxFrame {
		body, err = body[:maxFrame], errTooLarge
	}
	end := &capture.Event{Kind: capture.KindEnd}
	if err != nil {
		a.err = withoutURL(err)
		if ctx.Err() != nil && !errors.Is(err, errTooLarge) {
			a.state, a.err = timedOut, nil
		}
		end.Data = []byte(endText(a))
	}
	list := parse(body)
	switch {
	case len(body) == 0:
	case kind == "application/json" || len(list) > 0:
		n := x.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: body})
		x.examine(ctx, a, q, list, body, n)
	default:
		x.record(&capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Data: body})
	}
	a.body = body
	x.record(end)
}

// examine handles messages of the server and reports whether the expected response is among them.
func (x *exchange) examine(ctx context.Context, a *reply, q *outgoing, list []jsonrpc.Message, text []byte, n uint64) bool {
	for _, m := range list {
		switch {
		case q.answers(&m), a.status >= 400 && m.Kind == jsonrpc.KindError && a.text == nil:
			a.set(&m, text, n)
			return true
		case m.Kind == jsonrpc.KindRequest:
			x.conn.answerRequest(ctx, &m)
		case len(a.before) < maxBefore:
			a.before = append(a.before, earlierMessage{*m.Clone(), n})
		}
		if q.stopAt != nil && q.stopAt(&m) {
			a.state, a.event = stoppedEarly, n
			return true
		}
	}
	return false
}

// answerRequest responds to a request of the server.
func (hc *httpConn) answerRequest(ctx context.Context, m *jsonrpc.Message) {
	if !hc.modern {
		hc.send(ctx, outgoing{body: clientResponse(m)})
	}
}

// readStream reads an event stream until the response, a timeout or its end.
func (x *exchange) readStream(ctx context.Context, a *reply, q *outgoing, body io.Reader) {
	end := &capture.Event{Kind: capture.KindEnd}
	defer func() { x.record(end) }()
	// Such a stream may stay open forever.
	if q.id == "" && !q.anyID && q.stopAt == nil {
		end.Data = []byte("client closed")
		a.state = sentOnly
		return
	}
	reader := sse.NewReader(io.LimitReader(body, maxVisit), maxFrame)
	for {
		e, err := reader.Read()
		if err != nil {
			a.err = err
			a.state = disconnected
			if ctx.Err() != nil {
				a.state, a.err = timedOut, nil
				end.Data = []byte("client closed")
			}
			return
		}
		list := parse(e.Data)
		facts := &capture.SSE{Event: e.Name, ID: string(e.ID), HasID: e.HasID, Retry: e.Retry, HasRetry: e.HasRetry, HasData: len(e.Data) > 0}
		event := &capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, Data: e.Data, SSE: facts}
		if len(e.Data) > 0 && (e.Name == "" || e.Name == "message") {
			event.Kind = capture.KindMessage
		}
		n := x.record(event)
		if x.examine(ctx, a, q, list, e.Data, n) {
			if a.state == stoppedEarly {
				end.Data = []byte("client closed")
				x.conn.r.recorder.waive(n)
			} else {
				x.drain(ctx, reader)
			}
			return
		}
	}
}

// drain waits briefly for the end of the stream after the response. Some servers take an immediate
// disconnect for a cancellation.
func (x *exchange) drain(ctx context.Context, reader *sse.Reader) {
	x.lateTimer.Reset(drainTimeout)
	for ctx.Err() == nil {
		e, err := reader.Read()
		if err != nil {
			return
		}
		if len(e.Data) > 0 {
			x.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: e.Data, SSE: &capture.SSE{Event: e.Name}})
		}
	}
}

const (
	drainTimeout = 500 * time.Millisecond
	// deleteTimeout limits the deletion of the session.
	deleteTimeout = 2 * time.Second
)

var errTooLarge = errors.New("the server wrote more than the probe accepts")

// A limitedReader fails after a number of bytes.
type limitedReader struct {
	r         io.Reader
	remaining int
}

func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > r.remaining {
		n, err = r.remaining, errTooLarge
	}
	r.remaining -= n
	return n, err
}

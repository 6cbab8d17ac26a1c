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
	"mcpwire/internal/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A web is a link of HTTP exchanges.
type web struct {
	r       *run
	session uint64
	modern  bool        // requests carry the headers that repeat what they say
	sticky  http.Header // that all requests carry: the session, and the revision that was agreed on
}

func newWeb(r *run, j *job, modern bool) *web {
	return &web{r: r, session: r.nextSession(j), modern: modern, sticky: http.Header{}}
}

// alive implements link: each exchange stands for itself.
func (w *web) alive() bool { return true }

// close implements link. It ends the session, as far as there is one and the server cares.
func (w *web) close() {
	if w.sticky.Get("Mcp-Session-Id") == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	w.ask(ctx, question{method: http.MethodDelete})
}

// An exchange is a request with its response.
type exchange struct {
	w      *web
	n      uint64
	start  time.Time
	cancel context.CancelFunc
	late   *time.Timer
}

func (x *exchange) record(e *capture.Event) uint64 {
	e.Session, e.Exchange = x.w.session, x.n
	return x.w.r.journal.record(e)
}

// ask implements link.
func (w *web) ask(ctx context.Context, q question) answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x := &exchange{w: w, n: w.r.nextExchange(), start: time.Now(), cancel: cancel}
	a := answer{fate: answered, dir: capture.ToServer, x: x.n}
	request, err := w.request(ctx, &q)
	if err != nil {
		a.fate, a.err = gone, err
		return a
	}
	a.asked = x.record(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: &capture.Request{
		Method: request.Method, URL: request.URL.RequestURI(), Proto: "HTTP/1.1", Headers: pairs(request),
	}})
	if len(q.body) > 0 {
		a.asked = x.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: q.body})
	}
	a.at = a.asked
	x.late = time.AfterFunc(w.r.patience(q), cancel)
	defer x.late.Stop()
	resp, err := w.r.transport.RoundTrip(request)
	if err != nil {
		x.failed(&a, ctx, err)
		return a
	}
	defer resp.Body.Close()
	a.at, a.dir = x.head(resp), capture.ToClient
	a.status, a.header = resp.StatusCode, resp.Header
	x.body(ctx, &a, &q, resp)
	a.took = time.Since(x.start)
	return a
}

// failed ends an exchange without a response.
func (x *exchange) failed(a *answer, ctx context.Context, err error) {
	a.fate, a.err, a.took = gone, bare(err), time.Since(x.start)
	if ctx.Err() != nil {
		a.fate, a.err = silent, nil
	}
	x.record(&capture.Event{Kind: capture.KindEnd, Data: []byte(endText(a))})
}

func endText(a *answer) string {
	if a.fate == silent {
		return "nothing came in time"
	}
	if a.err != nil {
		return clip(a.err.Error(), 300)
	}
	return ""
}

// bare is an error without the URL, which may have secrets in it.
func bare(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}

// request makes the HTTP request for a question.
func (w *web) request(ctx context.Context, q *question) (*http.Request, error) {
	method := q.method
	if method == "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, w.r.target.URL, bytes.NewReader(q.body))
	if err != nil {
		return nil, bare(err)
	}
	if len(q.body) == 0 {
		r.Body, r.ContentLength, r.GetBody = nil, 0, nil
	}
	for name, values := range w.r.target.Header {
		if strings.EqualFold(name, "Host") && len(values) > 0 {
			r.Host = values[0]
			continue
		}
		r.Header[name] = slices.Clone(values)
	}
	r.Header.Set("User-Agent", w.r.opts.Client+"/"+w.r.opts.Version)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
	} else if method == http.MethodGet {
		r.Header.Set("Accept", "text/event-stream")
	}
	for name, values := range w.sticky {
		r.Header[name] = slices.Clone(values)
	}
	if w.modern && len(q.body) > 0 {
		mirror(r.Header, q.body)
	}
	if q.header != nil {
		q.header(r.Header)
	}
	if q.host != "" {
		r.Host = q.host
	}
	return r, nil
}

// mirror sets the headers that repeat what a modern message says
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#protocol-version-header).
func mirror(h http.Header, body []byte) {
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

// pairs are the fields of a request as it goes out, but for those that net/http adds.
func pairs(r *http.Request) []capture.Header {
	list := []capture.Header{{Name: "Host", Value: r.Host}}
	return append(list, sorted(r.Header)...)
}

func sorted(h http.Header) []capture.Header {
	var list []capture.Header
	for name, values := range h {
		for _, v := range values {
			list = append(list, capture.Header{Name: name, Value: v})
		}
	}
	slices.SortStableFunc(list, func(a, b capture.Header) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// head records the head of the response.
func (x *exchange) head(resp *http.Response) uint64 {
	return x.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{
		Status: resp.StatusCode, Proto: resp.Proto, Headers: sorted(resp.Header),
	}})
}

func mediaType(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind
}

// body reads what the response has to say.
func (x *exchange) body(ctx context.Context, a *answer, q *question, resp *http.Response) {
	kind := mediaType(resp.Header)
	if kind == "text/event-stream" {
		x.stream(ctx, a, q, resp.Body)
		return
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFrame+1))
	if len(body) > maxFrame {
		body, err = body[:maxFrame], errTooMuch
	}
	end := &capture.Event{Kind: capture.KindEnd}
	if err != nil {
		a.err = bare(err)
		if ctx.Err() != nil && !errors.Is(err, errTooMuch) {
			a.fate, a.err = silent, nil
		}
		end.Data = []byte(endText(a))
	}
	list := parse(body)
	switch {
	case len(body) == 0:
	case kind == "application/json" || len(list) > 0:
		n := x.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: body})
		x.consider(ctx, a, q, list, body, n)
	default:
		x.record(&capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Data: body})
	}
	a.body = body
	x.record(end)
}

// consider looks at messages of the server, and reports whether they have what was waited for.
func (x *exchange) consider(ctx context.Context, a *answer, q *question, list []jsonrpc.Message, text []byte, n uint64) bool {
	for _, m := range list {
		switch {
		case q.answers(&m), a.status >= 400 && m.Kind == jsonrpc.KindError && a.text == nil:
			a.take(&m, text, n)
			return true
		case m.Kind == jsonrpc.KindRequest:
			x.w.oblige(ctx, &m)
		case len(a.before) < maxBefore:
			a.before = append(a.before, heard{*m.Clone(), n})
		}
		if q.until != nil && q.until(&m) {
			a.fate, a.at = stopped, n
			return true
		}
	}
	return false
}

// oblige answers a request of the server.
func (w *web) oblige(ctx context.Context, m *jsonrpc.Message) {
	if !w.modern {
		w.ask(ctx, question{body: obliging(m)})
	}
}

// stream reads an event stream until the answer has come, nothing comes any more, or it ends.
func (x *exchange) stream(ctx context.Context, a *answer, q *question, body io.Reader) {
	end := &capture.Event{Kind: capture.KindEnd}
	defer func() { x.record(end) }()
	if q.id == "" && !q.any && q.until == nil { // it may stay open for ever
		end.Data = []byte("client closed")
		a.fate = sent
		return
	}
	reader := sse.NewReader(io.LimitReader(body, maxVisit), maxFrame)
	for {
		e, err := reader.Read()
		if err != nil {
			a.err = err
			a.fate = gone
			if ctx.Err() != nil {
				a.fate, a.err = silent, nil
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
		if x.consider(ctx, a, q, list, e.Data, n) {
			if a.fate == stopped {
				end.Data = []byte("client closed")
				x.w.r.journal.excuse(n)
			} else {
				x.drain(ctx, reader)
			}
			return
		}
	}
}

// drain waits a moment for the end of a stream, which servers owe behind the answer: to hang up at once would be a cancellation to some.
func (x *exchange) drain(ctx context.Context, reader *sse.Reader) {
	x.late.Reset(drainWait)
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
	drainWait = 500 * time.Millisecond
	leaveWait = 2 * time.Second // for the end of a session
)

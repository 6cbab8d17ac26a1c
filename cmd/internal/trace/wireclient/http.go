package wireclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/net/neterror"
	"mcpwire/internal/net/sse"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/trace/httphead"
)

// Names of header fields, in the spelling of net/http.
const (
	HeaderSession = "Mcp-Session-Id"
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
	// HeaderParam is the beginning of the names of headers that repeat arguments.
	HeaderParam = "Mcp-Param-"

	headerLast = "Last-Event-Id"
)

const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
)

// EventEndpoint is the event of the HTTP+SSE transport that names the URL for messages
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
const EventEndpoint = "endpoint"

// An HTTP makes recorded requests to a server. Set its fields before the first use.
type HTTP struct {
	// Transport makes the requests. It must not follow redirects.
	Transport http.RoundTripper
	// UserAgent is the User-Agent of all requests.
	UserAgent string
	// Header is sent with all requests and replaces default fields. A single empty value removes
	// a field.
	Header http.Header
	// HeaderMirror sets the headers that repeat messages. Nil sets none.
	HeaderMirror *HeaderMirror
	// MaxMessage limits a body or the data of an event, in bytes.
	MaxMessage int
	// MaxStream limits the bytes of an event stream. Zero means no limit.
	MaxStream int

	// Record records an event and returns its number. Nil records nothing.
	Record func(*capture.Event) uint64
	// Session is the number of the session in the record.
	Session uint64
	// NextExchange numbers the exchanges. Nil counts from 1.
	NextExchange func() uint64

	exchanges atomic.Uint64
	mu        sync.Mutex
	// sessionHeader holds the session id and the negotiated revision.
	sessionHeader http.Header
}

// A Request is a request to make.
type Request struct {
	// Method is the HTTP method. Empty means POST.
	Method string
	URL    string
	// Body is the message. Nil means none.
	Body []byte
	// Edit changes the request before it is recorded. It may be nil.
	Edit func(*http.Request)
}

// SessionHeader returns a field that is sent with all requests of a session: [HeaderSession] or
// [HeaderVersion]. It is empty until it was set.
func (c *HTTP) SessionHeader(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessionHeader.Get(name)
}

// SetSessionHeader sets such a field. An empty value removes it. A revision that is no valid header
// value is encoded as one.
func (c *HTTP) SetSessionHeader(name, value string) {
	if name == HeaderVersion {
		value = era.EncodeHeaderValue(value)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessionHeader == nil {
		c.sessionHeader = http.Header{}
	}
	if c.sessionHeader.Set(name, value); value == "" {
		c.sessionHeader.Del(name)
	}
}

// BeginSession stores what later requests need of a legacy session: the session id in the header of
// the response to initialize, and the negotiated revision. It stores nothing empty.
func (c *HTTP) BeginSession(h http.Header, version string) {
	if id := h.Get(HeaderSession); id != "" {
		c.SetSessionHeader(HeaderSession, id)
	}
	if version != "" {
		c.SetSessionHeader(HeaderVersion, version)
	}
}

// EndSession deletes the session, if there is one. q has the URL, and may edit the request.
func (c *HTTP) EndSession(q Request) {
	if c.SessionHeader(HeaderSession) == "" {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), deleteTimeout, ErrClientClosed)
	defer cancel()
	q.Method = http.MethodDelete
	x, err := c.NewExchange(ctx, &q)
	if err != nil {
		return
	}
	for err = x.Do(); err == nil; {
		_, err = x.Next()
	}
	if err == io.EOF {
		err = nil
	}
	x.End(err)
}

// NewExchange numbers an exchange and records its request, which [Exchange.Do] sends. After it,
// [Exchange.End] must be called. ctx is for the whole exchange; its cause is the error of what it
// ends. The error is that of an invalid URL or method.
func (c *HTTP) NewExchange(ctx context.Context, q *Request) (*Exchange, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := c.request(ctx, q)
	if err != nil {
		cancel(nil)
		return nil, neterror.WithoutURL(err)
	}
	x := &Exchange{http: c, Request: r, cancel: cancel}
	if c.NextExchange != nil {
		x.N = c.NextExchange()
	} else {
		x.N = c.exchanges.Add(1)
	}
	x.At = x.record(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: httphead.ClientRequest(r)})
	if len(q.Body) > 0 {
		x.At = x.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: q.Body})
	}
	return x, nil
}

func (c *HTTP) request(ctx context.Context, q *Request) (*http.Request, error) {
	method := q.Method
	if method == "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, q.URL, nil)
	if err != nil {
		return nil, err
	}
	if len(q.Body) > 0 {
		r.ContentLength = int64(len(q.Body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(q.Body)), nil }
		r.Body, _ = r.GetBody()
	}
	r.Header.Set("User-Agent", c.UserAgent)
	switch method {
	case http.MethodPost:
		r.Header.Set("Content-Type", typeJSON)
		r.Header.Set("Accept", typeJSON+", "+typeEvents)
	case http.MethodGet:
		r.Header.Set("Accept", typeEvents)
	}
	c.mu.Lock()
	for name, values := range c.sessionHeader {
		r.Header[name] = slices.Clone(values)
	}
	c.mu.Unlock()
	if c.HeaderMirror != nil && len(q.Body) > 0 {
		c.HeaderMirror.Set(r.Header, q.Body)
	}
	setHeader(r, c.Header)
	// http.Client does this.
	if user := r.URL.User; user != nil && r.Header.Get("Authorization") == "" {
		password, _ := user.Password()
		r.SetBasicAuth(user.Username(), password)
	}
	if q.Edit != nil {
		q.Edit(r)
	}
	return r, nil
}

// setHeader sets the user's header fields.
func setHeader(r *http.Request, h http.Header) {
	for name, values := range h {
		name = http.CanonicalHeaderKey(name)
		switch removed := len(values) == 1 && values[0] == ""; {
		case name == "Host" && len(values) > 0:
			r.Host = values[0]
		case removed && name != "User-Agent": // net/http sends its own unless that is empty
			r.Header.Del(name)
		default:
			r.Header[name] = slices.Clone(values)
		}
	}
}

// An Exchange is an HTTP request with its response. Its fields must not be changed.
type Exchange struct {
	// N is the number of the exchange.
	N uint64
	// At is the number of the latest event of the request or of the response's head.
	At      uint64
	Request *http.Request
	// Response is the head of the response, or nil before it.
	Response *http.Response

	http   *HTTP
	cancel context.CancelCauseFunc
	// late ends the exchange. It is nil without a limit.
	late *time.Timer
	// events reads a stream. It is nil for a body.
	events *sse.Reader
	// head is the beginning of the stream.
	head head
	// bodyRead reports that the body was read.
	bodyRead bool
	ended    bool
}

// Limit lets the exchange end after d, with the error cause. It replaces an earlier limit that has
// not passed.
func (x *Exchange) Limit(d time.Duration, cause error) {
	if x.late != nil {
		x.late.Stop()
	}
	x.late = time.AfterFunc(d, func() { x.cancel(cause) })
}

// Do sends the request and records the head of the response.
func (x *Exchange) Do() error {
	resp, err := x.http.Transport.RoundTrip(x.Request)
	if err != nil {
		return x.readError(err)
	}
	x.Response = resp
	x.At = x.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{
		Status: resp.StatusCode, Proto: resp.Proto, Headers: httphead.Headers(resp.Header, false),
	}})
	if MediaType(resp.Header) == typeEvents {
		var body io.Reader = resp.Body
		if x.http.MaxStream > 0 {
			body = &limitedReader{body, x.http.MaxStream, x.http.MaxStream}
		}
		x.events = sse.NewReader(io.TeeReader(body, &x.head), x.http.MaxMessage)
	}
	return nil
}

// Status returns the status of the response, or 0 without one.
func (x *Exchange) Status() int {
	if x.Response == nil {
		return 0
	}
	return x.Response.StatusCode
}

// IsStream reports whether the response is an event stream, which may never end.
func (x *Exchange) IsStream() bool { return x.events != nil }

// Head returns the beginning of the stream, as received so far.
func (x *Exchange) Head() []byte { return x.head }

// A head keeps the beginning of what is written to it.
type head []byte

const maxHead = 4 << 10 // bytes

// Write implements io.Writer. It never fails.
func (h *head) Write(b []byte) (int, error) {
	*h = append(*h, b[:min(len(b), maxHead-len(*h))]...)
	return len(b), nil
}

// A Received is an event of a stream, or a body. The receiver owns it.
type Received struct {
	// N is the number of its event in the record.
	N uint64
	// Data may be something else than a message.
	Data []byte
	// Kind is KindMessage for the data of an unnamed event, KindSSE for other events, and
	// KindMessage or KindBody for a body.
	Kind capture.Kind
	// SSE has the fields of an event. It is nil for a body.
	SSE *capture.SSE
}

// Next waits for the next event, or for the body, and records it. The error is io.EOF at the end of
// the response. The beginning of a body comes with the error, if the body broke off or is too
// large. After an [*sse.TooLargeError] Next may be called again.
func (x *Exchange) Next() (*Received, error) {
	if x.events != nil {
		return x.nextEvent()
	}
	if x.bodyRead {
		return nil, io.EOF
	}
	x.bodyRead = true
	limit := x.http.MaxMessage
	body, err := io.ReadAll(io.LimitReader(x.Response.Body, int64(limit)+1))
	if err != nil {
		err = x.readError(err)
	}
	e := &capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Data: body}
	if len(body) > limit {
		e.Data, e.Cut, err = body[:limit], true, fmt.Errorf("a body above %d bytes: %w", limit, ErrTooLarge)
	}
	switch {
	case len(body) == 0 && err == nil:
		return nil, io.EOF
	case len(body) == 0:
		return nil, err
	case MediaType(x.Response.Header) == typeJSON || len(Messages(body)) > 0:
		e.Kind = capture.KindMessage
	}
	return &Received{N: x.record(e), Data: e.Data, Kind: e.Kind}, err
}

// Find reads a stream until the first event that want accepts. Of another response, it returns the
// body, which is empty if there is none.
func (x *Exchange) Find(want func(*Received) bool) (*Received, error) {
	for {
		in, err := x.Next()
		switch {
		case err == io.EOF && !x.IsStream():
			return &Received{}, nil
		case err != nil || !x.IsStream() || want(in):
			return in, err
		}
	}
}

func (x *Exchange) nextEvent() (*Received, error) {
	e, err := x.events.Read()
	if large, ok := errors.AsType[*sse.TooLargeError](err); ok {
		x.record(&capture.Event{Kind: capture.KindNote, Dir: capture.ToClient, Data: []byte(large.Error())})
		return nil, large
	}
	if err == io.EOF {
		return nil, err
	}
	if err != nil {
		return nil, x.readError(err)
	}
	in := &Received{Data: bytes.Clone(e.Data), Kind: capture.KindSSE, SSE: &capture.SSE{
		Event: e.Name, ID: string(e.ID), HasID: e.HasID, Retry: e.Retry, HasRetry: e.HasRetry, HasData: e.Data != nil,
	}}
	if len(e.Data) > 0 && e.Name == "" {
		in.Kind = capture.KindMessage
	}
	in.N = x.record(&capture.Event{Kind: in.Kind, Dir: capture.ToClient, Data: in.Data, SSE: in.SSE})
	return in, nil
}

// End closes the response and records the end of the exchange. why is the reason if it did not end
// by itself. Further calls do nothing.
func (x *Exchange) End(why error) {
	if x.ended {
		return
	}
	x.ended = true
	e := &capture.Event{Kind: capture.KindEnd}
	if why != nil {
		e.Data = []byte(clip.String(why.Error(), 300))
	}
	x.record(e)
	if x.late != nil {
		x.late.Stop()
	}
	if x.Response != nil {
		x.Response.Body.Close()
	}
	x.cancel(nil)
}

func (x *Exchange) record(e *capture.Event) uint64 {
	if x.http.Record == nil {
		return 0
	}
	e.Session, e.Exchange = x.http.Session, x.N
	return x.http.Record(e)
}

// readError returns the error of a request or response: the cause of its context if that has ended.
func (x *Exchange) readError(err error) error {
	if cause := context.Cause(x.Request.Context()); cause != nil {
		return cause
	}
	return neterror.WithoutURL(err)
}

// MediaType returns the media type in Content-Type, without parameters and in lower case.
func MediaType(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind
}

// Endpoint returns the URL for messages that the data of an [EventEndpoint] names. It must have the
// origin of the stream's URL, since the credentials would go elsewhere otherwise.
func Endpoint(stream *url.URL, data []byte) (*url.URL, error) {
	to, err := stream.Parse(string(bytes.TrimSpace(data)))
	switch {
	case err != nil:
		return nil, errors.New("the endpoint is not a URL")
	case to.Scheme != stream.Scheme || to.Host != stream.Host || to.User != nil:
		return nil, errors.New("the endpoint is not at the same origin")
	}
	to.Fragment, to.RawFragment = "", ""
	return to, nil
}

// A limitedReader fails after a number of bytes.
type limitedReader struct {
	r                io.Reader
	limit, remaining int
}

func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > r.remaining {
		n, err = r.remaining, fmt.Errorf("the server wrote more than %d bytes: %w", r.limit, ErrTooLarge)
	}
	r.remaining -= n
	return n, err
}

package bridge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/net/sse"
	"mcpwire/internal/rpc"
	"mcpwire/internal/trace/httphead"
	"mcpwire/internal/trace/textlines"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/oauth"
)

// A Recording writes the traffic of a bridge, or of several behind one gateway, into one capture.
// The gateway records its clients' side, with a [ClientRecorder] for each client, and the bridges
// record their servers' side. A nil Recording records nothing. Its methods may be called by many
// goroutines at once.
type Recording struct {
	out *capture.Writer
	// watched is that of NewRecording.
	watched             func() bool
	sessions, exchanges atomic.Uint64

	mu sync.Mutex
	// sessionByID holds capture sessions by the Mcp-Session-Id.
	sessionByID ownerMap[uint64]
	// pendingEnds holds the requests whose end is not recorded yet.
	pendingEnds map[*upstreamRequest]struct{}
	// streams holds the standing stream of each session.
	streams map[uint64]*exchange
}

// NewRecording returns a recording to out, or nil if out is nil. It does not close out. watched
// reports if out wants traffic at present; nil means always. While it does not, most exchanges of
// HTTP are not looked at, and their messages are recorded without one.
func NewRecording(out *capture.Writer, watched func() bool) *Recording {
	if out == nil {
		return nil
	}
	return &Recording{out: out, watched: watched, sessionByID: ownerMap[uint64]{limit: maxSessionIDs}, streams: map[uint64]*exchange{}, pendingEnds: map[*upstreamRequest]struct{}{}}
}

// isWatched reports if the heads of requests and responses that come now are worth their cost.
func (r *Recording) isWatched() bool { return r.watched == nil || r.watched() }

// isBrief reports if a request has no effect on the records of later ones: it is neither an
// initialize nor a stream that messages of other requests may use. Mcp-Session-Id and Mcp-Method
// are the headers of Streamable HTTP.
func isBrief(method string, h http.Header) bool {
	if method != http.MethodPost || h["Mcp-Session-Id"] == nil && h["Mcp-Method"] == nil {
		return false
	}
	return h.Get("Mcp-Method") != mcp.MethodSubscriptionsListen && h.Get("Mcp-Method") != mcp.MethodInitialize
}

// newRecorder returns a recorder for a new connection.
func (r *Recording) newRecorder(side capture.Side) recorder {
	if r == nil {
		return recorder{}
	}
	return recorder{recording: r, side: side, session: r.sessions.Add(1)}
}

// A recorder records one connection, of a client or to the server. The zero value records nothing.
type recorder struct {
	recording *Recording
	side      capture.Side
	session   uint64
	// exchange is an HTTP exchange, or 0.
	exchange uint64
	// served is the exchange, if a client's.
	served *exchange
}

// A Provenance says from which messages another one was made.
type Provenance struct {
	rec recorder
	// event is the number of an event, or 0.
	event      uint64
	moreEvents []uint64
	// rule names the change, for example "id".
	rule string
}

// recordEvent records an event and returns its number, or 0 if nothing is recorded.
func (r recorder) recordEvent(e *capture.Event) uint64 {
	if r.recording == nil {
		return 0
	}
	e.Side, e.Session, e.Exchange = r.side, r.session, r.exchange
	return r.recording.out.Record(e)
}

// recordMessage records a received message and returns the number of its event.
func (r recorder) recordMessage(dir capture.Dir, frame []byte) uint64 {
	if r.recording == nil {
		return 0
	}
	n := r.recordEvent(&capture.Event{Kind: capture.KindMessage, Dir: dir, Data: frame})
	if r.served != nil && dir == capture.ToServer {
		r.served.requestReceived()
	}
	return n
}

// recordSent records a message that is about to be sent, and its provenance.
func (r recorder) recordSent(dir capture.Dir, frame []byte, from Provenance) {
	if r.recording == nil {
		return
	}
	if r.served != nil && r.served.queue(r, frame, from) {
		return // queued until the response head is recorded
	}
	n := r.recordMessage(dir, frame)
	from.rec.link(from.event, n, from.rule)
	for _, event := range from.moreEvents {
		from.rec.link(event, n, from.rule)
	}
}

// link records that one event was made from another.
func (r recorder) link(from, to uint64, rule string) {
	if r.recording == nil || from == 0 || to == 0 {
		return
	}
	t := &struct { // one allocation
		capture.Translation
		to [1]uint64
	}{Translation: capture.Translation{Of: from, Rule: rule}, to: [1]uint64{to}}
	t.To = t.to[:]
	r.recording.out.Record(&capture.Event{Kind: capture.KindTranslate, Session: r.session, Translation: &t.Translation})
}

// note records a remark.
func (r recorder) note(text string) {
	r.recordEvent(&capture.Event{Kind: capture.KindNote, Data: []byte(text)})
}

// recordEOF records the end of one direction.
func (r recorder) recordEOF(dir capture.Dir) {
	r.recordEvent(&capture.Event{Kind: capture.KindEOF, Dir: dir})
}

// recordExchangeEnd records the end of the HTTP exchange. why is "" for the normal end.
func (r recorder) recordExchangeEnd(why string) {
	e := capture.Event{Kind: capture.KindEnd}
	if why != "" {
		e.Data = []byte(why)
	}
	r.recordEvent(&e)
}

// stderr returns a writer that records the standard error of a process. The caller must close it.
func (r recorder) stderr() io.WriteCloser {
	if r.recording == nil {
		return struct {
			io.Writer
			io.Closer
		}{io.Discard, io.NopCloser(nil)}
	}
	return textlines.New(r.recording.out.Record, capture.Event{Kind: capture.KindStderr, Side: r.side, Session: r.session})
}

// Keys of context values.
type (
	// recorderKey is the key of the recorder of an upstream.
	recorderKey struct{}
	// postKey is the key of the *postedMessage of a request.
	postKey struct{}
	// requestKey is the key of the *upstreamRequest.
	requestKey struct{}
	// exchangeKey is the key of the *exchange of a client.
	exchangeKey struct{}
)

// Recorder returns a function that records events of the connection for which [Options.Connect] was
// called with ctx, such as the start and exit of its process. The function may be called by many
// goroutines at once. It does nothing if the bridge does not record.
func Recorder(ctx context.Context) func(*capture.Event) {
	rec := recorderFrom(ctx)
	return func(e *capture.Event) { rec.recordEvent(e) }
}

func recorderFrom(ctx context.Context) recorder {
	rec, _ := ctx.Value(recorderKey{}).(recorder)
	return rec
}

// transmit records a message and sends it. Over HTTP [Transport] records it.
func (c *connection) transmit(it queuedMessage) error {
	transport, ok := c.f.(rpc.MessageTransport)
	if !ok {
		c.u.rec.recordSent(capture.ToServer, it.frame, it.from)
		return c.f.WriteFrame(it.frame)
	}
	return transport.Post(c.postContext(it), it.frame)
}

// postContext returns the context of the HTTP requests for a message.
func (c *connection) postContext(it queuedMessage) context.Context {
	ctx := context.WithoutCancel(c.u.ctx) // for the values
	if it.noLogin {
		ctx = oauth.WithoutLogin(ctx)
	}
	return context.WithValue(context.WithValue(ctx, postKey{}, &postedMessage{queuedMessage: it}), recorderKey{}, c.u.rec)
}

// A postedMessage is a message that is sent over HTTP. If its stream breaks off, it needs several
// requests.
type postedMessage struct {
	queuedMessage
	// lastRequest is the latest request, or nil. Only the goroutine that makes the requests uses
	// it.
	lastRequest *upstreamRequest
}

// An origin says where a message of the server came from: the recorder, and the request whose
// response had the message.
type origin struct {
	rec    recorder
	callID jsonrpc.ID
	// request is nil if unknown.
	request *upstreamRequest
}

// answered says that the response message of the request was handled.
func (o origin) answered() {
	if o.request != nil {
		o.request.answered()
	}
}

// A receiver is a connection of streamable.Transport. Receive is ReadFrame, and also returns the
// context of the HTTP request whose response contained the frame, or that failed the call. The
// context is nil with other errors. It has the values of the context that the request was posted
// with, or of Connect's for the connection's own requests, and those that the round tripper added.
type receiver interface {
	Receive() (frame []byte, from context.Context, err error)
}

// receive reads the next message and its origin, which may be known for an error too.
func (c *connection) receive() ([]byte, origin, error) {
	o := origin{rec: c.u.rec}
	r, ok := c.f.(receiver)
	if !ok {
		frame, err := c.f.ReadFrame()
		return frame, o, err
	}
	frame, from, err := r.Receive()
	if from == nil {
		return frame, o, err
	}
	return frame, c.originIn(from), err
}

// originIn returns the origin of a message from the context of its HTTP request.
func (c *connection) originIn(ctx context.Context) origin {
	o := origin{rec: c.u.rec}
	if t, ok := ctx.Value(requestKey{}).(*upstreamRequest); ok {
		o.request, o.rec = t, t.recorderOr(c.u.rec)
	}
	if p, ok := ctx.Value(postKey{}).(*postedMessage); ok {
		o.callID = p.id
	}
	return o
}

// OuterTransport returns a round tripper that uses next. Wrap it around the round trippers that
// change requests on their way to [Transport], for example to add credentials. It relates their
// responses to the original request.
func OuterTransport(next http.RoundTripper) http.RoundTripper { return outerTransport{next} }

type outerTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o outerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if rec := recorderFrom(r.Context()).recording; rec == nil || !rec.isWatched() && isBrief(r.Method, r.Header) {
		return o.next.RoundTrip(r)
	}
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, new(upstreamRequest)))
	resp, err := o.next.RoundTrip(r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// Transport returns a round tripper that uses next. If the bridge records, it records the head and
// the message of the request, and the head and the end of the response. Put it below round trippers
// that add credentials or retry. It may be used by many goroutines at once if next may.
func Transport(next http.RoundTripper) http.RoundTripper { return recordingTransport{next} }

type recordingTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (rt recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := recorderFrom(r.Context())
	if rec.recording == nil {
		return rt.next.RoundTrip(r)
	}
	req, outer := r.Context().Value(requestKey{}).(*upstreamRequest)
	posted, _ := r.Context().Value(postKey{}).(*postedMessage)
	if !outer && !rec.recording.isWatched() && isBrief(r.Method, r.Header) {
		if posted != nil {
			rec.recordSent(capture.ToServer, posted.frame, posted.from)
		}
		return rt.next.RoundTrip(r)
	}
	rec.exchange = rec.recording.exchanges.Add(1)
	if !outer {
		req = new(upstreamRequest)
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, req))
	}
	req.start(rec, posted)
	rec.recordEvent(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: httphead.ClientRequest(r)})
	if posted != nil && r.Method == http.MethodPost {
		rec.recordSent(capture.ToServer, posted.frame, posted.from)
	}
	resp, err := rt.next.RoundTrip(r)
	if err != nil {
		req.responseEnded(endReason(err), false)
		return nil, err
	}
	rec.recordEvent(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: httphead.Response(resp)})
	resp.Body = &recordedBody{ReadCloser: resp.Body, request: req, hasAnswer: resp.StatusCode != http.StatusAccepted}
	if !outer {
		resp.Request = r
	}
	return resp, nil
}

// An upstreamRequest is an HTTP request to the server, with its retries. Its end is recorded after
// the message in its response, which is read earlier but handled later.
type upstreamRequest struct {
	mu sync.Mutex
	// rec has the latest exchange.
	rec          recorder
	awaitsAnswer bool
	// endPending reports that the response has ended, for the reason why, and that this is not
	// recorded yet.
	endPending bool
	why        string
	// previous is the request that this one continues; nil if its end was recorded.
	previous *upstreamRequest
}

// start says that the request is about to be sent, for p, which may be nil.
func (ur *upstreamRequest) start(rec recorder, p *postedMessage) {
	ur.mu.Lock()
	defer ur.mu.Unlock()
	ur.recordEndLocked()
	ur.rec, ur.awaitsAnswer = rec, p != nil && p.id != nil
	if p != nil && p.lastRequest != ur {
		ur.previous, p.lastRequest = p.lastRequest, ur
	}
}

// recorderOr returns the recorder with the exchange of the request, or rec.
func (ur *upstreamRequest) recorderOr(rec recorder) recorder {
	ur.mu.Lock()
	defer ur.mu.Unlock()
	if ur.rec.exchange != 0 {
		return ur.rec
	}
	return rec
}

// responseEnded handles the end of the response. whole says that the response is complete and has a
// message that must be handled first.
func (ur *upstreamRequest) responseEnded(why string, whole bool) {
	ur.mu.Lock()
	defer ur.mu.Unlock()
	ur.endPending, ur.why = true, why
	if !whole || !ur.awaitsAnswer || !ur.rec.recording.addPendingEnd(ur) {
		ur.recordEndLocked()
	}
}

// answered records the end of the request, after those of the requests that it continues.
func (ur *upstreamRequest) answered() {
	ur.mu.Lock()
	previous := ur.previous
	ur.previous = nil
	ur.mu.Unlock()
	if previous != nil {
		previous.answered()
	}
	ur.mu.Lock()
	defer ur.mu.Unlock()
	ur.awaitsAnswer = false
	ur.recordEndLocked()
}

func (ur *upstreamRequest) recordEndLocked() {
	if ur.endPending {
		ur.rec.recordExchangeEnd(ur.why)
		ur.rec.recording.removePendingEnd(ur)
		ur.endPending = false
	}
}

// maxPendingEnds limits the ends that wait for their messages.
const maxPendingEnds = 1 << 14

// addPendingEnd adds a request whose end is not recorded yet. It reports false if there are too
// many.
func (r *Recording) addPendingEnd(t *upstreamRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pendingEnds) >= maxPendingEnds {
		return false
	}
	r.pendingEnds[t] = struct{}{}
	return true
}

func (r *Recording) removePendingEnd(t *upstreamRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pendingEnds, t)
}

// flushEnds records the pending ends of a session that has ended.
func (r recorder) flushEnds() {
	if r.recording == nil {
		return
	}
	r.recording.mu.Lock()
	pending := slices.Collect(maps.Keys(r.recording.pendingEnds))
	r.recording.mu.Unlock()
	for _, t := range pending {
		if t.recorderOr(r).session == r.session {
			t.answered()
		}
	}
}

// endReason returns the reason for the end of an exchange; "" is the normal end.
func endReason(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return ""
	case errors.Is(err, context.Canceled):
		return clientClosed
	}
	text := err.Error()
	return "the server: " + text[:min(len(text), 300)]
}

// clientClosed is the reason if the client gave up.
const clientClosed = "client closed"

// A recordedBody is the io.ReadCloser of a response. It records the end.
type recordedBody struct {
	io.ReadCloser
	request   *upstreamRequest
	hasAnswer bool
	once      sync.Once
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(func() { b.request.responseEnded(endReason(err), b.hasAnswer && errors.Is(err, io.EOF)) })
	}
	return n, err
}

func (b *recordedBody) Close() error {
	b.once.Do(func() { b.request.responseEnded(clientClosed, false) })
	return b.ReadCloser.Close()
}

// Recorded wraps a handler of [Bridge.Handler] or of the HTTP+SSE transport. If the bridge records,
// it records the heads of requests and responses.
func (b *Bridge) Recorded(h http.Handler) http.Handler {
	return b.recording.Handler(h)
}

// Handler wraps a handler of the gateway. It records the heads of requests and responses.
func (r *Recording) Handler(h http.Handler) http.Handler {
	if r == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.isWatched() && isBrief(req.Method, req.Header) {
			h.ServeHTTP(w, req) // its messages are recorded without an exchange
			return
		}
		x := &exchange{rec: recorder{recording: r, side: capture.Downstream, exchange: r.exchanges.Add(1)}, r: req, head: httphead.ServerRequest(req)}
		defer x.handlerReturned()
		h.ServeHTTP(&recordedWriter{ResponseWriter: w, x: x}, req.WithContext(context.WithValue(req.Context(), exchangeKey{}, x)))
	})
}

// An exchange is an HTTP request of a client. Its request is recorded when the session is known,
// and messages to the client after the head of the response.
type exchange struct {
	mu sync.Mutex
	// r is the request, and head its head. They are nil after the end.
	r    *http.Request
	head *capture.Request
	// rec has session 0 until the session is known.
	rec             recorder
	requestRecorded bool
	// legacyStream marks the stream of the HTTP+SSE transport, which carries all messages to the
	// session. It does not change after the exchange is shared.
	legacyStream     bool
	responseRecorded bool
	ended            bool
	hijacked         bool
	endpointRecorded bool
	postponed        *postponedHead
	pending          []pendingMessage
}

// A pendingMessage waits for the head of the response.
type pendingMessage struct {
	rec   recorder
	frame []byte
	from  Provenance
}

// in returns the recorder of a client for a message that came with ctx.
func (r recorder) in(ctx context.Context) recorder {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x.begin(r.session)
	}
	return r
}

// begin sets the session of the exchange and returns its recorder.
func (x *exchange) begin(session uint64) recorder {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.requestRecorded && x.r.Method == http.MethodGet {
		x.legacyStream = true
		x.rec.recording.setStream(session, x)
	}
	x.beginLocked(session)
	rec := x.rec
	rec.served = x
	return rec
}

func (x *exchange) beginLocked(session uint64) {
	if x.requestRecorded {
		return
	}
	x.requestRecorded, x.rec.session = true, session
	x.rec.recordEvent(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: x.head})
}

// queue keeps a message for the client until the head of the response is recorded. It reports false
// if that was recorded, or the exchange has ended.
func (x *exchange) queue(rec recorder, frame []byte, from Provenance) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.responseRecorded || x.ended {
		return false
	}
	x.pending = append(x.pending, pendingMessage{rec, frame, from})
	return true
}

// flushLocked records the pending messages.
func (x *exchange) flushLocked() {
	for _, m := range x.pending {
		m.rec.served = nil
		m.rec.recordSent(capture.ToClient, m.frame, m.from)
	}
	x.pending = nil
}

// recordResponse records the head of the response.
func (x *exchange) recordResponse(status int, h http.Header) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.responseRecorded || x.ended || status < http.StatusOK {
		return
	}
	response := &capture.Response{Status: status, Proto: x.r.Proto, Headers: httphead.Headers(h, x.r.ProtoMajor == 2)}
	if !x.requestRecorded && status == http.StatusAccepted && x.r.Method == http.MethodPost {
		x.postponed = &postponedHead{response: response}
		return
	}
	rec, id := x.rec.recording, x.r.Header.Get("Mcp-Session-Id")
	x.beginLocked(rec.sessionOf(id))
	x.responseRecorded = true
	x.rec.recordEvent(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: response})
	if newID := h.Get("Mcp-Session-Id"); newID != "" && id == "" {
		rec.nameSession(newID, x.rec.session)
	}
	if x.r.Method == http.MethodGet && status == http.StatusOK && !x.legacyStream {
		rec.setStream(x.rec.session, x)
	}
	x.flushLocked()
}

// handlerReturned is called when the handler has returned.
func (x *exchange) handlerReturned() {
	x.mu.Lock()
	hijacked := x.hijacked
	x.mu.Unlock()
	if hijacked {
		return // the end of the connection is recorded
	}
	why := ""
	if x.r.Context().Err() != nil {
		why = clientClosed
	}
	x.recordEnd(why)
}

// recordEnd records the end of the exchange, once.
func (x *exchange) recordEnd(why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ended:
		return
	case x.postponed != nil:
		x.postponed.ended, x.postponed.why = true, why
		return
	}
	x.beginLocked(x.rec.recording.sessionOf(x.r.Header.Get("Mcp-Session-Id")))
	x.flushLocked()
	x.ended = true
	x.rec.recordExchangeEnd(why)
	x.rec.recording.clearStream(x.rec.session, x)
	x.r, x.head = nil, nil // a session keeps the context of its first request
}

// isEnded reports if the exchange has ended.
func (x *exchange) isEnded() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended
}

// outbound returns the recorder for a message to the client of r: with its exchange, or with the
// standing stream of the session.
func (r recorder) outbound() recorder {
	if r.recording == nil {
		return r
	}
	r.recording.mu.Lock()
	x := r.recording.streams[r.session]
	r.recording.mu.Unlock()
	if r.served != nil && !r.served.isEnded() && (x == nil || !x.legacyStream) {
		return r
	}
	r.exchange, r.served = 0, nil
	if x != nil {
		r.exchange = x.rec.exchange // exchange does not change
	}
	return r
}

// maxSessionIDs limits the sessions that are remembered by their ids.
const maxSessionIDs = 4096

func (r *Recording) nameSession(id string, session uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessionByID.put(id, session)
}

// sessionOf returns the session with an id, or 0.
func (r *Recording) sessionOf(id string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessionByID.byName[id]
}

// setStream records the standing stream of a session.
func (r *Recording) setStream(session uint64, x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[session] = x
}

func (r *Recording) clearStream(session uint64, x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams[session] == x {
		delete(r.streams, session)
	}
}

// A recordedWriter is an http.ResponseWriter that records the head of the response.
type recordedWriter struct {
	http.ResponseWriter
	x *exchange
}

func (w *recordedWriter) WriteHeader(status int) {
	w.x.recordResponse(status, w.Header())
	w.ResponseWriter.WriteHeader(status)
}

func (w *recordedWriter) Write(p []byte) (int, error) {
	w.x.recordResponse(http.StatusOK, w.Header())
	w.x.recordEndpoint(p)
	return w.ResponseWriter.Write(p)
}

// WriteAndFlush is for [httpserve.WriteAndFlush].
func (w *recordedWriter) WriteAndFlush(p []byte) error {
	w.x.recordResponse(http.StatusOK, w.Header())
	w.x.recordEndpoint(p)
	return httpserve.WriteAndFlush(w.ResponseWriter, p)
}

// SetReadDeadline supports http.ResponseController, and callers that need none.
func (w *recordedWriter) SetReadDeadline(t time.Time) error {
	if d, ok := w.ResponseWriter.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(t)
}

// FlushError supports http.ResponseController.
func (w *recordedWriter) FlushError() error {
	w.x.recordResponse(http.StatusOK, w.Header())
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack supports http.ResponseController.
func (w *recordedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.x.mu.Lock()
	w.x.hijacked = true
	w.x.mu.Unlock()
	return &recordedConn{Conn: conn, x: w.x}, buf, nil
}

// Unwrap supports http.ResponseController.
func (w *recordedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A recordedConn is a hijacked net.Conn. Its end is the end of the exchange.
type recordedConn struct {
	net.Conn
	x *exchange
}

// Read implements net.Conn. The client sends nothing more, so an error means that it is gone.
func (c *recordedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.x.recordEnd(clientClosed)
	}
	return n, err
}

func (c *recordedConn) Close() error {
	c.x.recordEnd("")
	return c.Conn.Close()
}

// In the HTTP+SSE transport, a stream has the address where the client posts messages, and the
// response to a post is 202 before the bridge gets the message.

// A postponedHead is the head of a response whose request is not recorded yet, because the session
// is unknown.
type postponedHead struct {
	response *capture.Response
	ended    bool
	why      string
}

// requestReceived records a postponed head after the message of the request.
func (x *exchange) requestReceived() {
	x.mu.Lock()
	head := x.postponed
	x.postponed = nil
	if head != nil {
		x.responseRecorded = true
		x.rec.recordEvent(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: head.response})
	}
	x.mu.Unlock()
	if head != nil && head.ended {
		x.recordEnd(head.why)
	}
}

// recordEndpoint records the endpoint event that begins a stream.
func (x *exchange) recordEndpoint(text []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.legacyStream || x.endpointRecorded {
		return
	}
	x.endpointRecorded = true
	e, err := sse.NewReader(bytes.NewReader(text), len(text)).Read()
	if err == nil && e.Name == "endpoint" {
		x.rec.recordEvent(&capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, Data: bytes.Clone(e.Data), SSE: &capture.SSE{Event: e.Name, HasData: true}})
	}
}

// ClientRecorder returns a recorder for a new client.
func (r *Recording) ClientRecorder() *ClientRecorder {
	if r == nil {
		return nil
	}
	return &ClientRecorder{r.newRecorder(capture.Downstream)}
}

// A ClientRecorder records the messages of one client of a gateway. A nil ClientRecorder records
// nothing. Its methods may be called by many goroutines at once.
type ClientRecorder struct{ rec recorder }

// Received records a message of the client that came with ctx.
func (l *ClientRecorder) Received(ctx context.Context, frame []byte) *Origin {
	if l == nil {
		return nil
	}
	o := &Origin{rec: l.rec.in(ctx)}
	o.event = o.rec.recordMessage(capture.ToServer, frame)
	return o
}

// Sent records a message that is about to be sent to the client and belongs to no request.
func (l *ClientRecorder) Sent(frame []byte, from Provenance) {
	if l != nil {
		l.rec.outbound().recordSent(capture.ToClient, frame, from)
	}
}

// End records that the client sends no more messages.
func (l *ClientRecorder) End() {
	if l != nil {
		l.rec.recordEOF(capture.ToServer)
	}
}

// An Origin is a recorded message of a client. A nil Origin is a message that was not recorded.
type Origin struct {
	rec   recorder
	event uint64

	mu sync.Mutex
	// answer is the provenance of the bridge's response.
	answer Provenance
}

// Sent records a message that is about to be sent to the client on the stream of the request.
func (o *Origin) Sent(frame []byte, from Provenance) {
	if o != nil {
		o.outbound().recordSent(capture.ToClient, frame, from)
	}
}

// outbound returns the recorder for a message on the stream of the request. Without an exchange,
// that is not the standing stream of the session.
func (o *Origin) outbound() recorder {
	if o.rec.served == nil {
		return o.rec
	}
	return o.rec.outbound()
}

// Answered records the response that is about to be sent. rule names the reason if no bridge
// answered the request.
func (o *Origin) Answered(frame []byte, rule string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	from := o.answer
	o.mu.Unlock()
	if from.event == 0 {
		from = Provenance{rec: o.rec, event: o.event, rule: rule}
	}
	o.outbound().recordSent(capture.ToClient, frame, from)
}

func (o *Origin) setAnswer(from Provenance) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = from
}

// A ProvenanceSender is an rpc.Sender that learns from which message of a server each message was
// made. A bridge with Options.Recording calls SendFrom in place of Send.
type ProvenanceSender interface {
	rpc.Sender
	SendFrom(message []byte, from Provenance) error
}

// originKey is the context key of the *Origin of a message.
type originKey struct{}

// WithOrigin returns a context for a message of a client that is forwarded to a bridge.
func WithOrigin(ctx context.Context, o *Origin) context.Context {
	if o == nil {
		return ctx
	}
	return context.WithValue(ctx, originKey{}, o)
}

func originOf(ctx context.Context) *Origin {
	o, _ := ctx.Value(originKey{}).(*Origin)
	return o
}

// receive records a message of the client that came with ctx, unless a gateway did. It returns the
// recorder and the event, and the origin, which is nil without a gateway.
func (cl *client) receive(ctx context.Context, frame []byte) (rec recorder, event uint64, o *Origin) {
	if !cl.b.behindGateway() {
		rec = cl.rec.in(ctx)
		return rec, rec.recordMessage(capture.ToServer, frame), nil
	}
	if o = originOf(ctx); o != nil {
		return o.rec, o.event, o
	}
	return cl.rec, 0, nil
}

// behindGateway reports if the clients' side is recorded by the gateway.
func (b *Bridge) behindGateway() bool { return b.opts.Recording != nil }

// sendFrom sends a message with its provenance, if the sender wants it.
func sendFrom(out rpc.Sender, frame []byte, from Provenance) error {
	if s, ok := out.(ProvenanceSender); ok {
		return s.SendFrom(frame, from)
	}
	return out.Send(frame)
}

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

	"mcpwire/auth"
	"mcpwire/capture"
	"mcpwire/internal/net/sse"
	"mcpwire/internal/trace/httphead"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// The directions of a capture.
const (
	toServer = capture.ToServer
	toClient = capture.ToClient
)

// A recording is the capture that lanes write to, and what they count. Its methods may be called by many goroutines at once.
type recording struct {
	out                 *capture.Writer
	sessions, exchanges atomic.Uint64

	mu          sync.Mutex
	sessionByID map[string]uint64             // sessions of HTTP, by the protocol's id
	sessionIDs  []string                      // the keys of sessionByID, the oldest first
	pendingEnds map[*upstreamRequest]struct{} // whose end has not been recorded yet
	streams     map[uint64]*exchange          // what brings a session what belongs to none of its requests
}

// newRecording returns nil if there is nothing to record to.
func newRecording(out *capture.Writer) *recording {
	if out == nil {
		return nil
	}
	return &recording{out: out, sessionByID: map[string]uint64{}, streams: map[uint64]*exchange{}, pendingEnds: map[*upstreamRequest]struct{}{}}
}

// newRecorder returns a lane of its own for a connection on a side.
func (r *recording) newRecorder(side capture.Side) recorder {
	if r == nil {
		return recorder{}
	}
	return recorder{recording: r, side: side, session: r.sessions.Add(1)}
}

// A lane records one connection of a capture: a client's, or one to the server. The zero lane records nothing.
type recorder struct {
	recording *recording
	side      capture.Side
	session   uint64
	exchange  uint64    // of HTTP, if it is of one
	served    *exchange // that exchange, if it is one of a client's
}

// provenance is what a message was made of.
type provenance struct {
	rec        recorder
	event      uint64   // an event; 0 is none
	moreEvents []uint64 // further ones
	rule       string   // what was done to it
}

// recordEvent records something that happened, and returns its number; 0 if nothing is recorded.
func (r recorder) recordEvent(e *capture.Event) uint64 {
	if r.recording == nil {
		return 0
	}
	e.Side, e.Session, e.Exchange = r.side, r.session, r.exchange
	return r.recording.out.Record(e)
}

// recordMessage records a message that came, and returns the number of its event.
func (r recorder) recordMessage(dir capture.Dir, frame []byte) uint64 {
	if r.recording == nil {
		return 0
	}
	n := r.recordEvent(&capture.Event{Kind: capture.KindMessage, Dir: dir, Data: frame})
	if r.served != nil && dir == toServer {
		r.served.requestReceived()
	}
	return n
}

// recordSent records a message that is about to be sent, and what it was made of.
func (r recorder) recordSent(dir capture.Dir, frame []byte, from provenance) {
	if r.recording == nil {
		return
	}
	if r.served != nil && r.served.queue(r, frame, from) {
		return // until the head of the response is there
	}
	n := r.recordMessage(dir, frame)
	from.rec.link(from.event, n, from.rule)
	for _, event := range from.moreEvents {
		from.rec.link(event, n, from.rule)
	}
}

// link notes that an event has become another one.
func (r recorder) link(from, to uint64, rule string) {
	if r.recording != nil && from != 0 && to != 0 {
		r.recording.out.Record(&capture.Event{Kind: capture.KindTranslate, Session: r.session, Translation: &capture.Translation{Of: from, To: []uint64{to}, Rule: rule}})
	}
}

// note records a remark.
func (r recorder) note(text string) {
	r.recordEvent(&capture.Event{Kind: capture.KindNote, Data: []byte(text)})
}

// recordEOF records that one of the two sides sends nothing more.
func (r recorder) recordEOF(dir capture.Dir) {
	r.recordEvent(&capture.Event{Kind: capture.KindEOF, Dir: dir})
}

// stderr returns what records the standard error of a server's process. It must be closed.
func (r recorder) stderr() io.WriteCloser {
	if r.recording == nil {
		return discard{}
	}
	return r.recording.out.Lines(capture.Event{Kind: capture.KindStderr, Side: r.side, Session: r.session})
}

// discard is an io.WriteCloser that throws everything away.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

// Keys of what contexts carry.
type (
	recorderKey struct{} // the lane of a connection to the server
	postKey     struct{} // the posting that a request is for
	requestKey  struct{} // the trip that it is
	exchangeKey struct{} // the exchange in which a client is served
)

// Recorder returns what records an event about the connection that [Options.Connect] is called for with ctx: that its process was started, and how it ended. It may be called by many
// goroutines at once, and does nothing if nothing is recorded.
func Recorder(ctx context.Context) func(*capture.Event) {
	rec := recorderFrom(ctx)
	return func(e *capture.Event) { rec.recordEvent(e) }
}

func recorderFrom(ctx context.Context) recorder {
	rec, _ := ctx.Value(recorderKey{}).(recorder)
	return rec
}

// transmit sends a message, and records it. What is sent over HTTP is recorded when its request is made.
func (u *upstream) transmit(f jsonrpc.Framer, it queuedMessage) error {
	courier, ok := f.(jsonrpc.MessageTransport)
	if !ok {
		u.rec.recordSent(toServer, it.frame, it.from)
		return f.WriteFrame(it.frame)
	}
	ctx := context.WithoutCancel(u.ctx) // its values are for what makes the request
	if it.noLogin {
		ctx = auth.WithoutLogin(ctx)
	}
	ctx = context.WithValue(context.WithValue(ctx, postKey{}, &postedMessage{queuedMessage: it}), recorderKey{}, u.rec)
	return courier.Post(ctx, it.frame)
}

// A posting is a message that is sent over HTTP. If the stream that is to bring its answer breaks off, it has more than one trip.
type postedMessage struct {
	queuedMessage
	lastRequest *upstreamRequest // nil before there is one. It is for whoever makes the requests, one after the other
}

// An origin is where a message of the server's came: in which lane, and in answer to which request, if it came by the response of one.
type origin struct {
	rec     recorder
	callID  jsonrpc.ID
	request *upstreamRequest // nil if it is not known
}

// answered says that what the response is for has come.
func (o origin) answered() {
	if o.request != nil {
		o.request.answered()
	}
}

// receive reads the next message. What is known of where an error came from is said, too.
func (u *upstream) receive(f jsonrpc.Framer) ([]byte, origin, error) {
	o := origin{rec: u.rec}
	r, ok := f.(streamable.Receiver)
	if !ok {
		frame, err := f.ReadFrame()
		return frame, o, err
	}
	frame, from, err := r.Receive()
	if from == nil {
		return frame, o, err
	}
	if t, ok := from.Value(requestKey{}).(*upstreamRequest); ok {
		o.request, o.rec = t, t.recorderOr(u.rec)
	}
	if p, ok := from.Value(postKey{}).(*postedMessage); ok {
		o.callID = p.id
	}
	return frame, o, err
}

// OuterTransport returns a round tripper that makes requests by next, and lets what comes in the responses be told apart, where next changes what it passes on to the one of [Transport]: it adds
// credentials, say.
func OuterTransport(next http.RoundTripper) http.RoundTripper { return outerTransport{next} }

type outerTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o outerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if recorderFrom(r.Context()).recording == nil {
		return o.next.RoundTrip(r)
	}
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, new(upstreamRequest)))
	resp, err := o.next.RoundTrip(r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// Transport returns a round tripper that makes requests by next and, if they are of a bridge that records, records what passes before it does: the head of the request, the message that
// it brings, the head of the response, and its end. It belongs below whatever adds credentials and repeats requests. It may be used by many goroutines at once, if next may.
func Transport(next http.RoundTripper) http.RoundTripper { return recordingTransport{next} }

type recordingTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (rt recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := recorderFrom(r.Context())
	if rec.recording == nil {
		return rt.next.RoundTrip(r)
	}
	rec.exchange = rec.recording.exchanges.Add(1)
	req, outer := r.Context().Value(requestKey{}).(*upstreamRequest)
	if !outer {
		req = new(upstreamRequest)
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, req))
	}
	posted, _ := r.Context().Value(postKey{}).(*postedMessage)
	req.start(rec, posted)
	rec.recordEvent(&capture.Event{Kind: capture.KindRequest, Dir: toServer, Request: httphead.ClientRequest(r)})
	if posted != nil && r.Method == http.MethodPost {
		rec.recordSent(toServer, posted.frame, posted.from)
	}
	resp, err := rt.next.RoundTrip(r)
	if err != nil {
		req.responseEnded(endReason(err), false)
		return nil, err
	}
	rec.recordEvent(&capture.Event{Kind: capture.KindResponse, Dir: toClient, Response: httphead.Response(resp)})
	resp.Body = &recordedBody{ReadCloser: resp.Body, request: req, hasAnswer: resp.StatusCode != http.StatusAccepted}
	if !outer {
		resp.Request = r
	}
	return resp, nil
}

// A trip is a request to the server over HTTP, with its repetitions. That it is over is recorded behind the answer that it brings, which is read before but looked at later.
type upstreamRequest struct {
	mu           sync.Mutex
	rec          recorder // with the exchange that there was last
	awaitsAnswer bool     // for the answer
	pendingEnd   *capture.Event
	previous     *upstreamRequest // which this one goes on with; nil if there is none, or its end was recorded
}

// start says that a request is about to be made, for p, which may be nil.
func (ur *upstreamRequest) start(rec recorder, p *postedMessage) {
	ur.mu.Lock()
	defer ur.mu.Unlock()
	ur.recordEndLocked()
	ur.rec, ur.awaitsAnswer = rec, p != nil && p.id != nil
	if p != nil && p.lastRequest != ur {
		ur.previous, p.lastRequest = p.lastRequest, ur
	}
}

// recorderOr returns the lane with the exchange of the trip, if it has one.
func (ur *upstreamRequest) recorderOr(rec recorder) recorder {
	ur.mu.Lock()
	defer ur.mu.Unlock()
	if ur.rec.exchange != 0 {
		return ur.rec
	}
	return rec
}

// responseEnded takes note of the end of the response. whole tells that it ended as it should, with an answer that is still to be looked at.
func (ur *upstreamRequest) responseEnded(why string, whole bool) {
	ur.mu.Lock()
	defer ur.mu.Unlock()
	ur.pendingEnd = &capture.Event{Kind: capture.KindEnd}
	if why != "" {
		ur.pendingEnd.Data = []byte(why)
	}
	if !whole || !ur.awaitsAnswer || !ur.rec.recording.addPendingEnd(ur) {
		ur.recordEndLocked()
	}
}

// answered records the end, if it waits, and before it those of the trips that this one goes on with.
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
	if ur.pendingEnd != nil {
		ur.rec.recordEvent(ur.pendingEnd)
		ur.rec.recording.removePendingEnd(ur)
		ur.pendingEnd = nil
	}
}

// maxPendingEnds is how many ends of exchanges wait for their answers.
const maxPendingEnds = 1 << 14

// addPendingEnd notes that the end of a trip has not been recorded yet. It reports false if there are too many of them.
func (r *recording) addPendingEnd(t *upstreamRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pendingEnds) >= maxPendingEnds {
		return false
	}
	r.pendingEnds[t] = struct{}{}
	return true
}

func (r *recording) removePendingEnd(t *upstreamRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pendingEnds, t)
}

// flushEnds records the ends that wait in a lane which has ended.
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

// endReason is why an exchange is over; "" is the normal end.
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

// clientClosed is why an exchange is over that whoever asked has given up.
const clientClosed = "client closed"

// A recordedBody records when a response has ended.
type recordedBody struct {
	io.ReadCloser
	request   *upstreamRequest
	hasAnswer bool // an answer
	once      sync.Once
}

// Read implements io.Reader.
func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(func() { b.request.responseEnded(endReason(err), b.hasAnswer && errors.Is(err, io.EOF)) })
	}
	return n, err
}

// Close implements io.Closer.
func (b *recordedBody) Close() error {
	b.once.Do(func() { b.request.responseEnded(clientClosed, false) })
	return b.ReadCloser.Close()
}

// Recorded returns a handler that does what h does, which is one of [Bridge.Handler], or that of its older transport. If the bridge records, it records the heads of what clients
// ask and are answered there, which the bridge itself does not see.
func (b *Bridge) Recorded(h http.Handler) http.Handler {
	if b.recording == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{rec: recorder{recording: b.recording, side: capture.Downstream, exchange: b.recording.exchanges.Add(1)}, r: r, head: httphead.ServerRequest(r)}
		defer x.handlerReturned()
		h.ServeHTTP(&recordedWriter{ResponseWriter: w, x: x}, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	})
}

// An exchange is one of HTTP in which a client is served. Its request is recorded as soon as it is known whose it is, and messages to the client when the head of the response has been.
type exchange struct {
	r    *http.Request
	head *capture.Request

	mu               sync.Mutex
	rec              recorder // whose session is 0 as long as nobody is known
	requestRecorded  bool     // the head of the request was recorded
	legacyStream     bool     // it is the stream of the older transport, which brings all that the session is sent. It does not change once others know of the exchange
	responseRecorded bool     // that of the response
	ended            bool
	hijacked         bool // the connection is not net/http's any more
	endpointRecorded bool // the stream of the older transport has begun
	postponed        *postponedHead
	pending          []pendingMessage
}

// A pendingMessage is one that waits for the head of the response.
type pendingMessage struct {
	rec   recorder
	frame []byte
	from  provenance
}

// recorderIn returns the lane in which a client sends what came with ctx.
func (cl *client) recorderIn(ctx context.Context) recorder {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x.begin(cl.rec.session)
	}
	return cl.rec
}

// begin says whose exchange it is. It returns its lane.
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
	x.rec.recordEvent(&capture.Event{Kind: capture.KindRequest, Dir: toServer, Request: x.head})
}

// queue keeps a message for the client until the head of the response is recorded, and reports whether it does. It is recorded at once then, or in the place where the client gets it after
// all, if the exchange has ended.
func (x *exchange) queue(rec recorder, frame []byte, from provenance) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.responseRecorded || x.ended {
		return false
	}
	x.pending = append(x.pending, pendingMessage{rec, frame, from})
	return true
}

// flushLocked records what waits.
func (x *exchange) flushLocked() {
	for _, m := range x.pending {
		m.rec.served = nil
		m.rec.recordSent(toClient, m.frame, m.from)
	}
	x.pending = nil
}

// recordResponse records the head of the response.
func (x *exchange) recordResponse(status int, h http.Header) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.responseRecorded || x.ended || status < http.StatusOK || x.postponeHeadLocked(status, h) {
		return
	}
	rec, id := x.rec.recording, x.r.Header.Get("Mcp-Session-Id")
	x.beginLocked(rec.sessionOf(id))
	x.responseRecorded = true
	x.rec.recordEvent(&capture.Event{Kind: capture.KindResponse, Dir: toClient, Response: &capture.Response{
		Status: status, Proto: x.r.Proto, Headers: httphead.Headers(h, x.r.ProtoMajor == 2),
	}})
	if newID := h.Get("Mcp-Session-Id"); newID != "" && id == "" {
		rec.nameSession(newID, x.rec.session)
	}
	if x.r.Method == http.MethodGet && status == http.StatusOK && !x.legacyStream {
		rec.setStream(x.rec.session, x)
	}
	x.flushLocked()
}

// handlerReturned is called when the request has been served.
func (x *exchange) handlerReturned() {
	x.mu.Lock()
	hijacked := x.hijacked
	x.mu.Unlock()
	if hijacked {
		return // the connection's end is that of the exchange
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
	e := &capture.Event{Kind: capture.KindEnd}
	if why != "" {
		e.Data = []byte(why)
	}
	x.rec.recordEvent(e)
	x.rec.recording.clearStream(x.rec.session, x)
}

// isEnded reports whether nothing more can be sent by it.
func (x *exchange) isEnded() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended
}

// outbound returns the lane in which a message goes to the client of l: that of the exchange it belongs to, or of the session's own stream, if there is one.
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
		r.exchange = x.rec.exchange // which does not change
	}
	return r
}

// maxSessionIDs is how many sessions are remembered by their ids.
const maxSessionIDs = 4096

// nameSession notes which session has an id.
func (r *recording) nameSession(id string, session uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sessionIDs) >= maxSessionIDs {
		delete(r.sessionByID, r.sessionIDs[0])
		r.sessionIDs = append(r.sessionIDs[:0], r.sessionIDs[1:]...)
	}
	r.sessionByID[id] = session
	r.sessionIDs = append(r.sessionIDs, id)
}

// sessionOf returns the session with an id; 0 if it is not known.
func (r *recording) sessionOf(id string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessionByID[id]
}

// setStream notes what brings a session what belongs to none of its requests; leave that it does not any more.
func (r *recording) setStream(session uint64, x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[session] = x
}

func (r *recording) clearStream(session uint64, x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams[session] == x {
		delete(r.streams, session)
	}
}

// A recordedWriter tells its exchange of the head of the response.
type recordedWriter struct {
	http.ResponseWriter
	x *exchange
}

// WriteHeader implements http.ResponseWriter.
func (w *recordedWriter) WriteHeader(status int) {
	w.x.recordResponse(status, w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *recordedWriter) Write(p []byte) (int, error) {
	w.x.recordResponse(http.StatusOK, w.Header())
	w.x.recordEndpoint(p)
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *recordedWriter) FlushError() error {
	w.x.recordResponse(http.StatusOK, w.Header())
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack is for http.ResponseController.
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

// Unwrap is for http.ResponseController.
func (w *recordedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A recordedConn is a connection that was taken from net/http. Its exchange ends with it.
type recordedConn struct {
	net.Conn
	x *exchange
}

// Read implements net.Conn. A client that is served has nothing more to say: what is read is that it has gone.
func (c *recordedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.x.recordEnd(clientClosed)
	}
	return n, err
}

// Close implements net.Conn.
func (c *recordedConn) Close() error {
	c.x.recordEnd("")
	return c.Conn.Close()
}

// What is different on the older transport: a stream says where messages are to be posted, and a request that is posted there is answered with 202 before the bridge has got it.

// A postponedHead is the head of a response that was sent before it was known whose exchange it is in. What it answers goes before it in the capture.
type postponedHead struct {
	response *capture.Response
	ended    bool
	why      string
}

// postponeHeadLocked keeps the head of a response until somebody takes what it answers, and reports whether it does.
func (x *exchange) postponeHeadLocked(status int, h http.Header) bool {
	if x.requestRecorded || status != http.StatusAccepted || x.r.Method != http.MethodPost {
		return false
	}
	x.postponed = &postponedHead{response: &capture.Response{Status: status, Proto: x.r.Proto, Headers: httphead.Headers(h, x.r.ProtoMajor == 2)}}
	return true
}

// requestReceived records what was kept, now that the message is recorded.
func (x *exchange) requestReceived() {
	x.mu.Lock()
	head := x.postponed
	x.postponed = nil
	if head != nil {
		x.responseRecorded = true
		x.rec.recordEvent(&capture.Event{Kind: capture.KindResponse, Dir: toClient, Response: head.response})
	}
	x.mu.Unlock()
	if head != nil && head.ended {
		x.recordEnd(head.why)
	}
}

// recordEndpoint records the event that begins a stream: it says where messages are posted.
func (x *exchange) recordEndpoint(text []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.legacyStream || x.endpointRecorded {
		return
	}
	x.endpointRecorded = true
	e, err := sse.NewReader(bytes.NewReader(text), len(text)).Read()
	if err == nil && e.Name == "endpoint" {
		x.rec.recordEvent(&capture.Event{Kind: capture.KindSSE, Dir: toClient, Data: bytes.Clone(e.Data), SSE: &capture.SSE{Event: e.Name, HasData: true}})
	}
}

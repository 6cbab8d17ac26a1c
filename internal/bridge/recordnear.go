package bridge

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"

	"mcpwire/capture"
	"mcpwire/internal/httphead"
)

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

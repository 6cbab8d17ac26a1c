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
	if b.rec == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{lane: lane{rec: b.rec, side: capture.Near, exchange: b.rec.exchanges.Add(1)}, r: r, head: httphead.Received(r)}
		defer x.returned()
		h.ServeHTTP(&recordedWriter{ResponseWriter: w, x: x}, r.WithContext(context.WithValue(r.Context(), servedKey{}, x)))
	})
}

// An exchange is one of HTTP in which a client is served. Its request is recorded as soon as it is known whose it is, and messages to the client when the head of the response has been.
type exchange struct {
	r    *http.Request
	head *capture.Request

	mu     sync.Mutex
	lane   lane // whose session is 0 as long as nobody is known
	asked  bool // the head of the request was recorded
	opens  bool // it is the stream of the older transport, which brings all that the session is sent. It does not change once others know of the exchange
	headed bool // that of the response
	ended  bool
	taken  bool // the connection is not net/http's any more
	told   bool // the stream of the older transport has begun
	late   *lateHead
	kept   []keptMessage
}

// A keptMessage is one that waits for the head of the response.
type keptMessage struct {
	lane  lane
	frame []byte
	from  made
}

// laneIn returns the lane in which a client sends what came with ctx.
func (cl *client) laneIn(ctx context.Context) lane {
	if x, ok := ctx.Value(servedKey{}).(*exchange); ok {
		return x.begin(cl.lane.session)
	}
	return cl.lane
}

// begin says whose exchange it is. It returns its lane.
func (x *exchange) begin(session uint64) lane {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.asked && x.r.Method == http.MethodGet {
		x.opens = true
		x.lane.rec.stand(session, x)
	}
	x.beginLocked(session)
	l := x.lane
	l.web = x
	return l
}

func (x *exchange) beginLocked(session uint64) {
	if x.asked {
		return
	}
	x.asked, x.lane.session = true, session
	x.lane.event(&capture.Event{Kind: capture.KindRequest, Dir: toServer, Request: x.head})
}

// keep keeps a message for the client until the head of the response is recorded, and reports whether it does. It is recorded at once then, or in the place where the client gets it after
// all, if the exchange has ended.
func (x *exchange) keep(l lane, frame []byte, from made) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.headed || x.ended {
		return false
	}
	x.kept = append(x.kept, keptMessage{l, frame, from})
	return true
}

// releaseLocked records what waits.
func (x *exchange) releaseLocked() {
	for _, k := range x.kept {
		k.lane.web = nil
		k.lane.emit(toClient, k.frame, k.from)
	}
	x.kept = nil
}

// respond records the head of the response.
func (x *exchange) respond(status int, h http.Header) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.headed || x.ended || status < http.StatusOK || x.postponeLocked(status, h) {
		return
	}
	rec, id := x.lane.rec, x.r.Header.Get("Mcp-Session-Id")
	x.beginLocked(rec.sessionOf(id))
	x.headed = true
	x.lane.event(&capture.Event{Kind: capture.KindResponse, Dir: toClient, Response: &capture.Response{
		Status: status, Proto: x.r.Proto, Headers: httphead.Fields(h, x.r.ProtoMajor == 2),
	}})
	if opened := h.Get("Mcp-Session-Id"); opened != "" && id == "" {
		rec.opened(opened, x.lane.session)
	}
	if x.r.Method == http.MethodGet && status == http.StatusOK && !x.opens {
		rec.stand(x.lane.session, x)
	}
	x.releaseLocked()
}

// returned is called when the request has been served.
func (x *exchange) returned() {
	x.mu.Lock()
	taken := x.taken
	x.mu.Unlock()
	if taken {
		return // the connection's end is that of the exchange
	}
	why := ""
	if x.r.Context().Err() != nil {
		why = clientClosed
	}
	x.end(why)
}

// end records the end of the exchange, once.
func (x *exchange) end(why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ended:
		return
	case x.late != nil:
		x.late.ended, x.late.why = true, why
		return
	}
	x.beginLocked(x.lane.rec.sessionOf(x.r.Header.Get("Mcp-Session-Id")))
	x.releaseLocked()
	x.ended = true
	e := &capture.Event{Kind: capture.KindEnd}
	if why != "" {
		e.Data = []byte(why)
	}
	x.lane.event(e)
	x.lane.rec.leave(x.lane.session, x)
}

// isOver reports whether nothing more can be sent by it.
func (x *exchange) isOver() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended
}

// toward returns the lane in which a message goes to the client of l: that of the exchange it belongs to, or of the session's own stream, if there is one.
func (l lane) toward() lane {
	if l.rec == nil {
		return l
	}
	l.rec.mu.Lock()
	x := l.rec.standing[l.session]
	l.rec.mu.Unlock()
	if l.web != nil && !l.web.isOver() && (x == nil || !x.opens) {
		return l
	}
	l.exchange, l.web = 0, nil
	if x != nil {
		l.exchange = x.lane.exchange // which does not change
	}
	return l
}

// maxSessionIDs is how many sessions are remembered by their ids.
const maxSessionIDs = 4096

// opened notes which session has an id.
func (r *recording) opened(id string, session uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) >= maxSessionIDs {
		delete(r.byID, r.ids[0])
		r.ids = append(r.ids[:0], r.ids[1:]...)
	}
	r.byID[id] = session
	r.ids = append(r.ids, id)
}

// sessionOf returns the session with an id; 0 if it is not known.
func (r *recording) sessionOf(id string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// stand notes what brings a session what belongs to none of its requests; leave that it does not any more.
func (r *recording) stand(session uint64, x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standing[session] = x
}

func (r *recording) leave(session uint64, x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.standing[session] == x {
		delete(r.standing, session)
	}
}

// A recordedWriter tells its exchange of the head of the response.
type recordedWriter struct {
	http.ResponseWriter
	x *exchange
}

// WriteHeader implements http.ResponseWriter.
func (w *recordedWriter) WriteHeader(status int) {
	w.x.respond(status, w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *recordedWriter) Write(p []byte) (int, error) {
	w.x.respond(http.StatusOK, w.Header())
	w.x.named(p)
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *recordedWriter) FlushError() error {
	w.x.respond(http.StatusOK, w.Header())
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack is for http.ResponseController.
func (w *recordedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.x.mu.Lock()
	w.x.taken = true
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
		c.x.end(clientClosed)
	}
	return n, err
}

// Close implements net.Conn.
func (c *recordedConn) Close() error {
	c.x.end("")
	return c.Conn.Close()
}

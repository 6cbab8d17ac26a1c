package streamable

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"

	"mcpwire/auth"
	"mcpwire/internal/sse"
	"mcpwire/jsonrpc"
)

// An SSEHandler serves the transport that revision 2024-11-05 had, on two paths of its own
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse): a GET of one opens a stream, whose first event says where to
// post messages; all answers come by the stream, and when it ends, the session does. Make one with [Handler.SSE].
type SSEHandler struct {
	h        *Handler
	messages string
	inner    http.Handler // behind access

	mu sync.Mutex
	by map[string]*oldSession // by id
}

// An oldSession is one stream and what is posted for it.
type oldSession struct {
	id    string
	owner string
	peer  peer
	ctx   context.Context
	out   *oldOutlet
	wg    sync.WaitGroup
}

// SSE returns a handler for the older transport, with the options and limits of h, and shut down with it. Serve it at the path of the stream and at messages, a
// path such as /messages, which clients are told.
func (h *Handler) SSE(messages string) *SSEHandler {
	s := &SSEHandler{h: h, messages: messages, by: make(map[string]*oldSession)}
	s.inner = h.guarded(s.serve)
	return s
}

// ServeHTTP implements [http.Handler].
func (s *SSEHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.h.access.admit(w, r) {
		s.inner.ServeHTTP(w, r)
	}
}

func (s *SSEHandler) serve(w http.ResponseWriter, r *http.Request) {
	if s.h.legacy == nil {
		refuse(w, http.StatusNotFound, jsonrpc.CodeInvalidRequest, "this server has no revision that uses this transport")
		return
	}
	q := new(oldRequest)
	c, n, ok := s.h.enter(w, r, askerOf(w, r), &q.pending, q)
	if !ok {
		return
	}
	goesOn := false
	defer func() {
		if !goesOn {
			s.h.leave(c, &q.pending)
		}
	}()
	switch r.Method {
	case http.MethodGet:
		s.open(w, r, c)
	case http.MethodPost:
		goesOn = s.post(w, r, q, c, n)
	default:
		w.Header().Set("Allow", "GET, POST")
		refuse(w, http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, "this transport takes GET and POST")
	}
}

// sessionParam is where the id of the session stands in the address that clients post to.
const sessionParam = "sessionId"

// open serves the stream.
func (s *SSEHandler) open(w http.ResponseWriter, r *http.Request, c *caller) {
	if !acceptedOf(r).stream {
		refuse(w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must allow text/event-stream")
		return
	}
	leave, ok := s.h.enterStream(w, c)
	if !ok {
		return
	}
	defer leave()
	ctx, cancel := auth.WithExpiry(r.Context())
	defer cancel()
	p := s.h.respond(w, r, accepted{stream: true})
	defer p.stop()
	x := &oldSession{id: rand.Text(), owner: ownerOf(r), ctx: ctx, out: &oldOutlet{p}}
	var over func()
	x.peer, over = s.h.openPeer(s.h.onBehalf(ctx, r, auth.PrincipalOf(ctx)), x.out)
	defer over()
	s.mu.Lock()
	s.by[x.id] = x
	s.mu.Unlock()
	defer func() {
		s.forget(x)
		cancel()
		x.wg.Wait()
	}()
	if x.out.event("endpoint", []byte(s.messages+"?"+sessionParam+"="+x.id)) != nil {
		return
	}
	p.keepWarm(nil)
	select {
	case <-ctx.Done():
	case <-s.h.closed.Done():
		s.forget(x) // first, so that nothing more comes
		defer context.AfterFunc(s.h.forced, cancel)()
		x.wg.Wait() // with cancel, or for the answers
	}
}

// forget makes sure that nothing is posted for a session any more.
func (s *SSEHandler) forget(x *oldSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by, x.id)
}

// post takes a message for a session. It reports whether a goroutine goes on with it, which leaves then.
func (s *SSEHandler) post(w http.ResponseWriter, r *http.Request, q *oldRequest, c *caller, n int64) (goesOn bool) {
	s.mu.Lock()
	x := s.by[r.URL.Query().Get(sessionParam)]
	if x != nil && x.owner != ownerOf(r) {
		x = nil
	}
	if x != nil {
		x.wg.Add(1) // under the lock, so that the session waits for it
	}
	s.mu.Unlock()
	if x == nil {
		refuse(w, http.StatusNotFound, jsonrpc.CodeInvalidRequest, "no such session: open the stream first")
		return false
	}
	defer x.wg.Done()
	m, frame := s.read(w, r)
	if m == nil || s.h.refusesNotification(w, frame, m) || m.Kind == jsonrpc.KindRequest && !s.h.takesRequests(w, c, &q.pending, n) || !s.h.allowed(w, r, m) {
		return false
	}
	ctx := s.h.onBehalf(&lasting{x.ctx, r.Context()}, r, auth.PrincipalOf(r.Context()))
	switch m.Kind {
	case jsonrpc.KindNotification:
		x.peer.notify(ctx, frame, m)
	case jsonrpc.KindRequest:
		goesOn = true
		q.begun(s.h, x, m.ID)
		x.wg.Go(func() {
			defer s.h.leave(c, &q.pending)
			x.answer(ctx, frame, m, q, &s.h.unread, c.id)
		})
	default:
		x.peer.respond(ctx, frame, m)
	}
	w.WriteHeader(http.StatusAccepted)
	return goesOn
}

// An oldRequest is a request of an oldSession.
type oldRequest struct {
	pending pending

	mu      sync.Mutex
	session *oldSession // nil before it can be answered, and when it has been
	id      jsonrpc.ID
}

// begun notes that the request can be cut off from now on.
func (q *oldRequest) begun(h *Handler, x *oldSession, id jsonrpc.ID) {
	q.mu.Lock()
	q.session, q.id = x, id
	q.mu.Unlock()
	if h.cutting.Load() {
		q.cutOff()
	}
}

// cutOff implements cutter.
func (q *oldRequest) cutOff() {
	q.mu.Lock()
	answer := jsonrpc.AppendError(nil, q.id, errCutOff, false)
	q.mu.Unlock()
	q.send(answer)
}

// send sends the answer. Only the first call counts.
func (q *oldRequest) send(answer []byte) {
	q.mu.Lock()
	x := q.session
	q.session = nil
	q.mu.Unlock()
	if x != nil && len(answer) > 0 {
		x.out.Send(answer) // if that fails, the stream has ended
	}
}

// answer has a request handled, and sends the answer.
func (x *oldSession) answer(ctx context.Context, frame []byte, m *jsonrpc.Message, q *oldRequest, unread *unreadBudget, caller string) {
	returned := false
	defer func() {
		if !returned { // the handler has ended the goroutine
			q.send(jsonrpc.AppendError(nil, m.ID, errExited, false))
		}
	}()
	answer, _ := x.peer.deliver(ctx, frame, &jsonrpc.Delivery{Message: m, Outlet: x.out}, nil)
	returned = true
	if n := len(answer); n > maxWrite {
		if unread.acquire(x.ctx, caller, n) {
			defer unread.release(caller, n)
		} else {
			answer = jsonrpc.AppendError(nil, m.ID, errUnread, false)
		}
	}
	q.send(answer)
}

// read returns the message in a body, and that, in memory of its own; nil if it has answered the request.
func (s *SSEHandler) read(w http.ResponseWriter, r *http.Request) (m *jsonrpc.Message, frame []byte) {
	if encoded(r) || kindOf(r) != bodyJSON {
		refuse(w, http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "the Content-Type must be application/json, and the body not compressed")
		return nil, nil
	}
	x := &exchange{h: s.h, w: w, r: r} // the body stays with the message
	if err := x.readBody(); err != nil {
		s.h.refuseBody(w, r, err)
		return nil, nil
	}
	if err := x.delivery.Parse(x.body, 0); err != nil {
		refuseID(w, http.StatusBadRequest, x.delivery.Message.ID, jsonrpc.ErrorOf(err))
		return nil, nil
	}
	return x.delivery.Message, x.body
}

// An oldOutlet sends messages by the stream of a session.
type oldOutlet struct{ p *response }

// Send implements [jsonrpc.Outlet].
func (o *oldOutlet) Send(message []byte) error { return o.event("message", message) }

func (o *oldOutlet) event(name string, data []byte) error {
	p := o.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return errGone
	}
	if err := p.startLocked(); err != nil {
		return err
	}
	var err error
	if p.buf, err = sse.Append(p.buf[:0], sse.Event{Name: name, Data: data}); err != nil {
		return err
	}
	return p.writeLocked()
}

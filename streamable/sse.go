package streamable

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"

	"mcpwire/auth"
	"mcpwire/internal/net/sse"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
)

// An sseHandler serves the HTTP+SSE transport of revision 2024-11-05.
type sseHandler struct {
	h            *Handler
	messagesPath string

	mu   sync.Mutex
	byID map[string]*sseSession
}

// An sseSession is one stream and the messages posted for it.
type sseSession struct {
	id          string
	principalID string
	peer        peer
	ctx         context.Context
	out         *sseSender

	// The lock of the sseHandler guards the fields below.

	// active counts the posts and requests that are being handled.
	active int
	// draining means that the session ends when nothing is active.
	draining bool
	// drained is closed when the session is draining and nothing is active.
	drained chan struct{}
}

// SSE returns a handler for the HTTP+SSE transport of revision 2024-11-05
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse), which
// shares the options, limits and shutdown of h. Serve it at two paths: that of the stream, which a
// GET opens, and messages, such as /messages, which the stream announces and to which clients post.
// The stream carries all responses, and the session ends with it.
func (h *Handler) SSE(messages string) http.Handler {
	s := &sseHandler{h: h, messagesPath: messages, byID: make(map[string]*sseSession)}
	return h.Protect(http.HandlerFunc(s.serve))
}

func (s *sseHandler) serve(w http.ResponseWriter, r *http.Request) {
	if len(s.h.legacy) == 0 {
		writeError(w, http.StatusNotFound, jsonrpc.CodeInvalidRequest, "no revision of this server uses this transport")
		return
	}
	req := new(sseRequest)
	if !s.h.admit(&req.slot, w, r, requesterOf(r), req) {
		return
	}
	defer req.slot.release()
	switch r.Method {
	case http.MethodGet:
		s.serveStream(w, r, &req.slot)
	case http.MethodPost:
		s.servePost(w, r, req)
	default:
		writeMethodNotAllowed(w, "GET, POST")
	}
}

// sessionParam is the query parameter of the post URL that has the session's id.
const sessionParam = "sessionId"

// serveStream serves the GET that opens a session.
func (s *sseHandler) serveStream(w http.ResponseWriter, r *http.Request, place *slot) {
	if s.h.refuseStream(w, parseAccept(r), http.StatusNotImplemented, nil) || place.stand().write(w) {
		return
	}
	ctx, cancel := withExpiry(r.Context())
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	rs := s.h.newResponse(w, r, acceptedTypes{stream: true})
	defer rs.stop()
	ses := &sseSession{id: rand.Text(), principalID: principalIDOf(r), ctx: ctx, out: &sseSender{rs}, drained: make(chan struct{})}
	var endPeer func(over bool)
	ses.peer, endPeer = s.h.openPeer(s.h.withIdentity(ctx, r, auth.PrincipalOf(ctx)), ses.out, "")
	defer endPeer(true)
	s.mu.Lock()
	s.byID[ses.id] = ses
	s.mu.Unlock()
	defer func() {
		s.drain(ses, true)
		cancel()
		<-ses.drained
	}()
	if rs.writeEvent(sse.Event{Name: "endpoint", Data: []byte(s.messagesPath + "?" + sessionParam + "=" + ses.id)}) != nil {
		return
	}
	rs.startKeepAlive(nil)
	select {
	case <-ctx.Done():
	case <-s.h.closed.Done():
		// Until its requests are answered, the session takes the responses that they wait for.
		s.drain(ses, false)
		defer context.AfterFunc(s.h.forced, func() { abort(jsonrpc.ErrShutdown) })()
		select {
		case <-ses.drained:
		case <-ctx.Done():
		}
	}
}

// drain ends the session when nothing is active. remove also makes it unreachable for posts.
func (s *sseHandler) drain(ses *sseSession, remove bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if remove {
		delete(s.byID, ses.id)
	}
	if !ses.draining {
		ses.draining = true
		s.endIfDrainedLocked(ses)
	}
}

// begin counts a post, and the request in it, as active in the session with an id. It returns nil
// if the principal has no such session.
func (s *sseHandler) begin(id, principalID string) *sseSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := s.byID[id]
	if ses == nil || ses.principalID != principalID {
		return nil
	}
	ses.active++
	return ses
}

// done undoes begin.
func (s *sseHandler) done(ses *sseSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses.active--
	if ses.draining {
		s.endIfDrainedLocked(ses)
	}
}

// endIfDrainedLocked ends a draining session if nothing is active. No post reaches it afterwards.
// The caller must hold s.mu.
func (s *sseHandler) endIfDrainedLocked(ses *sseSession) {
	if ses.active == 0 {
		delete(s.byID, ses.id)
		close(ses.drained)
	}
}

// servePost handles a posted message. A request continues on a goroutine, for which serveStream
// waits.
func (s *sseHandler) servePost(w http.ResponseWriter, r *http.Request, req *sseRequest) {
	ses := s.begin(r.URL.Query().Get(sessionParam), principalIDOf(r))
	if ses == nil {
		writeError(w, http.StatusNotFound, jsonrpc.CodeInvalidRequest, "no such session: open the stream first")
		return
	}
	detached := false
	defer func() {
		if !detached {
			s.done(ses)
		}
	}()
	m, frame := s.readMessage(w, r)
	if m == nil || s.h.rejectNotification(w, frame, m) || m.Kind == jsonrpc.KindRequest && req.slot.admitRequest().write(w) || !s.h.allowed(w, r, m) {
		return
	}
	ctx := s.h.withIdentity(&sessionContext{ses.ctx, context.WithoutCancel(r.Context())}, r, auth.PrincipalOf(r.Context()))
	issued := true
	switch m.Kind {
	case jsonrpc.KindNotification:
		ses.peer.deliverNotification(ctx, frame, m)
	case jsonrpc.KindRequest:
		place := req.slot.detach()
		req.markAbortable(s.h, ses, m.ID)
		detached = true
		go func() { // serveStream waits for it
			defer s.done(ses)
			defer place.release()
			ses.serveRequest(ctx, frame, m, req, &s.h.admission.unread, place.callerID)
		}()
	default:
		issued = ses.peer.deliverResponse(ctx, frame, m)
	}
	writeOneWay(w, issued)
}

// An sseRequest is a request of an sseSession.
type sseRequest struct {
	slot slot

	mu sync.Mutex
	// session is nil before the request can be answered, and after it was.
	session *sseSession
	id      jsonrpc.ID
}

// markAbortable notes that abort can answer the request from now on.
func (r *sseRequest) markAbortable(h *Handler, ses *sseSession, id jsonrpc.ID) {
	r.mu.Lock()
	r.session, r.id = ses, id
	r.mu.Unlock()
	if h.admission.aborting.Load() {
		r.abort()
	}
}

// abort implements aborter.
func (r *sseRequest) abort() {
	r.mu.Lock()
	answer := jsonrpc.AppendError(nil, r.id, errAborted, false)
	r.mu.Unlock()
	r.send(answer)
}

// send sends the response. Only the first call counts.
func (r *sseRequest) send(answer []byte) {
	r.mu.Lock()
	ses := r.session
	r.session = nil
	r.mu.Unlock()
	if ses != nil && len(answer) > 0 {
		ses.out.Send(answer) // if that fails, the stream has ended
	}
}

// serveRequest handles a request and sends the response.
func (s *sseSession) serveRequest(ctx context.Context, frame []byte, m *jsonrpc.Message, req *sseRequest, unread *unreadBudget, caller string) {
	returned := false
	defer func() {
		if !returned { // the handler ended the goroutine
			req.send(jsonrpc.AppendError(nil, m.ID, errHandlerExited, false))
		}
	}()
	answer, _ := s.peer.deliverRequest(ctx, frame, &rpc.Delivery{Message: m, Sender: s.out}, nil)
	returned = true
	if n := len(answer); n > maxWrite {
		if unread.acquire(s.ctx, caller, n) {
			defer unread.release(caller, n)
		} else {
			answer = jsonrpc.AppendError(nil, m.ID, errUnread, false)
		}
	}
	req.send(answer)
}

// readMessage returns the message in a body and its text, in their own memory. It returns nil if it
// has answered the HTTP request.
func (s *sseHandler) readMessage(w http.ResponseWriter, r *http.Request) (m *jsonrpc.Message, frame []byte) {
	if isEncoded(r) || bodyTypeOf(r) != mediaJSON {
		writeError(w, http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "the Content-Type must be application/json, and the body not compressed")
		return nil, nil
	}
	pr := &postRequest{h: s.h, w: w, r: r} // the body belongs to the message
	if err := pr.readBody(); err != nil {
		s.h.writeBodyError(w, r, err)
		return nil, nil
	}
	if err := pr.delivery.Parse(pr.body, 0); err != nil {
		writeErrorID(w, http.StatusBadRequest, pr.delivery.Message.ID, jsonrpc.ErrorOf(err))
		return nil, nil
	}
	return pr.delivery.Message, pr.body
}

// An sseSender sends messages on the stream of a session.
type sseSender struct{ response *response }

// Send implements [rpc.Sender].
func (s *sseSender) Send(message []byte) error {
	return s.response.writeEvent(sse.Event{Name: "message", Data: message})
}

package streamable

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
)

// An exchange is one POST, with the memory that it takes. Most are used again by a later one.
type postRequest struct {
	h      *Handler
	w      http.ResponseWriter
	r      *http.Request
	accept acceptedTypes

	requester

	caller    *caller
	inFlight  int64 // requests that the caller had in flight, with this one
	admission admission
	state     atomic.Uint32   // what cutOff finds, see exchangeState
	batch     []jsonrpc.Entry // of the batch that it is; nil if it is one message

	readAt        time.Duration    // when its body was, or began to be, read, by the clock of h: they do not differ where it is a time that matters
	body          []byte           // of the request
	delivery      jsonrpc.Delivery // of the message in it, if it is one
	response      response
	stream        *stream // that a session's answer is, if it has become none of events: nobody else has it then, see Delivery.Outlet; nil before there was one
	answer        []byte
	extraRequests int  // requests besides the first that are counted for it
	detached      bool // a goroutine has it that goes on when the request has been served: it must not be used again
	referenced    bool // a function may run that has its response and its stream: they must not be used again
	hijacked      bool // a goroutine has its connection that goes on when the request has been served
}

// How far an exchange is.
const (
	postStateNew    = iota // nothing can be answered yet
	postStateModern        // it is answered by its response
	postStateLegacy        // it is answered by its stream
)

// markAbortable notes that the exchange can be cut off from now on.
func (pr *postRequest) markAbortable(state uint32) {
	pr.state.Store(state)
	if pr.h.aborting.Load() {
		pr.abort()
	}
}

// abort implements cutter.
func (pr *postRequest) abort() {
	switch pr.state.Load() {
	case postStateModern:
		pr.response.endEarly(pr.errorResponse(errAborted), errAborted)
	case postStateLegacy:
		pr.stream.finishEarly(pr.errorResponse(errAborted), errAborted)
	}
}

// errAborted answers a request that takes longer than the shutdown may. Its handler may go on.
var errAborted = jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server is shutting down and does not wait for this request any longer; it may have been carried out")

// errorResponse returns a response to the message, or to each request of the batch, that has the error.
func (pr *postRequest) errorResponse(e *jsonrpc.Error) []byte {
	if pr.batch == nil {
		return jsonrpc.AppendError(nil, pr.id(), e, false)
	}
	all := []byte{'['}
	for i := range pr.batch {
		if entry := &pr.batch[i]; entry.Invalid == nil && entry.Kind == jsonrpc.KindRequest {
			if len(all) > 1 {
				all = append(all, ',')
			}
			all = jsonrpc.AppendError(all, entry.ID, e, false)
		}
	}
	return append(all, ']')
}

// maxReusedBuffer is the largest buffer that is used again, in bytes.
const maxReusedBuffer = 64 << 10

func (h *Handler) newPostRequest(w http.ResponseWriter, r *http.Request) *postRequest {
	pr, _ := h.posts.Get().(*postRequest)
	if pr == nil {
		pr = new(postRequest)
	}
	pr.h, pr.w, pr.r, pr.accept = h, w, r, parseAccept(r)
	pr.requester = requesterOf(w, r)
	return pr
}

// release is called when the request has been.
func (pr *postRequest) release() {
	aborted := false
	switch {
	case pr.detached:
		return
	case pr.hijacked:
		pr.h.releaseAdmission(&pr.admission)
		aborted = pr.caller.unlist(&pr.admission)
	default:
		aborted = pr.h.releaseHTTP(pr.caller, &pr.admission)
	}
	if !aborted && !pr.referenced {
		pr.reset()
	}
}

// reset lets another request use the memory.
func (pr *postRequest) reset() {
	h := pr.h
	if !pr.response.reset() {
		return
	}
	pr.h, pr.w, pr.r, pr.requester, pr.caller, pr.extraRequests, pr.hijacked = nil, nil, nil, requester{}, nil, 0, false
	pr.batch = nil
	pr.state.Store(postStateNew)
	if pr.stream != nil && !pr.stream.reset() {
		pr.stream = nil
	}
	if cap(pr.body) > maxReusedBuffer {
		pr.delivery = jsonrpc.Delivery{} // what it knows of the message is part of the body
	} else {
		d := &pr.delivery
		d.Message, d.Sender, d.Lifetime, d.Untracked, d.AllowDeferred = nil, nil, nil, false, false
	}
	pr.body, pr.answer = shrink(pr.body), shrink(pr.answer)
	h.posts.Put(pr)
}

// id returns the id of the message; none of a batch.
func (pr *postRequest) id() jsonrpc.ID {
	if pr.delivery.Message == nil {
		return nil
	}
	return pr.delivery.Message.ID
}

// shrink returns a buffer that is empty, and not large.
func shrink(b []byte) []byte {
	if cap(b) > maxReusedBuffer {
		return nil
	}
	return b[:0]
}

// setReadDeadline sets the deadline for reading. Most ResponseWriters can do that by themselves, which spares the memory of a controller.
func (pr *postRequest) setReadDeadline(t time.Time) error {
	if d, ok := pr.w.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return http.NewResponseController(pr.w).SetReadDeadline(t)
}

// markBodyConsumed notes that the body was read to its end, so that net/http does not look for more of it. Another body that somebody has put in its place may have ended
// before.
func (pr *postRequest) markBodyConsumed() {
	if g, ok := pr.w.(*trackingWriter); ok && g.body == pr.r.Body {
		g.bodyConsumed = true
		g.body.Close()
	}
}

// beginResponse returns the response. It must be ended or stopped before the request has been served.
func (pr *postRequest) beginResponse() *response {
	rs := &pr.response
	rs.begin(pr.h, pr.w, pr.r, pr.accept)
	return rs
}

// beginStream returns the stream that the answer to a session's request is, carried by out. left is closed when out is to end, if somebody waits for that.
func (pr *postRequest) beginStream(s *session, out *response, notifyDetach bool) (st *stream, detached chan struct{}) {
	if pr.stream == nil {
		pr.stream = new(stream)
	}
	st = pr.stream
	st.session, st.out, st.done, st.orphaned = s, out, false, false
	if notifyDetach {
		st.detached = make(chan struct{})
	}
	return st, st.detached
}

// withIdentity returns ctx with what is known of the caller.
func (pr *postRequest) withIdentity(ctx context.Context) context.Context {
	return pr.h.withIdentity(ctx, pr.r, pr.principal)
}

// admitRequest refuses the request if no more are taken.
func (pr *postRequest) admitRequest() bool {
	return pr.h.admitRequest(pr.w, pr.caller, &pr.admission, pr.inFlight)
}

package streamable

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
)

// An exchange is one POST, with the memory that it takes. Most are used again by a later one.
type exchange struct {
	h     *Handler
	w     http.ResponseWriter
	r     *http.Request
	takes accepted

	asker

	caller  *caller
	n       int64 // requests that the caller had in flight, with this one
	pending pending
	state   atomic.Uint32   // what cutOff finds, see exchangeState
	entries []jsonrpc.Entry // of the batch that it is; nil if it is one message

	at       time.Duration    // when its body was, or began to be, read, by the clock of h: they do not differ where it is a time that matters
	body     []byte           // of the request
	delivery jsonrpc.Delivery // of the message in it, if it is one
	response response
	stream   *stream // that a session's answer is, if it has become none of events: nobody else has it then, see Delivery.Outlet; nil before there was one
	answer   []byte
	more     int  // requests besides the first that are counted for it
	kept     bool // a goroutine has it that goes on when the request has been served: it must not be used again
	watched  bool // a function may run that has its response and its stream: they must not be used again
	held     bool // a goroutine has its connection that goes on when the request has been served
}

// How far an exchange is.
const (
	exchangeNew    = iota // nothing can be answered yet
	exchangeModern        // it is answered by its response
	exchangeLegacy        // it is answered by its stream
)

// begun notes that the exchange can be cut off from now on.
func (x *exchange) begun(state uint32) {
	x.state.Store(state)
	if x.h.cutting.Load() {
		x.cutOff()
	}
}

// cutOff implements cutter.
func (x *exchange) cutOff() {
	switch x.state.Load() {
	case exchangeModern:
		x.response.endEarly(x.failure(errCutOff), errCutOff)
	case exchangeLegacy:
		x.stream.finishEarly(x.failure(errCutOff), errCutOff)
	}
}

// errCutOff answers a request that takes longer than the shutdown may. Its handler may go on.
var errCutOff = jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server is shutting down and does not wait for this request any longer; it may have been carried out")

// failure returns a response to the message, or to each request of the batch, that has the error.
func (x *exchange) failure(e *jsonrpc.Error) []byte {
	if x.entries == nil {
		return jsonrpc.AppendError(nil, x.id(), e, false)
	}
	all := []byte{'['}
	for i := range x.entries {
		if entry := &x.entries[i]; entry.Invalid == nil && entry.Kind == jsonrpc.KindRequest {
			if len(all) > 1 {
				all = append(all, ',')
			}
			all = jsonrpc.AppendError(all, entry.ID, e, false)
		}
	}
	return append(all, ']')
}

// maxKept is the largest buffer that is used again, in bytes.
const maxKept = 64 << 10

func (h *Handler) newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	x, _ := h.exchanges.Get().(*exchange)
	if x == nil {
		x = new(exchange)
	}
	x.h, x.w, x.r, x.takes = h, w, r, acceptedOf(r)
	x.asker = askerOf(w, r)
	return x
}

// served is called when the request has been.
func (x *exchange) served() {
	cut := false
	switch {
	case x.kept:
		return
	case x.held:
		x.h.release(&x.pending)
		cut = x.caller.unlist(&x.pending)
	default:
		cut = x.h.leave(x.caller, &x.pending)
	}
	if !cut && !x.watched {
		x.recycle()
	}
}

// recycle lets another request use the memory.
func (x *exchange) recycle() {
	h := x.h
	if !x.response.recycle() {
		return
	}
	x.h, x.w, x.r, x.asker, x.caller, x.more, x.held = nil, nil, nil, asker{}, nil, 0, false
	x.entries = nil
	x.state.Store(exchangeNew)
	if x.stream != nil && !x.stream.rest() {
		x.stream = nil
	}
	if cap(x.body) > maxKept {
		x.delivery = jsonrpc.Delivery{} // what it knows of the message is part of the body
	} else {
		d := &x.delivery
		d.Message, d.Outlet, d.Until, d.Free, d.Stand = nil, nil, nil, false, false
	}
	x.body, x.answer = shrink(x.body), shrink(x.answer)
	h.exchanges.Put(x)
}

// id returns the id of the message; none of a batch.
func (x *exchange) id() jsonrpc.ID {
	if x.delivery.Message == nil {
		return nil
	}
	return x.delivery.Message.ID
}

// shrink returns a buffer that is empty, and not large.
func shrink(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// boundRead sets the deadline for reading. Most ResponseWriters can do that by themselves, which spares the memory of a controller.
func (x *exchange) boundRead(t time.Time) error {
	if d, ok := x.w.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return http.NewResponseController(x.w).SetReadDeadline(t)
}

// drained notes that the body was read to its end, so that net/http does not look for more of it. Another body that somebody has put in its place may have ended
// before.
func (x *exchange) drained() {
	if g, ok := x.w.(*guardedWriter); ok && g.body == x.r.Body {
		g.drained = true
		g.body.Close()
	}
}

// respond returns the response. It must be ended or stopped before the request has been served.
func (x *exchange) respond() *response {
	p := &x.response
	p.begin(x.h, x.w, x.r, x.takes)
	return p
}

// answers returns the stream that the answer to a session's request is, carried by out. left is closed when out is to end, if somebody waits for that.
func (x *exchange) answers(s *session, out *response, waits bool) (st *stream, left chan struct{}) {
	if x.stream == nil {
		x.stream = new(stream)
	}
	st = x.stream
	st.session, st.out, st.done, st.lost = s, out, false, false
	if waits {
		st.left = make(chan struct{})
	}
	return st, st.left
}

// onBehalf returns ctx with what is known of the caller.
func (x *exchange) onBehalf(ctx context.Context) context.Context {
	return x.h.onBehalf(ctx, x.r, x.principal)
}

// takesRequests refuses the request if no more are taken.
func (x *exchange) takesRequests() bool { return x.h.takesRequests(x.w, x.caller, &x.pending, x.n) }

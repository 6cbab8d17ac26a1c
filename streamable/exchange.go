package streamable

import (
	"context"
	"net/http"
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

	at       time.Duration    // when its body was, or began to be, read, by the clock of h: they do not differ where it is a time that matters
	body     []byte           // of the request
	delivery jsonrpc.Delivery // of the message in it, if it is one
	response response
	stream   *stream // that a session's answer is, if it has become none of events: nobody else has it then, see Delivery.Outlet; nil before there was one
	answer   []byte
	more     int64 // requests besides the first that are counted for it
	kept     bool  // a goroutine has it that goes on when the request has been served: it must not be used again
	held     bool  // a goroutine has its connection that goes on when the request has been served
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

// recycle is called when the request has been served.
func (x *exchange) recycle() {
	h := x.h
	if x.kept || !x.response.recycle() {
		return
	}
	x.h, x.w, x.r, x.asker, x.more, x.held = nil, nil, nil, asker{}, 0, false
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
	st.session, st.out, st.done = s, out, false
	if waits {
		st.left = make(chan struct{})
	}
	return st, st.left
}

// onBehalf returns ctx with what is known of the caller.
func (x *exchange) onBehalf(ctx context.Context) context.Context {
	return x.h.onBehalf(ctx, x.r, x.principal)
}

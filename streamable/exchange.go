package streamable

import (
	"net/http"

	"mcpwire/jsonrpc"
)

// An exchange is one POST, with the memory that it takes. Most are used again by a later one.
type exchange struct {
	h     *Handler
	w     http.ResponseWriter
	r     *http.Request
	takes accepted
	rc    *http.ResponseController // nil until something wants it

	body     []byte          // of the request
	message  jsonrpc.Message // in it, if it is one
	delivery jsonrpc.Delivery
	response response
	answer   []byte
	more     int64 // requests besides the first that are counted for it
	kept     bool  // a goroutine has it that goes on when the request has been served: it must not be used again
}

// maxKept is the largest buffer that is used again, in bytes.
const maxKept = 64 << 10

func (h *Handler) newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	x, _ := h.exchanges.Get().(*exchange)
	if x == nil {
		x = new(exchange)
	}
	x.h, x.w, x.r, x.takes = h, w, r, acceptedOf(r)
	return x
}

// recycle is called when the request has been served.
func (x *exchange) recycle() {
	h := x.h
	if x.kept || !x.response.recycle() {
		return
	}
	x.h, x.w, x.r, x.rc, x.more = nil, nil, nil, nil, 0
	x.message, x.delivery = jsonrpc.Message{}, jsonrpc.Delivery{}
	x.body, x.answer = shrink(x.body), shrink(x.answer)
	h.exchanges.Put(x)
}

// shrink returns a buffer that is empty, and not large.
func shrink(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// controller returns what deadlines are set with.
func (x *exchange) controller() *http.ResponseController {
	if x.rc == nil {
		x.rc = http.NewResponseController(x.w)
	}
	return x.rc
}

// respond returns the response. It must be ended or stopped before the request has been served.
func (x *exchange) respond() *response {
	p := &x.response
	p.begin(x.h, x.w, x.r, x.takes)
	p.rc = x.rc
	return p
}

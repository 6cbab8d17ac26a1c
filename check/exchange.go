package check

import (
	"mime"
	"strings"
	"time"

	"mcpwire/capture"
)

// An exchange is an HTTP request with its response, from the head of the request to the end of the response.
type exchange struct {
	number uint64 // as in the capture
	sess   *session
	n      uint64 // of the event with the head of the request
	t      time.Duration

	method  string // "POST"; "" if the head was not seen
	url     string // the request target
	request []capture.Header
	// call is the request that was posted, nil if it was something else; posted counts messages of all kinds.
	call   *call
	posted int

	responded uint64 // number of the event with the head of the response, 0 before
	status    int
	response  []capture.Header
	messages  int  // of the server
	events    int  // of the event stream, those without a message too
	answered  bool // the response to call has come in this exchange
	state     states

	hiddenRequest, hiddenResponse []string // redacted places, as pointers into the event with the head
	elem                          uint64
}

// A field is a header field of an exchange, with its place.
type field struct {
	name, value string
	pointer     string // into the event with the head, such as /req/headers/3/1
	hidden      bool   // redacted: value is a placeholder
}

// fields returns the header fields of that name; they are compared without regard to case.
func fields(headers []capture.Header, hidden []string, root, name string) []field {
	var found []field
	for i, h := range headers {
		if strings.EqualFold(h.Name, name) {
			p := pointer(root, "headers", i, 1)
			found = append(found, field{h.Name, strings.Trim(h.Value, " \t"), p, covers(hidden, p)})
		}
	}
	return found
}

// sent returns the fields of that name in the head of the request, received those of the response.
func (x *exchange) sent(name string) []field { return fields(x.request, x.hiddenRequest, "req", name) }
func (x *exchange) received(name string) []field {
	return fields(x.response, x.hiddenResponse, "res", name)
}

// header returns the value of a field of the request, "" if there is none.
func (x *exchange) header(name string) string {
	if x == nil {
		return ""
	}
	if f := x.sent(name); len(f) > 0 {
		return f[0].value
	}
	return ""
}

// reply returns the value of a field of the response, "" if there is none.
func (x *exchange) reply(name string) string {
	if x == nil {
		return ""
	}
	if f := x.received(name); len(f) > 0 {
		return f[0].value
	}
	return ""
}

// streams reports whether the response is an event stream.
func (x *exchange) streams() bool {
	t, _, err := mime.ParseMediaType(x.reply("Content-Type"))
	return err == nil && t == "text/event-stream"
}

// covers reports whether a place is one of those that are hidden, or below one.
func covers(hidden []string, place string) bool {
	for _, h := range hidden {
		if place == h || strings.HasPrefix(place, h) && place[len(h)] == '/' {
			return true
		}
	}
	return false
}

// covered reports whether a place is, contains, or is within one that is hidden.
func covered(hidden []string, place string) bool {
	for _, h := range hidden {
		if strings.HasPrefix(h, place) && (len(h) == len(place) || h[len(place)] == '/') {
			return true
		}
	}
	return covers(hidden, place)
}

// exchangeOf returns the exchange of an event, nil if it is in none. It makes room by forgetting the exchange that has seen no event for the longest time.
func (k *Checker) exchangeOf(e *capture.Event) *exchange {
	if e.Exchange == 0 {
		return nil
	}
	key := exchangeKey{e.Capture, e.Exchange}
	x := k.exchanges[key]
	if x == nil {
		if len(k.exchanges) >= k.limits.MaxExchanges {
			k.dropExchange()
		}
		x = &exchange{number: e.Exchange, n: e.N, t: e.T}
		k.exchanges[key] = x
	}
	k.ticks++
	x.elem = k.ticks
	return x
}

type exchangeKey struct {
	capture string
	number  uint64
}

// dropExchange forgets the exchanges of the older half.
func (k *Checker) dropExchange() {
	oldest := k.ticks
	for _, x := range k.exchanges {
		oldest = min(oldest, x.elem)
	}
	middle := oldest + (k.ticks-oldest)/2
	for key, x := range k.exchanges {
		if x.elem <= middle {
			delete(k.exchanges, key)
		}
	}
}

// openExchange takes the head of a request.
func (x *exchange) open(e *capture.Event) {
	x.n, x.t = e.N, e.T
	x.method, x.url = strings.ToUpper(e.Request.Method), e.Request.URL
	x.request, x.hiddenRequest = e.Request.Headers, e.Redacted
}

// respond takes the head of a response.
func (x *exchange) respond(e *capture.Event) {
	x.responded, x.status = e.N, e.Response.Status
	x.response, x.hiddenResponse = e.Response.Headers, e.Redacted
}

package check

import (
	"mime"
	"strings"
	"time"

	"mcpwire/capture"
)

// An exchange is an HTTP request with its response, from the head of the request to the end of the response.
type exchange struct {
	number  uint64 // as in the capture
	session *session
	n       uint64 // of the event with the head of the request
	t       time.Duration

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

	redactedRequest, redactedResponse []string // redacted places, as pointers into the event with the head
	tick                              uint64
}

// A field is a header field of an exchange, with its place.
type field struct {
	name, value string
	pointer     string // into the event with the head, such as /req/headers/3/1
	redacted    bool   // redacted: value is a placeholder
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

// requestFields returns the fields of that name in the head of the request, received those of the response.
func (x *exchange) requestFields(name string) []field {
	return fields(x.request, x.redactedRequest, "req", name)
}
func (x *exchange) responseFields(name string) []field {
	return fields(x.response, x.redactedResponse, "res", name)
}

// requestHeader returns the value of a field of the request, "" if there is none.
func (x *exchange) requestHeader(name string) string {
	if x == nil {
		return ""
	}
	if f := x.requestFields(name); len(f) > 0 {
		return f[0].value
	}
	return ""
}

// responseHeader returns the value of a field of the response, "" if there is none.
func (x *exchange) responseHeader(name string) string {
	if x == nil {
		return ""
	}
	if f := x.responseFields(name); len(f) > 0 {
		return f[0].value
	}
	return ""
}

// isEventStream reports whether the response is an event stream.
func (x *exchange) isEventStream() bool {
	t, _, err := mime.ParseMediaType(x.responseHeader("Content-Type"))
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

// overlaps reports whether a place is, contains, or is within one that is hidden.
func overlaps(hidden []string, place string) bool {
	for _, h := range hidden {
		if strings.HasPrefix(h, place) && (len(h) == len(place) || h[len(place)] == '/') {
			return true
		}
	}
	return covers(hidden, place)
}

// exchangeOf returns the exchange of an event, nil if it is in none. It makes room by forgetting the exchange that has seen no event for the longest time.
func (ck *Checker) exchangeOf(e *capture.Event) *exchange {
	if e.Exchange == 0 {
		return nil
	}
	key := exchangeKey{e.Capture, e.Exchange}
	x := ck.exchanges[key]
	if x == nil {
		if len(ck.exchanges) >= ck.limits.MaxExchanges {
			ck.evictExchanges()
		}
		x = &exchange{number: e.Exchange, n: e.N, t: e.T}
		ck.exchanges[key] = x
	}
	ck.ticks++
	x.tick = ck.ticks
	return x
}

type exchangeKey struct {
	capture string
	number  uint64
}

// evictExchanges forgets the exchanges of the older half.
func (ck *Checker) evictExchanges() {
	oldest := ck.ticks
	for _, x := range ck.exchanges {
		oldest = min(oldest, x.tick)
	}
	middle := oldest + (ck.ticks-oldest)/2
	for key, x := range ck.exchanges {
		if x.tick <= middle {
			delete(ck.exchanges, key)
		}
	}
}

// openExchange takes the head of a request.
func (x *exchange) setRequest(e *capture.Event) {
	x.n, x.t = e.N, e.T
	x.method, x.url = strings.ToUpper(e.Request.Method), e.Request.URL
	x.request, x.redactedRequest = e.Request.Headers, e.Redacted
}

// setResponse takes the head of a response.
func (x *exchange) setResponse(e *capture.Event) {
	x.responded, x.status = e.N, e.Response.Status
	x.response, x.redactedResponse = e.Response.Headers, e.Redacted
}

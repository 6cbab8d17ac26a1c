package check

import (
	"mime"
	"slices"
	"strings"
	"time"

	"mcpwire/capture"
)

// An exchange is an HTTP request with its response, from the head of the request to the end of the
// response.
type exchange struct {
	// number is the exchange number in the capture.
	number  uint64
	session *session
	// n is the number of the event with the request head.
	n uint64
	t time.Duration

	// method is upper case, and "" if the request head was not seen.
	method string
	// url is the request target.
	url     string
	request []capture.Header
	// call is the posted request, or nil if another kind of message was posted. posted counts all
	// posted messages.
	call   *call
	posted int

	status   int
	response []capture.Header
	// answered is set when the response to call has come in this exchange.
	answered bool
	state    states

	// redactedRequest and redactedResponse are the redacted places in the two heads, as pointers
	// into their events.
	redactedRequest, redactedResponse []string
	lastUse
}

// A field is a header field of an exchange.
type field struct {
	name, value string
	// redacted is set if value is a placeholder.
	redacted bool
}

// fields returns the header fields with that name, ignoring case.
func fields(headers []capture.Header, hidden []string, root, name string) []field {
	var found []field
	for i, h := range headers {
		if strings.EqualFold(h.Name, name) {
			found = append(found, field{h.Name, strings.Trim(h.Value, " \t"), covers(hidden, pointer(root, "headers", i, 1))})
		}
	}
	return found
}

// requestFields and responseFields return the fields with that name in the two heads.
func (x *exchange) requestFields(name string) []field {
	return fields(x.request, x.redactedRequest, "req", name)
}
func (x *exchange) responseFields(name string) []field {
	return fields(x.response, x.redactedResponse, "res", name)
}

// requestHeader returns the value of a request header field, or "".
func (x *exchange) requestHeader(name string) string {
	if x == nil {
		return ""
	}
	return firstValue(x.requestFields(name))
}

// responseHeader returns the value of a response header field, or "".
func (x *exchange) responseHeader(name string) string {
	if x == nil {
		return ""
	}
	return firstValue(x.responseFields(name))
}

func firstValue(fields []field) string {
	if len(fields) == 0 {
		return ""
	}
	return fields[0].value
}

// isEventStream reports whether the response is an event stream.
func (x *exchange) isEventStream() bool {
	t, _, err := mime.ParseMediaType(x.responseHeader("Content-Type"))
	return err == nil && t == "text/event-stream"
}

// covers reports whether a place is redacted or lies below a redacted place.
func covers(hidden []string, place string) bool {
	return slices.ContainsFunc(hidden, func(h string) bool { return place == h || strings.HasPrefix(place, h+"/") })
}

// overlaps reports whether a place is, contains, or is within a redacted place.
func overlaps(hidden []string, place string) bool {
	return covers(hidden, place) || slices.ContainsFunc(hidden, func(h string) bool { return strings.HasPrefix(h, place+"/") })
}

// exchangeOf returns the exchange of an event, or nil if it belongs to none. It evicts old
// exchanges when there are too many.
func (ck *Checker) exchangeOf(e *capture.Event) *exchange {
	if e.Exchange == 0 {
		return nil
	}
	return findOrMake(ck, ck.exchanges, exchangeKey{e.Capture, e.Exchange}, ck.limits.MaxExchanges,
		func() { evictOlder(ck.exchanges, ck.ticks, nil) },
		func() *exchange { return &exchange{number: e.Exchange, n: e.N, t: e.T} })
}

type exchangeKey struct {
	capture string
	number  uint64
}

// setRequest stores the head of the request.
func (x *exchange) setRequest(e *capture.Event) {
	x.n, x.t = e.N, e.T
	x.method, x.url = strings.ToUpper(e.Request.Method), e.Request.URL
	x.request, x.redactedRequest = e.Request.Headers, e.Redacted
}

// setResponse stores the head of the response.
func (x *exchange) setResponse(e *capture.Event) {
	x.status = e.Response.Status
	x.response, x.redactedResponse = e.Response.Headers, e.Redacted
}

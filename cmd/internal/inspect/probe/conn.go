package probe

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A conn is one connection to the server: a process, or a series of HTTP exchanges. It must not be
// used by several goroutines at once.
type conn interface {
	// send sends a message and waits for the response. The reply reports any failure.
	send(ctx context.Context, q outgoing) reply
	// alive reports whether the connection can send more messages.
	alive() bool
	// close ends the connection.
	close()
}

// An outgoing is a message to send.
type outgoing struct {
	body []byte
	// id is the JSON text of the response id to wait for. "" waits for none.
	id string
	// anyID also accepts a message without an id, or with the id null, as the response.
	anyID bool
	// stopAt ends the wait early if it returns true for another message. It may be nil.
	stopAt func(*jsonrpc.Message) bool
	// wait limits the wait for the response. Zero means Options.Timeout.
	wait time.Duration

	// The fields below are for HTTP.
	// method is the HTTP method. "" means POST.
	method string
	header func(http.Header)
	host   string
	// The fields below are for stdio. framing "" means FramingLF.
	framing capture.Framing
	// receiveOnly sends nothing and waits.
	receiveOnly bool
}

// A replyState is the outcome of sending a message.
type replyState int

const (
	answered     replyState = iota // got a response or HTTP status
	stoppedEarly                   // stopAt returned true
	timedOut                       // no response in time
	disconnected                   // connection lost or not made
	sentOnly                       // no response expected
)

// A reply is the outcome of an outgoing message.
type reply struct {
	state replyState
	// err is why the state is disconnected.
	err error
	// requestEvent is the number of the request's event.
	requestEvent uint64
	// event is the number of the response's event, or requestEvent without one.
	event uint64
	// dir is the direction of that event.
	dir capture.Dir
	// exchange is the number of the HTTP exchange.
	exchange uint64
	took     time.Duration
	// text is the response message, or nil.
	text []byte
	kind jsonrpc.Kind
	// id is JSON text.
	id     []byte
	result []byte
	// rpcError is the error of the response, or nil.
	rpcError *jsonrpc.Error
	// list says what the result has in place of its list, or is "".
	list string
	// item says what an element of the list lacks.
	item string
	// empty reports that the list has no elements.
	empty bool
	// before holds the messages before the response, except requests of the server.
	before []earlierMessage

	// status is the HTTP status. It is 0 over stdio.
	status int
	header http.Header
	// body is an HTTP body that is not a message.
	body []byte
}

// An earlierMessage is a message that came before the response.
type earlierMessage struct {
	jsonrpc.Message
	// n is the number of the event.
	n uint64
}

// set makes a copy of a message the response.
func (a *reply) set(m *jsonrpc.Message, text []byte, n uint64) {
	c := m.Clone()
	a.state, a.event, a.dir = answered, n, capture.ToClient
	a.text, a.kind, a.id, a.result = bytes.Clone(text), c.Kind, c.ID, c.Result
	if c.Kind == jsonrpc.KindError {
		a.rpcError = c.Err()
	}
}

// failed reports whether the response is an error with one of the codes, or any error if there are
// no codes.
func (a *reply) failed(codes ...jsonrpc.Code) bool {
	return a.rpcError != nil && (len(codes) == 0 || slices.Contains(codes, a.rpcError.Code))
}

func (a *reply) succeeded() bool { return a.state == answered && a.kind == jsonrpc.KindResponse }

// answers reports whether a message is the expected response.
func (q *outgoing) answers(m *jsonrpc.Message) bool {
	return wireclient.IsAnswer(m) && (q.id != "" && m.ID.Equal(jsonrpc.ID(q.id)) || q.anyID && (len(m.ID) == 0 || m.ID.IsNull()))
}

// take handles the messages in a frame or body, whose event has the number n, and reports whether
// the wait is over. answer responds to requests of the server.
func (a *reply) take(q *outgoing, text []byte, n uint64, answer func(*jsonrpc.Message)) (done bool) {
	for _, m := range wireclient.Messages(text) {
		switch {
		case q.answers(&m), a.status >= 400 && m.Kind == jsonrpc.KindError && a.text == nil:
			a.set(&m, text, n)
			return true
		case m.Kind == jsonrpc.KindRequest:
			answer(&m)
		case len(a.before) < maxBefore:
			a.before = append(a.before, earlierMessage{*m.Clone(), n})
		}
		if q.stopAt != nil && q.stopAt(&m) {
			a.state, a.event, a.dir = stoppedEarly, n, capture.ToClient
			return true
		}
	}
	return false
}

// clientResponse responds to a request of the server. A client without capabilities supports only
// ping.
func clientResponse(m *jsonrpc.Message) []byte {
	if string(m.Method) == mcp.MethodPing {
		return jsonrpc.AppendResult(nil, m.ID, []byte("{}"))
	}
	return jsonrpc.AppendError(nil, m.ID, jsonrpc.MethodNotFound(string(m.Method)), false)
}

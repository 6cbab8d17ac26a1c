package probe

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
)

// A link is one connection to the server: a process, or a series of HTTP exchanges. It is for one goroutine at a time.
type conn interface {
	// send sends bytes and waits for what answers them. Whatever goes wrong is told by the answer.
	send(ctx context.Context, q outgoing) reply
	// alive reports whether the connection is still good for more.
	alive() bool
	// close ends it.
	close()
}

// A question is something to send.
type outgoing struct {
	body []byte
	id   string // of the response to wait for, as JSON text; "" waits for none
	// anyID takes any message without an id, or with the id null, for the answer as well.
	anyID bool
	// stopAt ends waiting early when it says so of a message that is no answer. It may be nil.
	stopAt func(*jsonrpc.Message) bool
	wait   time.Duration // 0 is that of the options

	// Over HTTP.
	method string // "" is POST
	header func(http.Header)
	host   string
	// Over stdio: raw leaves out the line end, ending is another one than LF.
	noLineEnd   bool
	lineEnd     string
	receiveOnly bool // send nothing, and wait
}

// A fate is what came of a question.
type replyState int

const (
	answered     replyState = iota // by a response, or over HTTP by a status without one
	stoppedEarly                   // until said so
	timedOut                       // nothing came in time
	disconnected                   // the connection ended, or could not be made
	sentOnly                       // and no answer was waited for
)

// An answer is what came back.
type reply struct {
	state        replyState
	err          error         // why it is gone
	requestEvent uint64        // number of the event of the question
	event        uint64        // number of the event with the answer; of the question if there is none
	dir          capture.Dir   // of that event
	exchange     uint64        // the HTTP exchange
	took         time.Duration // until the answer
	text         []byte        // the message; nil if there is none
	kind         jsonrpc.Kind
	id           []byte // JSON text
	result       []byte
	rpcError     *jsonrpc.Error   // if it is an error
	before       []earlierMessage // that came first, without the requests of the server

	status int // 0 over stdio
	header http.Header
	body   []byte // that is no message
}

// A heard is a message that came before the answer.
type earlierMessage struct {
	jsonrpc.Message
	n uint64 // number of the event
}

// set makes a message the answer. It copies.
func (a *reply) set(m *jsonrpc.Message, text []byte, n uint64) {
	c := m.Clone()
	a.state, a.event, a.dir = answered, n, capture.ToClient
	a.text, a.kind, a.id, a.result = bytes.Clone(text), c.Kind, c.ID, c.Result
	if c.Kind == jsonrpc.KindError {
		a.rpcError = c.Err()
	}
}

// failed reports whether the answer is an error with one of the codes; without codes, any error.
func (a *reply) failed(codes ...jsonrpc.Code) bool {
	if a.rpcError == nil {
		return false
	}
	for _, c := range codes {
		if a.rpcError.Code == c {
			return true
		}
	}
	return len(codes) == 0
}

// succeeded reports whether the answer has a result.
func (a *reply) succeeded() bool { return a.state == answered && a.kind == jsonrpc.KindResponse }

// answers reports whether a message is what a question waits for.
func (q *outgoing) answers(m *jsonrpc.Message) bool {
	if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
		return false
	}
	if q.id != "" && sameID(m.ID, []byte(q.id)) {
		return true
	}
	return q.anyID && (len(m.ID) == 0 || m.ID.IsNull())
}

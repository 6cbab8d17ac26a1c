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
type link interface {
	// ask sends bytes and waits for what answers them. Whatever goes wrong is told by the answer.
	ask(ctx context.Context, q question) answer
	// alive reports whether the connection is still good for more.
	alive() bool
	// close ends it.
	close()
}

// A question is something to send.
type question struct {
	body []byte
	id   string // of the response to wait for, as JSON text; "" waits for none
	// any takes any message without an id, or with the id null, for the answer as well.
	any bool
	// until ends waiting early when it says so of a message that is no answer. It may be nil.
	until func(*jsonrpc.Message) bool
	wait  time.Duration // 0 is that of the options

	// Over HTTP.
	method string // "" is POST
	header func(http.Header)
	host   string
	// Over stdio: raw leaves out the line end, ending is another one than LF.
	raw    bool
	ending string
	listen bool // send nothing, and wait
}

// A fate is what came of a question.
type fate int

const (
	answered fate = iota // by a response, or over HTTP by a status without one
	stopped              // until said so
	silent               // nothing came in time
	gone                 // the connection ended, or could not be made
	sent                 // and no answer was waited for
)

// An answer is what came back.
type answer struct {
	fate   fate
	err    error         // why it is gone
	asked  uint64        // number of the event of the question
	at     uint64        // number of the event with the answer; of the question if there is none
	dir    capture.Dir   // of that event
	x      uint64        // the HTTP exchange
	took   time.Duration // until the answer
	text   []byte        // the message; nil if there is none
	kind   jsonrpc.Kind
	id     []byte // JSON text
	result []byte
	rpc    *jsonrpc.Error // if it is an error
	before []heard        // that came first, without the requests of the server

	status int // 0 over stdio
	header http.Header
	body   []byte // that is no message
}

// A heard is a message that came before the answer.
type heard struct {
	jsonrpc.Message
	n uint64 // number of the event
}

// take makes a message the answer. It copies.
func (a *answer) take(m *jsonrpc.Message, text []byte, n uint64) {
	c := m.Clone()
	a.fate, a.at, a.dir = answered, n, capture.ToClient
	a.text, a.kind, a.id, a.result = bytes.Clone(text), c.Kind, c.ID, c.Result
	if c.Kind == jsonrpc.KindError {
		a.rpc = c.Err()
	}
}

// failed reports whether the answer is an error with one of the codes; without codes, any error.
func (a *answer) failed(codes ...jsonrpc.Code) bool {
	if a.rpc == nil {
		return false
	}
	for _, c := range codes {
		if a.rpc.Code == c {
			return true
		}
	}
	return len(codes) == 0
}

// succeeded reports whether the answer has a result.
func (a *answer) succeeded() bool { return a.fate == answered && a.kind == jsonrpc.KindResponse }

// answers reports whether a message is what a question waits for.
func (q *question) answers(m *jsonrpc.Message) bool {
	if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
		return false
	}
	if q.id != "" && sameID(m.ID, []byte(q.id)) {
		return true
	}
	return q.any && (len(m.ID) == 0 || m.ID.IsNull())
}

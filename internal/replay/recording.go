package replay

import (
	"slices"
	"time"

	"mcpwire/internal/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Recording is what the client has said in a session, with what it was answered.
type Recording struct {
	Capture   string // id of the capture
	Session   uint64 // its number in the capture, or of modern requests over HTTP, which have no sessions, that of the first
	Name      string // of the server, as the capture has it
	Transport resend.Transport
	Modern    bool   // it has no handshake
	Revision  string // that was agreed on, or that requests say; "" if the capture does not say
	Redact    string // what was hidden: "default", "custom" or "off"
	First     uint64 // number of the event with the first message
	// Synthetic tells that the recording does not have the handshake, and that one is made up.
	Synthetic bool

	frames         []*frame
	calls          []*call
	serverRequests []*serverRequest
	unownedMethods []string // methods of notifications that belong to no request, each once
	standingStream bool     // the client had a standing stream open, or needed none for what it would bring
	params         map[string][]mcp.HeaderParam
}

// Requests is how many requests the client has sent.
func (r *Recording) Requests() int { return len(r.calls) }

// Has reports whether one of the requests is chosen, see [Options.Select]. All are if choose is nil.
func (r *Recording) Has(choose func(captureID string, n uint64) bool) bool {
	return choose == nil || slices.ContainsFunc(r.calls, func(c *call) bool { return choose(r.Capture, c.n) })
}

// A frame is what the client has sent at once.
type frame struct {
	n        uint64
	t        time.Duration
	since    time.Duration // when the last thing happened before that it may have waited for
	batch    bool
	elements []element
	after    []*call        // that were answered since the frame before
	reply    *serverRequest // it answers a request of the server, and is nothing else
	cut      bool           // the capture has only the beginning
	aborted  *call          // nothing was sent: the client ended the HTTP request of this one
	notified int            // of a frame that gives up a request: how many notifications had come for it
}

// An element is a message, alone or in a batch.
type element struct {
	raw          []byte
	m            jsonrpc.Message // aliases raw
	redacted     []string        // places that were hidden, as pointers into raw
	moreRedacted int             // places that are not in hidden
	call         *call           // that it begins; nil if it is no request
}

// A call is a request of the client's.
type call struct {
	index    int
	n        uint64
	t        time.Duration
	id       string // comparable
	method   string
	target   string
	token    string // of progress, JSON text
	exchange uint64

	response      *element // nil if none came
	responseT     time.Duration
	responseAt    time.Time
	status        int // of an HTTP response without an answer
	notifications notificationLog

	// inputRound is the request whose answer asked for input, which this one brings, and page the one whose answer has the cursor.
	inputRound, page *call
}

// An ask is a request of the server's.
type serverRequest struct {
	index        int
	n            uint64
	t            time.Duration
	at           time.Time
	method       string
	request      element
	reply        *element // nil if the client did not answer
	replyT       time.Duration
	pendingCalls []*call // that waited for their answer then
}

// idKey is equal for equal ids.
func idKey(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return `"` + s
	}
	return string(id)
}

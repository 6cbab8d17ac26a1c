package traffic

import (
	"iter"
	"time"

	"mcpwire/jsonrpc"
)

// A Place says where and when a frame was recorded.
type Place struct {
	// Capture is the id of the capture.
	Capture string
	// Session is the number of the session in the capture.
	Session uint64
	// Exchange is the number of the HTTP exchange in the capture, or 0.
	Exchange uint64
	// N is the number of the event.
	N uint64
	// Dir is "c2s", "s2c", or anything else if it is unknown.
	Dir string
	// T is the time since the head of the capture.
	T time.Duration
}

// A Call is a request with the facts that pairing needs.
type Call struct {
	Place
	// Index is the position in a batch.
	Index int
	ID    jsonrpc.ID
	// Method is the first KiB of the method name.
	Method string

	Answered bool
	// Failed reports that the response is an error.
	Failed bool
	// ResponseN is the number of the response's event.
	ResponseN uint64
	ResponseT time.Duration
	// Latency is the time from request to response.
	Latency time.Duration

	// Owner is free for use by the caller.
	Owner any

	key callKey
	// next is the next newer call with the same key.
	next *Call
	// newer and older are the neighbors among the pending calls.
	newer, older *Call
	pending      bool
}

// A Pairer matches responses with requests. A capture does not store the pairs, so that a corrected
// Pairer can read an old file correctly.
//
// Ids belong to the side that sent the request. They are compared by value: 1 is not "1". An id may
// be reused. Over HTTP, a Pairer first looks for the request in the exchange of the response, since
// unrelated clients use the same ids; then in the session, where it must be the only candidate.
type Pairer struct {
	max int
	// oldest and newest are the ends of the list of pending calls.
	oldest, newest *Call
	count          int
	// byID has the oldest pending call of each key.
	byID    map[callKey]*Call
	evicted []*Call
}

const (
	defaultMaxPending = 65536
	maxSameID         = 64      // pending requests with the same id, which the protocol forbids
	maxPairedID       = 1 << 10 // bytes; messages with longer ids are not paired
	maxMethod         = 1 << 10 // bytes of a method name that are kept
)

// A callKey identifies the sender and the id of a request.
type callKey struct {
	capture string
	session uint64
	dir     string
	id      string
}

// NewPairer returns a Pairer. maxPending limits the requests that wait for their response: a new
// request evicts the oldest. Zero means 65536.
func NewPairer(maxPending int) *Pairer {
	if maxPending <= 0 {
		maxPending = defaultMaxPending
	}
	return &Pairer{max: maxPending, byID: map[callKey]*Call{}}
}

// Add takes the messages of the next frame, and sets the Call of each request and of each response
// to a known request. Ids of more than 1 KiB are not paired.
func (p *Pairer) Add(at Place, messages []Message) {
	p.evicted = p.evicted[:0]
	for i := range messages {
		m := &messages[i]
		m.Call = nil
		switch {
		case len(m.ID) > maxPairedID:
		case m.Kind == jsonrpc.KindRequest:
			m.Call = p.request(at, m)
		case m.Kind == jsonrpc.KindResponse, m.Kind == jsonrpc.KindError:
			m.Call = p.response(at, m)
		}
	}
}

// Evicted returns the requests that the last Add evicted.
func (p *Pairer) Evicted() []*Call { return p.evicted }

// Pending returns the requests without a response, oldest first.
func (p *Pairer) Pending() iter.Seq[*Call] {
	return func(yield func(*Call) bool) {
		for c := p.oldest; c != nil; {
			next := c.newer
			if !yield(c) {
				return
			}
			c = next
		}
	}
}

// remove removes a call from the pending ones.
func (p *Pairer) remove(c *Call) {
	if !c.pending {
		return
	}
	c.pending = false
	p.count--
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		p.oldest = c.newer
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		p.newest = c.older
	}
	if first := p.byID[c.key]; first != c {
		for first.next != c {
			first = first.next
		}
		first.next = c.next
	} else if c.next != nil {
		p.byID[c.key] = c.next
	} else {
		delete(p.byID, c.key)
	}
	c.older, c.newer, c.next = nil, nil, nil
}

func opposite(dir string) string {
	switch dir {
	case "c2s":
		return "s2c"
	case "s2c":
		return "c2s"
	}
	return dir
}

func (p *Pairer) request(at Place, m *Message) *Call {
	c := &Call{Place: at, Index: m.Index, ID: m.ID.Clone(), Method: string(m.Method[:min(len(m.Method), maxMethod)])}
	c.key = callKey{at.Capture, at.Session, at.Dir, c.ID.Key()}
	if p.count >= p.max {
		p.evict(p.oldest)
	}
	same := 0
	last := p.byID[c.key]
	for o := last; o != nil; o = o.next {
		same, last = same+1, o
	}
	if same >= maxSameID {
		p.evict(p.byID[c.key])
	}
	if last == nil {
		p.byID[c.key] = c
	} else {
		last.next = c
	}
	c.pending = true
	p.count++
	if c.older = p.newest; c.older != nil {
		c.older.newer = c
	} else {
		p.oldest = c
	}
	p.newest = c
	return c
}

// evict stops waiting for the response to a call.
func (p *Pairer) evict(c *Call) {
	p.remove(c)
	p.evicted = append(p.evicted, c)
}

// response returns the call that a response answers, or nil, and completes the call.
func (p *Pairer) response(at Place, m *Message) *Call {
	if m.ID.IsNull() || len(m.ID) == 0 {
		return nil
	}
	first := p.byID[callKey{at.Capture, at.Session, opposite(at.Dir), string(m.ID.Canonical())}]
	c := first
	for c != nil && c.Exchange != at.Exchange {
		c = c.next
	}
	if c == nil && first != nil && first.next == nil {
		c = first
	}
	if c != nil {
		p.remove(c)
		c.setResponse(at, m)
	}
	return c
}

func (c *Call) setResponse(at Place, m *Message) {
	c.Answered, c.Failed = true, m.Kind == jsonrpc.KindError
	c.ResponseN, c.ResponseT = at.N, at.T
	c.Latency = at.T - c.T
}

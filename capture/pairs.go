package capture

import (
	"iter"
	"time"

	"mcpwire/internal/rpc/traffic"
	"mcpwire/jsonrpc"
)

const (
	// maxRequestBytes limits the payload bytes that Pairs keeps of one request.
	maxRequestBytes = 1 << 20
	// maxTotalBytes limits those of all pending requests.
	maxTotalBytes = 64 << 20
)

// A Call is a request with the facts that pairing needs.
type Call struct {
	// Capture is the id of the capture.
	Capture string
	// N is the number of the request's event.
	N uint64
	// Index is the position in a batch.
	Index int
	// T is the time of the request since the head of the capture, and At the head's time plus T.
	T  time.Duration
	At time.Time
	// Dir is the direction of the request.
	Dir Dir
	// Session and Exchange are those of the request's event. See [Event].
	Session, Exchange uint64
	// ID is the id of the request.
	ID jsonrpc.ID
	// Method is the first KiB of the method name.
	Method string

	// Answered reports whether there is a response. Otherwise the following fields are zero.
	Answered bool
	// Failed reports that the response is an error.
	Failed bool
	// ResponseN is the number of the response's event, and ResponseT its time since the head.
	ResponseN uint64
	ResponseT time.Duration
	// Latency is the time from request to response.
	Latency time.Duration
}

// An Exchange is a request with its response.
type Exchange struct {
	// Call describes the exchange.
	Call *Call
	// Request is the event with the request. Its Data is nil if the request was too large to keep,
	// see [Pairs]. It belongs to the caller.
	Request *Event
	// Response is the event with the response, or nil. It is valid until the next exchange.
	Response *Event
	// Index is the position of the response in a batch.
	Index int
}

// Pairs returns the requests of a capture with their responses, each when its response arrives. It
// yields a request without a response when the request is evicted or at the end.
//
// A capture does not store the pairs, so that a corrected Pairs can read an old file correctly. Ids
// belong to the side that sent the request. They are compared by value: 1 is not "1". An id may be
// reused. Over HTTP, Pairs first looks for the request in the exchange of the response, since
// unrelated clients use the same ids; then in the session, where it must be the only candidate. Ids
// of more than 1 KiB are not paired. At most 65,536 requests wait for their response; a new one
// evicts the oldest. Pairs keeps an event without its Data if that has more than 1 MiB, or together
// with that of the others more than 64 MiB.
func Pairs(events iter.Seq2[*Event, error]) iter.Seq2[Exchange, error] {
	return func(yield func(Exchange, error) bool) {
		p := &pairing{pairer: traffic.NewPairer(0)}
		for e, err := range events {
			if err != nil {
				if !yield(Exchange{}, err) {
					return
				}
				continue
			}
			if e.Kind != KindMessage || e.Cut {
				continue
			}
			for _, x := range p.add(e) {
				if !yield(x, nil) {
					return
				}
			}
		}
		for c := range p.pairer.Pending() {
			if !yield(p.exchange(c), nil) {
				return
			}
		}
	}
}

// A pairing is the state of Pairs.
type pairing struct {
	pairer *traffic.Pairer
	frame  traffic.Frame
	// keptBytes is the size of the payloads of the pending requests.
	keptBytes int
	list      []Exchange
}

// A keptRequest is the event of a pending request.
type keptRequest struct {
	event *Event
	bytes int
}

// add takes the next frame and returns the exchanges that are complete or given up.
func (p *pairing) add(e *Event) []Exchange {
	p.list = p.list[:0]
	p.frame.Parse(e.Data)
	p.pairer.Add(e.place(), p.frame.Messages)
	for i := range p.frame.Messages {
		m := &p.frame.Messages[i]
		switch c := m.Call; {
		case c == nil:
		case m.Kind != jsonrpc.KindRequest:
			x := p.exchange(c)
			x.Response, x.Index = e, m.Index
			p.list = append(p.list, x)
		default:
			c.Owner = p.keep(e)
		}
	}
	for _, c := range p.pairer.Evicted() {
		p.list = append(p.list, p.exchange(c))
	}
	return p.list
}

// place returns where the event was recorded.
func (e *Event) place() traffic.Place {
	return traffic.Place{Capture: e.Capture, Session: e.Session, Exchange: e.Exchange, N: e.N, Dir: string(e.Dir), T: e.T}
}

func (p *pairing) keep(e *Event) *keptRequest {
	kept := *e
	k := &keptRequest{event: &kept}
	kept.Data, kept.Frame = nil, nil
	if len(e.Data) <= maxRequestBytes && p.keptBytes+len(e.Data) <= maxTotalBytes {
		kept.Data = append([]byte{}, e.Data...)
		k.bytes = len(e.Data)
		p.keptBytes += k.bytes
	}
	return k
}

// exchange returns the exchange of a call that is no longer pending.
func (p *pairing) exchange(c *traffic.Call) Exchange {
	k := c.Owner.(*keptRequest)
	p.keptBytes -= k.bytes
	k.bytes = 0
	return Exchange{Request: k.event, Call: &Call{
		Capture: c.Capture, N: c.N, Index: c.Index, T: c.T, At: k.event.At, Dir: k.event.Dir, Session: c.Session, Exchange: c.Exchange, ID: c.ID, Method: c.Method,
		Answered: c.Answered, Failed: c.Failed, ResponseN: c.ResponseN, ResponseT: c.ResponseT, Latency: c.Latency,
	}}
}

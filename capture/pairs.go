package capture

import (
	"iter"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/jsonrpc"
)

// PairOptions are the options of [Pairs]. Nil means defaults.
type PairOptions struct {
	// MaxPending limits the requests that wait for their response. A new request evicts the oldest.
	// Zero means 65536.
	MaxPending int
	// MaxRequestBytes limits the payload bytes that Pairs keeps of one request; zero means 1 MiB.
	// MaxTotalBytes limits those of all pending requests; zero means 64 MiB. For larger requests
	// Pairs keeps the event without its Data.
	MaxRequestBytes, MaxTotalBytes int
	// Reorder is the number of messages by which a response may precede its request. Zero suits
	// captures that this package recorded, whose order is causal; converted captures may need more.
	Reorder int
}

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
	// Latency is the time from request to response. It is negative if the response was recorded
	// first.
	Latency time.Duration
}

// An Exchange is a request with its response.
type Exchange struct {
	// Call describes the exchange.
	Call *Call
	// Request is the event with the request. Its Data is nil if the request was too large to keep,
	// see [PairOptions]. It belongs to the caller.
	Request *Event
	// Response is the event with the response, or nil. It is valid until the next exchange.
	Response *Event
	// Index is the position of the response in a batch.
	Index int
}

// Pairs returns the requests of a capture with their responses, each when its response arrives. It
// yields a request without a response when the request is evicted or at the end. opts may be nil.
//
// A capture does not store the pairs, so that a corrected Pairs can read an old file correctly. Ids
// belong to the side that sent the request. They are compared by value: 1 is not "1". An id may be
// reused. Over HTTP, Pairs first looks for the request in the exchange of the response, since
// unrelated clients use the same ids; then in the session, where it must be the only candidate. Ids
// of more than 1 KiB are not paired. The options bound the memory.
func Pairs(events iter.Seq2[*Event, error], opts *PairOptions) iter.Seq2[Exchange, error] {
	return func(yield func(Exchange, error) bool) {
		p := newPairing(opts)
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
	opts   PairOptions
	pairer *traffic.Pairer
	frame  traffic.Frame
	// keptBytes is the size of the payloads of the pending requests.
	keptBytes int
	// early has the unmatched responses, oldest first.
	early []earlyResponse
	// seen counts messages.
	seen int
	list []Exchange
}

// A keptRequest is the event of a pending request.
type keptRequest struct {
	event *Event
	bytes int
}

// An earlyResponse is a response whose request may follow.
type earlyResponse struct {
	message traffic.Message
	event   *Event
	seen    int
}

func newPairing(opts *PairOptions) *pairing {
	p := &pairing{}
	if opts != nil {
		p.opts = *opts
	}
	defaults.IfNotPositive(&p.opts.MaxRequestBytes, 1<<20)
	defaults.IfNotPositive(&p.opts.MaxTotalBytes, 64<<20)
	p.pairer = traffic.NewPairer(p.opts.MaxPending)
	return p
}

// add takes the next frame and returns the exchanges that are complete or given up.
func (p *pairing) add(e *Event) []Exchange {
	p.list = p.list[:0]
	p.frame.Parse(e.Data)
	p.pairer.Add(e.place(), p.frame.Messages)
	for i := range p.frame.Messages {
		m := &p.frame.Messages[i]
		p.seen++
		switch c := m.Call; {
		case c == nil:
			p.keepEarly(e, m)
		case m.Kind != jsonrpc.KindRequest:
			x := p.exchange(c)
			x.Response, x.Index = e, m.Index
			p.list = append(p.list, x)
		default:
			c.Owner = p.keep(e)
			if r := p.findEarly(c); r != nil {
				p.pairer.Remove(c)
				x := p.exchange(c)
				x.Response, x.Index = r.event, r.message.Index
				p.list = append(p.list, x)
			}
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
	if len(e.Data) <= p.opts.MaxRequestBytes && p.keptBytes+len(e.Data) <= p.opts.MaxTotalBytes {
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

// keepEarly keeps a response to an unknown request, which may follow.
func (p *pairing) keepEarly(e *Event, m *traffic.Message) {
	if p.opts.Reorder <= 0 || m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError || len(m.ID) == 0 || m.ID.IsNull() {
		return
	}
	kept := *e
	if kept.Data, kept.Frame = nil, nil; len(e.Data) <= p.opts.MaxRequestBytes {
		kept.Data = append([]byte{}, e.Data...)
	}
	early := traffic.Message{Index: m.Index}
	early.Kind, early.ID = m.Kind, m.ID.Clone()
	p.early = append(p.early, earlyResponse{early, &kept, p.seen})
	if len(p.early) > p.opts.Reorder {
		p.early = p.early[1:]
	}
}

// findEarly completes a call with the response that was recorded before it, and returns that, or
// nil.
func (p *pairing) findEarly(c *traffic.Call) *earlyResponse {
	for len(p.early) > 0 && p.seen-p.early[0].seen > p.opts.Reorder {
		p.early = p.early[1:]
	}
	for i := range p.early {
		if r := p.early[i]; c.Answer(r.event.place(), &r.message) {
			p.early = append(p.early[:i:i], p.early[i+1:]...)
			return &r
		}
	}
	return nil
}

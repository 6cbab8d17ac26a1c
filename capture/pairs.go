package capture

import (
	"container/list"
	"iter"
	"time"

	"mcpwire/internal/defaults"
	"mcpwire/jsonrpc"
)

// PairOptions are the options of a [Pairer] and of [Pairs]. nil means defaults.
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
	Capture string
	// N is the number of the request's event.
	N uint64
	// Index is the position in a batch.
	Index int
	// T is the time of the request since the head of the capture.
	T       time.Duration
	At      time.Time
	Dir     Dir
	Session uint64
	// Exchange is the HTTP exchange that carried the request.
	Exchange uint64
	ID       jsonrpc.ID
	Method   string

	Answered bool
	// Failed reports that the response is an error.
	Failed bool
	// ResponseN is the number of the response's event.
	ResponseN uint64
	ResponseT time.Duration
	// Latency is the time from request to response. It is negative if the response was recorded
	// first.
	Latency time.Duration

	// event is kept for Pairs.
	event     *Event
	keptBytes int
	// elem is the element in pending.
	elem *list.Element
}

// A Message is one message of an event.
type Message struct {
	// Index is the position in a batch, or 0.
	Index int
	Batch bool
	Kind  jsonrpc.Kind
	// ID belongs to the caller.
	ID jsonrpc.ID
	// Method is the first KiB of the method name.
	Method string
	// Call is this request, or the request that this response answers. It is nil for notifications,
	// for responses to unknown requests, and for ids of more than 1 KiB.
	Call *Call
	// Late is the response to this request if it was recorded first; see PairOptions.Reorder.
	Late *Message

	event *Event
	seen  int
}

// A Pairer matches responses with requests. A capture does not store the pairs, so that a corrected
// Pairer can read an old file correctly.
//
// Ids belong to the side that sent the request. They are compared by value: 1 is not "1". An id may
// be reused. Over HTTP, a Pairer first looks for the request in the exchange of the response, since
// unrelated clients use the same ids; then in the session, where it must be the only candidate.
//
// Its options bound its memory. It is not safe for concurrent use.
type Pairer struct {
	opts PairOptions
	// pending has the *Call values, oldest first.
	pending *list.List
	byID    map[callKey][]*Call
	// early has the unmatched responses, oldest first.
	early []*Message
	// seen counts messages.
	seen         int
	keptBytes    int
	keepPayloads bool
	evicted      []*Call
	parts        []Message
}

const (
	maxSameID   = 64      // pending requests with the same id, which the protocol forbids
	maxPairedID = 1 << 10 // bytes; messages with longer ids are not paired
	maxMethod   = 1 << 10 // bytes of a method name that are kept
)

// A callKey identifies the sender and the id of a request.
type callKey struct {
	capture string
	session uint64
	dir     Dir
	id      string
}

// NewPairer returns a Pairer. opts may be nil.
func NewPairer(opts *PairOptions) *Pairer {
	p := &Pairer{pending: list.New(), byID: map[callKey][]*Call{}}
	if opts != nil {
		p.opts = *opts
	}
	defaults.IfNotPositive(&p.opts.MaxPending, 65536)
	defaults.IfNotPositive(&p.opts.MaxRequestBytes, 1<<20)
	defaults.IfNotPositive(&p.opts.MaxTotalBytes, 64<<20)
	return p
}

// Add takes the next event and returns its messages: none, one, or those of a batch. The slice is
// valid until the next call. Add completes a Call later, when its response arrives.
func (p *Pairer) Add(e *Event) []Message {
	p.parts, p.evicted = p.parts[:0], p.evicted[:0]
	if e.Kind != KindMessage || e.Cut || len(e.Data) == 0 {
		return nil
	}
	if jsonrpc.IsBatch(e.Data) {
		entries, err := jsonrpc.ParseBatch(e.Data, 0)
		if err != nil {
			return nil
		}
		for i := range entries {
			if entries[i].Invalid == nil {
				p.add(e, &entries[i].Message, i, true)
			}
		}
		return p.parts
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(e.Data, &m, 0) == nil {
		p.add(e, &m, 0, false)
	}
	return p.parts
}

// Pending returns the requests without a response, oldest first.
func (p *Pairer) Pending() iter.Seq[*Call] {
	return func(yield func(*Call) bool) {
		for el := p.pending.Front(); el != nil; {
			next := el.Next()
			if !yield(el.Value.(*Call)) {
				return
			}
			el = next
		}
	}
}

func (p *Pairer) add(e *Event, m *jsonrpc.Message, index int, batch bool) {
	p.seen++
	part := Message{Index: index, Batch: batch, Kind: m.Kind, ID: m.ID.Clone(), Method: string(m.Method[:min(len(m.Method), maxMethod)]), seen: p.seen}
	switch {
	case len(m.ID) > maxPairedID:
	case m.Kind == jsonrpc.KindRequest:
		p.request(e, &part)
	case m.Kind == jsonrpc.KindResponse, m.Kind == jsonrpc.KindError:
		p.response(e, &part)
	}
	p.parts = append(p.parts, part)
}

func (p *Pairer) request(e *Event, part *Message) {
	c := &Call{
		Capture: e.Capture, N: e.N, Index: part.Index, T: e.T, At: e.At, Dir: e.Dir,
		Session: e.Session, Exchange: e.Exchange, ID: part.ID, Method: part.Method,
	}
	part.Call = c
	if p.keepPayloads {
		p.keepEvent(c, e)
	}
	if late := p.findEarly(c); late != nil {
		part.Late = late
		c.setResponse(late.event, late.Kind)
		p.keptBytes -= c.keptBytes
		return
	}
	k := c.key()
	if p.pending.Len() >= p.opts.MaxPending {
		p.evict(p.pending.Front().Value.(*Call))
	}
	if list := p.byID[k]; len(list) >= maxSameID {
		p.evict(list[0])
	}
	p.byID[k] = append(p.byID[k], c)
	c.elem = p.pending.PushBack(c)
}

// evict stops waiting for the response to a call.
func (p *Pairer) evict(c *Call) {
	p.remove(c)
	p.evicted = append(p.evicted, c)
}

// keepEvent keeps the event of a request for Pairs.
func (p *Pairer) keepEvent(c *Call, e *Event) {
	kept := *e
	kept.Data = nil
	if len(e.Data) <= p.opts.MaxRequestBytes && p.keptBytes+len(e.Data) <= p.opts.MaxTotalBytes {
		kept.Data = append([]byte{}, e.Data...)
		c.keptBytes = len(e.Data)
		p.keptBytes += c.keptBytes
	}
	c.event = &kept
}

func (c *Call) key() callKey {
	return callKey{c.Capture, c.Session, c.Dir, c.ID.Key()}
}

func (c *Call) setResponse(e *Event, kind jsonrpc.Kind) {
	c.Answered, c.Failed = true, kind == jsonrpc.KindError
	c.ResponseN, c.ResponseT = e.N, e.T
	c.Latency = e.T - c.T
}

// remove removes a call from the pending ones.
func (p *Pairer) remove(c *Call) {
	if c.elem == nil {
		return
	}
	p.pending.Remove(c.elem)
	c.elem = nil
	p.keptBytes -= c.keptBytes
	c.keptBytes = 0
	k := c.key()
	list := p.byID[k]
	for i, o := range list {
		if o == c {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(p.byID, k)
	} else {
		p.byID[k] = list
	}
}

func (d Dir) opposite() Dir {
	switch d {
	case ToServer:
		return ToClient
	case ToClient:
		return ToServer
	}
	return d
}

func (p *Pairer) response(e *Event, part *Message) {
	if part.ID.IsNull() || len(part.ID) == 0 {
		return
	}
	k := callKey{e.Capture, e.Session, e.Dir.opposite(), part.ID.Key()}
	var found *Call
	candidates := p.byID[k]
	for _, c := range candidates {
		if c.Exchange == e.Exchange {
			found = c
			break
		}
	}
	if found == nil && len(candidates) == 1 {
		found = candidates[0]
	}
	if found != nil {
		p.remove(found)
		found.setResponse(e, part.Kind)
		part.Call = found
		return
	}
	if p.opts.Reorder > 0 {
		early := *part
		kept := *e
		if kept.Data = nil; p.keepPayloads && len(e.Data) <= p.opts.MaxRequestBytes {
			kept.Data = append([]byte{}, e.Data...)
		}
		early.event = &kept
		p.early = append(p.early, &early)
		if len(p.early) > p.opts.Reorder {
			p.early = p.early[1:]
		}
	}
}

// findEarly returns the response to a call that was recorded before it, or nil.
func (p *Pairer) findEarly(c *Call) *Message {
	for len(p.early) > 0 && p.seen-p.early[0].seen > p.opts.Reorder {
		p.early = p.early[1:]
	}
	for i, r := range p.early {
		if (callKey{r.event.Capture, r.event.Session, r.event.Dir.opposite(), r.ID.Key()}) == c.key() && r.event.Exchange == c.Exchange {
			p.early = append(p.early[:i:i], p.early[i+1:]...)
			return r
		}
	}
	return nil
}

// An Exchange is a request with its response.
type Exchange struct {
	Call *Call
	// Request is the event with the request. Its Data is nil if the request was too large to keep,
	// see [PairOptions]. It belongs to the caller.
	Request *Event
	// Response is the event with the response, or nil. It is valid until the next
	// exchange.
	Response *Event
	// Index is the position of the response in a batch.
	Index int
}

// Pairs returns the requests of a capture with their responses, each when its response arrives. It
// yields a request without a response when the request is evicted or at the end. See [Pairer]. opts
// may be nil.
func Pairs(events iter.Seq2[*Event, error], opts *PairOptions) iter.Seq2[Exchange, error] {
	return func(yield func(Exchange, error) bool) {
		p := NewPairer(opts)
		p.keepPayloads = true
		for e, err := range events {
			if err != nil {
				if !yield(Exchange{}, err) {
					return
				}
				continue
			}
			for _, part := range p.Add(e) {
				if part.Call == nil || part.Kind == jsonrpc.KindRequest && part.Late == nil {
					continue
				}
				x := Exchange{Call: part.Call, Request: part.Call.event, Response: e, Index: part.Index}
				if part.Late != nil {
					x.Response, x.Index = part.Late.event, part.Late.Index
				}
				part.Call.event = nil
				if !yield(x, nil) {
					return
				}
			}
			for _, c := range p.evicted {
				if !yield(Exchange{Call: c, Request: c.event}, nil) {
					return
				}
			}
		}
		for c := range p.Pending() {
			if !yield(Exchange{Call: c, Request: c.event}, nil) {
				return
			}
		}
	}
}

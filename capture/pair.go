package capture

import (
	"iter"

	"mcpwire/jsonrpc"
)

// An Exchange is a request with the response to it.
type Exchange struct {
	Call *Call
	// Request is the event that the request was in. Its Data is nil if the request was too large to be kept, see [PairOptions]. It belongs to the caller.
	Request *Event
	// Response is the event that the response was in, nil if none came. It is good until the next exchange.
	Response *Event
	// Index is the place of the response in a batch.
	Index int
}

// Pairs returns the requests of a capture with their responses, each when its response has come, and in the end those that have none. See [Pairer].
// opts may be nil.
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

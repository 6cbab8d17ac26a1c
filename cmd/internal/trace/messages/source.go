// Package messages parses the messages of recorded events, once, and pairs responses with their
// requests.
package messages

import (
	"mcpwire/capture"
	"mcpwire/internal/rpc/traffic"
)

// A Source parses and pairs the messages of one timeline. It is not safe for concurrent use.
type Source struct {
	pairer *traffic.Pairer
	frame  traffic.Frame
}

// New returns a Source. maxPending limits the requests that wait for their response: a new request
// evicts the oldest. Zero means 65536.
func New(maxPending int) *Source { return &Source{pairer: traffic.NewPairer(maxPending)} }

// Add takes the next event and returns its messages, each request and response with its call. It
// returns nil if the event has no complete frame. It takes Event.Frame if that is set, and parses
// the payload otherwise. The frame is valid until the next call.
func (s *Source) Add(e *capture.Event) *traffic.Frame {
	if e.Kind != capture.KindMessage || e.Cut {
		return nil
	}
	f := e.Frame.Or(&s.frame, e.Data)
	s.pairer.Add(traffic.Place{Capture: e.Capture, Session: e.Session, Exchange: e.Exchange, N: e.N, Dir: string(e.Dir), T: e.T}, f.Messages)
	return f
}

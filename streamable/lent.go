package streamable

import (
	"sync"

	"mcpwire/jsonrpc"
)

// A lent is an outlet that is used again by another request when the one that it is lent to has been answered.
type revocableSender struct {
	mu  sync.Mutex
	out jsonrpc.Sender // nil if it has been taken back
}

// newRevocableSender returns an outlet that is out until end is called; nil for nil.
func newRevocableSender(out jsonrpc.Sender) (_ jsonrpc.Sender, revoke func()) {
	if out == nil {
		return nil, func() {}
	}
	s := &revocableSender{out: out}
	return s, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out = nil
	}
}

// Send implements [jsonrpc.Sender].
func (s *revocableSender) Send(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		return jsonrpc.ErrRequestEnded
	}
	return s.out.Send(message)
}

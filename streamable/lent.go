package streamable

import (
	"sync"

	"mcpwire/jsonrpc"
)

// A lent is an outlet that is used again by another request when the one that it is lent to has been answered.
type lent struct {
	mu  sync.Mutex
	out jsonrpc.Outlet // nil if it has been taken back
}

// lend returns an outlet that is out until end is called; nil for nil.
func lend(out jsonrpc.Outlet) (_ jsonrpc.Outlet, end func()) {
	if out == nil {
		return nil, func() {}
	}
	l := &lent{out: out}
	return l, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.out = nil
	}
}

// Send implements [jsonrpc.Outlet].
func (l *lent) Send(message []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return jsonrpc.ErrRequestEnded
	}
	return l.out.Send(message)
}

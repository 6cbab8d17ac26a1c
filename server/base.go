package server

import (
	"context"
	"time"

	"mcpwire/jsonrpc"
)

// A base is the context of what belongs to no request of a session: it ends with the connection. It is made when it is needed, which it never is in most sessions.
type base struct {
	context.Context // has the values
	conn            *jsonrpc.Conn
}

func (s *session) base() context.Context { return &base{context.WithoutCancel(s.values), s.conn} }

// Deadline implements [context.Context].
func (b *base) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements [context.Context].
func (b *base) Done() <-chan struct{} { return b.conn.Done() }

// Err implements [context.Context].
func (b *base) Err() error {
	select {
	case <-b.conn.Done():
		return context.Canceled
	default:
		return nil
	}
}

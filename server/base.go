package server

import (
	"context"
	"time"

	"mcpwire/jsonrpc"
)

// A base is the context of what belongs to no request of a session: it ends with the connection. It is made when it is needed, which it never is in most sessions.
type sessionContext struct {
	context.Context // has the values
	conn            *jsonrpc.Conn
}

func (s *session) context() context.Context {
	return &sessionContext{context.WithoutCancel(s.ctxValues), s.conn}
}

// Deadline implements [context.Context].
func (sc *sessionContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements [context.Context].
func (sc *sessionContext) Done() <-chan struct{} { return sc.conn.Done() }

// Err implements [context.Context].
func (sc *sessionContext) Err() error {
	select {
	case <-sc.conn.Done():
		return context.Canceled
	default:
		return nil
	}
}

package rpc

import (
	"context"
	"errors"
	"io"

	"mcpwire/jsonrpc"
)

// A Backend is what a transport that delivers each message separately, such as HTTP, needs of a
// server: detached connections.
type Backend interface {
	// OpenSession returns a connection for one session of a legacy client, which starts with
	// initialize. out takes messages that belong to no request. ctx supplies the identity. The
	// caller must call end once, which closes the connection and removes the session.
	OpenSession(ctx context.Context, out jsonrpc.Sender) (c *Conn, end func())
	// OpenStateless returns a connection for the requests of all modern clients. Each [Delivery]
	// must be Untracked and have its own Sender and its own identity in its context. Closing the
	// connection ends its subscriptions, but the transport must finish those delivered with
	// AllowDeferred. OpenStateless returns nil if the server speaks no modern revision.
	OpenStateless() *Conn
}

// A BackendRequest is the Framer with which a transport asks a server for its Backend, through the
// method Serve that all servers have: a server of this module sets Backend and returns at once, and
// one that wraps it passes the request on. So the Backend needs no exported method. For all others
// it is a framer at its end.
type BackendRequest struct {
	// Backend is nil until a server sets it.
	Backend Backend
}

// ReadFrame implements [jsonrpc.Framer].
func (*BackendRequest) ReadFrame() ([]byte, error) { return nil, io.EOF }

// WriteFrame implements [jsonrpc.Framer].
func (*BackendRequest) WriteFrame([]byte) error { return errors.New("nobody reads a BackendRequest") }

// Close implements [jsonrpc.Framer].
func (*BackendRequest) Close() error { return nil }

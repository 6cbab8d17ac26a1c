package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"mcpwire/jsonrpc"
)

// A Transport opens connections to one server. *stdio.Cmd is one: each connection is a fresh process.
type Transport interface {
	// Connect opens a connection. ctx covers the opening only; when a lost connection is replaced, it ends with the Client and not before, so what may hang
	// needs a bound of its own. The framer is closed when the connection is no longer used. An error that wraps
	// [ErrNoReconnect] means that there will never be another one.
	Connect(ctx context.Context) (jsonrpc.Framer, error)
}

// TransportFunc is a Transport that calls itself.
type TransportFunc func(ctx context.Context) (jsonrpc.Framer, error)

// Connect implements [Transport].
func (f TransportFunc) Connect(ctx context.Context) (jsonrpc.Framer, error) { return f(ctx) }

// ErrNoReconnect is wrapped by what [Transport.Connect] returns when the transport cannot open another connection.
var ErrNoReconnect = errors.New("transport cannot connect again")

// Over returns the Transport of one connection that exists already, a socket or a net.Pipe for example (see [jsonrpc.NewFramer]). It connects once.
func Over(f jsonrpc.Framer) Transport { return &singleTransport{framer: f} }

// A single is what Over returns.
type singleTransport struct {
	framer jsonrpc.Framer
	used   atomic.Bool
}

// Connect implements [Transport].
func (s *singleTransport) Connect(context.Context) (jsonrpc.Framer, error) {
	if s.used.Swap(true) {
		return nil, fmt.Errorf("connect: %w: it was given one connection only, see client.Over", ErrNoReconnect)
	}
	return s.framer, nil
}

package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"mcpwire/jsonrpc"
)

// A Carrier opens connections to one server. *stdio.Cmd is one: each connection is a fresh process.
type Carrier interface {
	// Connect opens a connection. ctx covers the opening only; when a lost connection is replaced, it ends with the Client and not before, so what may hang
	// needs a bound of its own. The framer is closed when the connection is no longer used. An error that wraps
	// [ErrNoReconnect] means that there will never be another one.
	Connect(ctx context.Context) (jsonrpc.Framer, error)
}

// CarrierFunc is a Carrier that calls itself.
type CarrierFunc func(ctx context.Context) (jsonrpc.Framer, error)

// Connect implements [Carrier].
func (f CarrierFunc) Connect(ctx context.Context) (jsonrpc.Framer, error) { return f(ctx) }

// ErrNoReconnect is wrapped by what [Carrier.Connect] returns when the carrier cannot open another connection.
var ErrNoReconnect = errors.New("carrier cannot connect again")

// Over returns the Carrier of one connection that exists already, a socket or a net.Pipe for example (see [jsonrpc.NewFramer]). It connects once.
func Over(f jsonrpc.Framer) Carrier { return &single{framer: f} }

// A single is what Over returns.
type single struct {
	framer jsonrpc.Framer
	taken  atomic.Bool
}

// Connect implements [Carrier].
func (s *single) Connect(context.Context) (jsonrpc.Framer, error) {
	if s.taken.Swap(true) {
		return nil, fmt.Errorf("connect: %w: it was given one connection only, see client.Over", ErrNoReconnect)
	}
	return s.framer, nil
}

package streamable

import (
	"context"
	"errors"
	"net"
	"sync"
)

// dialedConns are the network connections of a carrier's own HTTP client. They end with the last framer: what net/http is told to close when idle may look busy for a moment longer, and
// stays for as long as it may be idle then. So does what it was about to dial. The zero value has none, and no framer.
type dialedConns struct {
	mu      sync.Mutex
	framers int
	open    map[*dialedConn]struct{}
}

// A dialedConn is one of them.
type dialedConn struct {
	net.Conn
	all *dialedConns
}

func (c *dialedConn) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

var errNobodyConnected = errors.New("the carrier has no connections any more")

// dialer returns a function that dials as dial does.
func (a *dialedConns) dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.framers == 0 {
			c.Close()
			return nil, errNobodyConnected
		}
		if a.open == nil {
			a.open = make(map[*dialedConn]struct{})
		}
		d := &dialedConn{c, a}
		a.open[d] = struct{}{}
		return d, nil
	}
}

// enter counts a framer in.
func (a *dialedConns) enter() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.framers++
}

// leave counts a framer out, and closes everything after the last one.
func (a *dialedConns) leave() {
	a.mu.Lock()
	a.framers--
	var open []*dialedConn
	if a.framers == 0 {
		for c := range a.open {
			open = append(open, c)
		}
	}
	a.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

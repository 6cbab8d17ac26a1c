package streamable

import (
	"context"
	"errors"
	"net"
	"sync"
)

// dialedConns are the network connections of a transport's own HTTP client. They end with the last framer: what net/http is told to close when idle may look busy for a moment longer, and
// stays for as long as it may be idle then. So does what it was about to dial. The zero value has none, and no framer.
type dialedConns struct {
	mu      sync.Mutex
	framers int
	conns   map[*dialedConn]struct{}
}

// A dialedConn is one of them.
type dialedConn struct {
	net.Conn
	set *dialedConns
}

func (c *dialedConn) Close() error {
	c.set.mu.Lock()
	delete(c.set.conns, c)
	c.set.mu.Unlock()
	return c.Conn.Close()
}

var errTransportClosed = errors.New("the transport has no connections any more")

// dialer returns a function that dials as dial does.
func (dc *dialedConns) dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		dc.mu.Lock()
		defer dc.mu.Unlock()
		if dc.framers == 0 {
			c.Close()
			return nil, errTransportClosed
		}
		if dc.conns == nil {
			dc.conns = make(map[*dialedConn]struct{})
		}
		d := &dialedConn{c, dc}
		dc.conns[d] = struct{}{}
		return d, nil
	}
}

// acquire counts a framer in.
func (dc *dialedConns) acquire() {
	dc.mu.Lock()
	defer dc.mu.Unlock()
	dc.framers++
}

// release counts a framer out, and closes everything after the last one.
func (dc *dialedConns) release() {
	dc.mu.Lock()
	dc.framers--
	var open []*dialedConn
	if dc.framers == 0 {
		for c := range dc.conns {
			open = append(open, c)
		}
	}
	dc.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

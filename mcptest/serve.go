package mcptest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"mcpwire/jsonrpc"
)

// A Server answers what a framer reads. *server.Server is one, and whatever wraps it for package stdio.
type Server interface {
	// Serve runs until the framer's input ends and what it accepted is answered, or until ctx ends.
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// serveTimeout is how long a server may take to return once its connection is closed. Those of package server have deadlines of their own, which
// are shorter.
const serveTimeout = 30 * time.Second

// Serve runs a server in memory and returns the client's end of its connection: for [NewPeer], or for a client to dial. When the test ends, the
// connection is closed; the test fails if the server then returns an error, or does not return within 30 seconds.
//
// That a client hangs up before it has read all answers is not the server's error.
func Serve(t testing.TB, srv Server) *End {
	t.Helper()
	clientEnd, serverEnd := Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- srv.Serve(ctx, serverEnd)
		serverEnd.Close() // as it should have been
	}()
	t.Cleanup(func() {
		t.Helper()
		defer cancel()
		clientEnd.Close()
		timer := time.NewTimer(serveTimeout)
		defer timer.Stop()
		select {
		case err := <-served:
			if err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the server failed: %v", err)
			}
		case <-timer.C:
			t.Errorf("the server has not returned within %v of the end of its connection", serveTimeout)
		}
	})
	return clientEnd
}

package mcptest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpwire/client"
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

// Connect runs a server in memory, as [Serve] does, and dials it. opts may be nil; with the zero value, the newest revision is spoken that both have.
// Options.Revisions is how to test the others. The client is closed when the test ends, and the test fails at once if it cannot be dialed.
func Connect(t testing.TB, srv Server, opts *client.Options) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Over(Serve(t, srv)), opts)
	if err != nil {
		t.Fatalf("dial the server under test: %v", err)
	}
	t.Cleanup(func() {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}

// scriptTimeout is how long a script may go on when the test has ended, beyond what its waits take.
const scriptTimeout = 30 * time.Second

// Script runs play on a goroutine of its own, with a peer that plays the server, and returns the other end of its connection: for the client under
// test to dial. In play, what fails ends play alone, and hangs up, so that the client's calls fail too. Play must not call methods of t that end
// the test, such as t.Fatal.
//
// The connection stays open when play has returned. When the test ends, play must have been played to its end, and the client should have hung up;
// messages that came and that play did not expect fail the test.
func Script(t testing.TB, script func(p *Peer)) *End {
	t.Helper()
	clientEnd, serverEnd := Pipe()
	p := newPeer(t, serverEnd)
	p.script = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		script(p)
	}()
	t.Cleanup(func() {
		t.Helper()
		defer clientEnd.Close()
		clientEnd.CloseWrite()
		timer := time.NewTimer(scriptTimeout)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
			t.Errorf("the script has not returned within %v of the end of the test", scriptTimeout)
			return
		}
		p.closeAndCheck()
	})
	return clientEnd
}

// CheckLeaks fails the test if goroutines that have been started since still run when it ends, and shows their stacks. It gives them half a second
// to return. Call it first, so that it looks last, behind the cleanup of [Serve] and [NewPeer]:
//
//	func TestServer(t *testing.T) {
//		mcptest.CheckLeaks(t)
//		p := mcptest.NewPeer(t, mcptest.Serve(t, newServer(t)))
//		…
//
// It sees all goroutines of the process, so a test that runs in parallel with others cannot use it. A bubble of testing/synctest needs no such
// check: it panics if a goroutine is left waiting when its test has ended.
func CheckLeaks(t testing.TB) {
	t.Helper()
	since := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		t.Helper()
		if err := goleak.Find(since); err != nil {
			t.Errorf("goroutines are left behind: %v", err)
		}
	})
}

package mcptest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpwire/client"
	"mcpwire/internal/base/wait"
	"mcpwire/jsonrpc"
)

// serveTimeout limits how long a server may run after its connection was closed. The timeouts of
// package server are shorter.
const serveTimeout = 30 * time.Second

// Serve runs a server in memory and returns the client's end of its connection, for [NewPeer] or
// for a client to dial. At the end of the test it closes the connection. The test fails if the
// server then returns an error, or does not return within 30 seconds.
//
// A client that closes the connection before it has read all responses is not an error of the
// server.
//
// Serve also finds handlers that have side effects before they ask the client; see [RerunCheck].
func Serve(t testing.TB, srv jsonrpc.Server) jsonrpc.Framer {
	t.Helper()
	clientEnd, serverEnd := newPipe()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	framer, stop := jsonrpc.Framer(serverEnd), func() {}
	if rf := newRerunFramer(t, srv, serverEnd); rf != nil {
		framer, stop = rf, rf.stop
	}
	go func() {
		served <- srv.Serve(ctx, framer)
		serverEnd.Close() // in case the server did not
	}()
	t.Cleanup(func() {
		t.Helper()
		defer cancel()
		defer stop()
		clientEnd.Close()
		select {
		case err := <-served:
			if err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the server failed: %v", err)
			}
		case <-time.After(serveTimeout):
			t.Errorf("the server has not returned within %v of the end of its connection", serveTimeout)
		}
	})
	return clientEnd
}

// Connect runs a server in memory, like [Serve], and dials it. opts may be nil. The zero value
// negotiates the newest common revision; set Options.Revisions to test others. Connect fails the
// test at once if dialing fails. It closes the client at the end of the test.
func Connect(t testing.TB, srv jsonrpc.Server, opts *client.Options) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.FramerTransport(Serve(t, srv)), opts)
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

// scriptTimeout limits how long a script may run after the end of the test.
const scriptTimeout = 30 * time.Second

// Script runs script on its own goroutine, with a peer that acts as the server. It returns the
// other end of the connection, for the client under test to dial. A failure in script ends only
// script and closes the connection, so that the client's calls fail too. script must not call
// methods of t that end the test, such as t.Fatal.
//
// The connection stays open after script has returned. At the end of the test, script must return,
// and the client should have closed the connection. Messages that script did not expect fail the
// test.
func Script(t testing.TB, script func(p *Peer)) jsonrpc.Framer {
	t.Helper()
	clientEnd, serverEnd := newPipe()
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
		if !wait.Closed(done, scriptTimeout) {
			t.Errorf("the script has not returned within %v of the end of the test", scriptTimeout)
			return
		}
		p.closeAndCheck()
	})
	return clientEnd
}

// CheckLeaks fails the test if goroutines that were started after the call still run at its end,
// and shows their stacks. It gives them half a second to return. Call it first, so that it runs
// after the cleanup of [Serve] and [NewPeer]:
//
//	func TestServer(t *testing.T) {
//		mcptest.CheckLeaks(t)
//		p := mcptest.NewPeer(t, mcptest.Serve(t, newServer(t)))
//		…
//
// It checks all goroutines of the process, so parallel tests cannot use it. A bubble of
// testing/synctest needs no such check: it panics if a goroutine is blocked after its test has
// ended.
func CheckLeaks(t testing.TB) {
	t.Helper()
	since := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		t.Helper()
		if err := goleak.Find(since); err != nil {
			t.Errorf("leaked goroutines: %v", err)
		}
	})
}

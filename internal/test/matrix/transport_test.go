package matrix

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcptest"
	"mcpwire/server"
	"mcpwire/stdio"
)

// A host is a transport that starts a server for each connection, or one server for all connections
// over HTTP. It fails the test if a server fails.
type host struct {
	t         testing.TB
	server    string
	principal string
	framing   jsonrpc.Framing
	// pipe returns the two ends of a connection. Nil runs the server as a child process.
	pipe func() (local, remote stream)
	// web is nil without HTTP.
	web     *web
	opening sync.Once
	// open is the site of the server. It is nil before the first connection.
	open *site
}

// A stream is one end of a byte stream.
type stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Connect implements client.Transport.
func (h *host) Connect(ctx context.Context) (jsonrpc.Framer, error) {
	switch {
	case h.web != nil:
		return h.site().Connect(ctx)
	case h.pipe != nil:
		return h.connectInProcess(), nil
	}
	f, err := h.command().Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newConnFramer(f, nil, h.checkExit), nil
}

// connectRaw is Connect for a peer that can close its output alone, if the transport supports that.
func (h *host) connectRaw(ctx context.Context) (jsonrpc.Framer, error) {
	switch {
	case h.web != nil:
		return newHTTPFramer(h.site())
	case h.pipe != nil:
		return h.connectInProcess(), nil
	}
	p, err := h.command().Start(ctx)
	if err != nil {
		return nil, err
	}
	return newConnFramer(jsonrpc.NewFramer(p, &jsonrpc.FramerOptions{Framing: h.framing}), p.CloseWrite, h.checkExit), nil
}

// site returns the site of all connections over HTTP.
func (h *host) site() *site {
	h.opening.Do(func() { h.open = newSite(h.t, h.server, h.principal, *h.web) })
	return h.open
}

// connectInProcess starts a server in this process. The test waits for its end.
func (h *host) connectInProcess() jsonrpc.Framer {
	local, remote := h.pipe()
	var crashed atomic.Bool
	srv := servers[h.server](func() {
		crashed.Store(true)
		remote.Close()
	})
	ctx := server.WithPrincipalID(context.Background(), h.principal)
	served := make(chan error, 1)
	go func() {
		err := srv.Serve(ctx, jsonrpc.NewFramer(remote, nil))
		served <- errors.Join(err, closeServer(srv))
	}()
	var once sync.Once
	return newConnFramer(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: h.framing}), local.CloseWrite, func(error) {
		once.Do(func() {
			if err := <-served; err != nil && !crashed.Load() && !isDisconnect(err) {
				h.t.Errorf("the server failed: %v", err)
			}
		})
	})
}

// isDisconnect reports whether a server's error means that its client did not wait for all
// responses.
func isDisconnect(err error) bool {
	return errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE)
}

// command returns the command that runs this binary as the server.
func (h *host) command() *stdio.Cmd {
	self, err := os.Executable()
	if err != nil {
		h.t.Error(err)
	}
	cmd := stdio.Command(self)
	// By default, a program with the race detector sleeps for a second when it exits.
	cmd.Env = []string{serverVar + "=" + h.server, principalVar + "=" + h.principal, "GORACE=atexit_sleep_ms=0"}
	cmd.Framing = h.framing
	return cmd
}

// checkExit checks the exit status of a child process.
func (h *host) checkExit(err error) {
	if exit, ok := errors.AsType[*stdio.ExitError](err); err != nil && !(ok && exit.Code == crashCode) {
		h.t.Errorf("child process: %v", err)
	}
}

// A connFramer is the client's side of a connection. It is an rpc.Source like the Framer that it
// wraps.
type connFramer struct {
	jsonrpc.Framer
	rpc.Source
	closeWrite func() error
	// onClose is called with the error of Close.
	onClose func(err error)
}

func newConnFramer(f jsonrpc.Framer, closeWrite func() error, onClose func(error)) *connFramer {
	return &connFramer{f, f.(rpc.Source), closeWrite, onClose}
}

func (c *connFramer) CloseWrite() error { return c.closeWrite() }

func (c *connFramer) Close() error {
	err := c.Framer.Close()
	c.onClose(err)
	return err
}

// memory returns the two ends of a connection in memory, which works in a bubble of synctest.
func memory() (local, remote stream) {
	a, b := mcptest.Pipe()
	return &memoryStream{Framer: a}, &memoryStream{Framer: b}
}

// A memoryStream is a stream over a pipe of frames. Each Write is a frame.
type memoryStream struct {
	jsonrpc.Framer
	// rest is the unread rest of a frame.
	rest []byte
}

func (m *memoryStream) Read(p []byte) (int, error) {
	if len(m.rest) == 0 {
		frame, err := m.ReadFrame()
		if err != nil {
			return 0, err
		}
		m.rest = frame
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

func (m *memoryStream) Write(p []byte) (int, error) {
	if err := m.WriteFrame(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite closes the output, as [mcptest.Peer.CloseWrite] does.
func (m *memoryStream) CloseWrite() error {
	return m.Framer.(interface{ CloseWrite() error }).CloseWrite()
}

// pipes returns the two ends of a connection over pipes of the system.
func pipes() (local, remote stream) {
	in, inWriter, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	outReader, out, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	return &pipeStream{outReader, inWriter}, &pipeStream{in, out}
}

// A pipeStream is two pipes, one for each direction.
type pipeStream struct{ r, w *os.File }

func (s *pipeStream) Read(p []byte) (int, error)  { return s.r.Read(p) }
func (s *pipeStream) Write(p []byte) (int, error) { return s.w.Write(p) }

// CloseWrite may be called more than once.
func (s *pipeStream) CloseWrite() error {
	s.w.Close()
	return nil
}

func (s *pipeStream) Close() error {
	s.w.Close()
	return s.r.Close()
}

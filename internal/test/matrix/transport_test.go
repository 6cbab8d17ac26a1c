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

// A host starts a server for each connection that is made with it, or one for all where there is
// HTTP, and fails the test if one does not end well.
type host struct {
	t         testing.TB
	server    string // name of
	principal string
	framing   jsonrpc.Framing
	pipe      func() (local, remote stream) // nil runs the server as a child process
	web       *web                          // nil unless it is reached over HTTP
	opening   sync.Once
	open      *site // that it is served at then; nil before the first connection
}

// A stream is one end of a connection that is made of bytes.
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
		return h.connectHere(), nil
	}
	f, err := h.command().Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newLink(f, nil, h.ended), nil
}

// connectRaw is Connect for a peer that can end its output alone, if the transport can.
func (h *host) connectRaw(ctx context.Context) (jsonrpc.Framer, error) {
	switch {
	case h.web != nil:
		return newBrowser(h.site())
	case h.pipe != nil:
		return h.connectHere(), nil
	}
	p, err := h.command().Start(ctx)
	if err != nil {
		return nil, err
	}
	return newLink(jsonrpc.NewFramer(p, &jsonrpc.FramerOptions{Framing: h.framing}), p.CloseWrite, h.ended), nil
}

// site returns where the server is reached over HTTP. All connections are to the same site.
func (h *host) site() *site {
	h.opening.Do(func() { h.open = newSite(h.t, h.server, h.principal, *h.web) })
	return h.open
}

// connectHere starts a server in this process. The test waits for its end.
func (h *host) connectHere() jsonrpc.Framer {
	local, remote := h.pipe()
	var crashed atomic.Bool
	srv := servers[h.server](func() {
		crashed.Store(true)
		remote.Close()
	})
	ctx := server.WithPrincipal(context.Background(), &server.Principal{ID: h.principal})
	served := make(chan error, 1)
	go func() {
		err := srv.Serve(ctx, jsonrpc.NewFramer(remote, nil))
		served <- errors.Join(err, closeServer(srv))
	}()
	var once sync.Once
	return newLink(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: h.framing}), local.CloseWrite, func(error) {
		once.Do(func() {
			if err := <-served; err != nil && !crashed.Load() && !isHangUp(err) {
				h.t.Errorf("the server failed: %v", err)
			}
		})
	})
}

// isHangUp reports whether a server's error says that its client did not wait for all answers.
func isHangUp(err error) bool {
	return errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE)
}

// command runs this binary as the server.
func (h *host) command() *stdio.Cmd {
	self, err := os.Executable()
	if err != nil {
		h.t.Error(err)
	}
	cmd := stdio.Command(self)
	// The race detector has a program sleep for a second when it exits.
	cmd.Env = []string{serverVar + "=" + h.server, principalVar + "=" + h.principal, "GORACE=atexit_sleep_ms=0"}
	cmd.Framing = h.framing
	return cmd
}

// ended looks at how a child ended.
func (h *host) ended(err error) {
	if exit, ok := errors.AsType[*stdio.ExitError](err); err != nil && !(ok && exit.Code == crashCode) {
		h.t.Errorf("the child: %v", err)
	}
}

// A link is this side of a connection. It is an rpc.Source still, so that package rpc treats it as
// one.
type link struct {
	jsonrpc.Framer
	rpc.Source
	half  func() error
	ended func(err error) // gets the error of Close
}

func newLink(f jsonrpc.Framer, half func() error, ended func(error)) *link {
	return &link{f, f.(rpc.Source), half, ended}
}

func (l *link) CloseWrite() error { return l.half() }

func (l *link) Close() error {
	err := l.Framer.Close()
	l.ended(err)
	return err
}

// memory connects two ends in memory, in a way that a bubble of synctest knows.
func memory() (local, remote stream) {
	a, b := mcptest.Pipe()
	return &memoryStream{End: a}, &memoryStream{End: b}
}

// A memoryStream is the end of a pipe of frames, which here are what is written at once.
type memoryStream struct {
	*mcptest.End
	rest []byte // of a frame
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

// pipes connects two ends by pipes of the system.
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

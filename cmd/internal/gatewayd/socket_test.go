package gatewayd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"mcpwire/jsonrpc"
)

// echoServer returns each frame.
type echoServer struct{}

// Serve serves a client.
func (echoServer) Serve(ctx context.Context, f jsonrpc.Framer) error {
	defer context.AfterFunc(ctx, func() { f.Close() })()
	defer f.Close()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		if err := f.WriteFrame(frame); err != nil {
			return err
		}
	}
}

// failingListener fails to accept once.
type failingListener struct {
	net.Listener
	failed bool
}

// Accept implements net.Listener.
func (l *failingListener) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

// TestServeSocket checks that a socket serves after an error, up to a number of clients, and that
// the end of the context ends them.
func TestServeSocket(t *testing.T) {
	where := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", where)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serveSocket(ctx, &failingListener{Listener: l}, echoServer{}.Serve, 2, 0, slog.New(slog.DiscardHandler))
	}()
	dial := func() jsonrpc.Framer {
		t.Helper()
		conn, err := net.Dial("unix", where)
		if err != nil {
			t.Fatal(err)
		}
		return jsonrpc.NewFramer(conn, nil)
	}
	echoes := func(f jsonrpc.Framer) error {
		// A rejected connection may already be closed.
		if err := f.WriteFrame([]byte("{}")); err != nil {
			return err
		}
		frame, err := f.ReadFrame()
		if err == nil && string(frame) != "{}" {
			t.Errorf("read %q, want {}", frame)
		}
		return err
	}
	first, second, third := dial(), dial(), dial()
	for _, f := range []jsonrpc.Framer{first, second} {
		if err := echoes(f); err != nil {
			t.Errorf("a client within the limit: %v", err)
		}
	}
	if err := echoes(third); err == nil {
		t.Error("a client above the limit is served")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serveSocket returned %v", err)
	}
	if _, err := first.ReadFrame(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end, a client reads %v, want EOF", err)
	}
	for _, f := range []jsonrpc.Framer{first, second, third} {
		f.Close()
	}
}

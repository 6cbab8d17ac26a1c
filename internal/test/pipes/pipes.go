// Package pipes has byte streams for tests: the two ends of a connection in memory, and of each
// transport that the system offers, and a listener in memory.
package pipes

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A Half is one direction of a connection in memory. Waiting for it in a synctest bubble is durably
// blocking.
type Half struct {
	// Limit limits the number of unread bytes. Zero means no limit. It must not be changed while
	// others use the Half.
	Limit int

	mu    sync.Mutex
	moved sync.Cond
	buf   []byte
	// array is the memory of which buf is the rest.
	array []byte
	// ended is the error that the reader gets after the buffered bytes.
	ended error
	// closed means that the reader has closed the Half.
	closed bool
}

func newHalf(limit int) *Half {
	h := &Half{Limit: limit}
	h.moved.L = &h.mu
	return h
}

func (h *Half) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.buf) == 0 && h.ended == nil && !h.closed {
		h.moved.Wait()
	}
	switch {
	case h.closed:
		return 0, io.ErrClosedPipe
	case len(h.buf) == 0:
		return 0, h.ended
	}
	n := copy(p, h.buf)
	if h.buf = h.buf[n:]; len(h.buf) == 0 {
		h.buf = h.array[:0]
	}
	h.moved.Broadcast()
	return n, nil
}

func (h *Half) Write(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n < len(p) {
		for h.Limit > 0 && len(h.buf) >= h.Limit && !h.closed && h.ended == nil {
			h.moved.Wait()
		}
		if h.closed || h.ended != nil {
			return n, io.ErrClosedPipe
		}
		k := len(p) - n
		if h.Limit > 0 {
			k = min(k, h.Limit-len(h.buf))
		}
		h.buf = append(h.buf, p[n:n+k]...)
		h.array = h.buf
		n += k
		h.moved.Broadcast()
	}
	return n, nil
}

// End makes the reader get err after the buffered bytes.
func (h *Half) End(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil {
		h.ended = err
	}
	h.moved.Broadcast()
}

// Close makes all calls fail.
func (h *Half) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.moved.Broadcast()
}

// Len returns the number of unread bytes.
func (h *Half) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.buf)
}

// Take returns the unread bytes without waiting.
func (h *Half) Take() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.buf
	h.buf, h.array = nil, nil
	h.moved.Broadcast()
	return b
}

// An End is one end of a connection in memory.
type End struct{ In, Out *Half }

func (d End) Read(p []byte) (int, error)  { return d.In.Read(p) }
func (d End) Write(p []byte) (int, error) { return d.Out.Write(p) }

func (d End) Close() error {
	d.In.Close()
	d.Out.End(io.EOF)
	return nil
}

// Memory returns the two ends of a connection in memory with the limit of each direction in bytes.
func Memory(limit int) (a, b End) {
	x, y := newHalf(limit), newHalf(limit)
	return End{x, y}, End{y, x}
}

// A Listener is a listener for connections in memory. Waiting for it in a synctest bubble is
// durably blocking.
type Listener struct {
	// Conns passes connections to Accept.
	Conns chan net.Conn

	done chan struct{}
	once sync.Once
}

// Listen returns a Listener.
func Listen() *Listener {
	return &Listener{Conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.Conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Dial returns the client's end of a connection after Accept has returned the other end.
func (l *Listener) Dial() (net.Conn, error) { return l.DialContext(context.Background(), "", "") }

// DialContext is Dial for an http.Transport. It ignores the address.
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	local, remote := net.Pipe()
	select {
	case l.Conns <- remote:
		return local, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Transports are functions that return the two ends of a connection, by the transport's name.
var Transports = []struct {
	Name string
	Open func(t *testing.T) (a, b io.ReadWriteCloser)
}{
	{"net.Pipe", func(t *testing.T) (a, b io.ReadWriteCloser) { return net.Pipe() }},
	{"unix socket", func(t *testing.T) (a, b io.ReadWriteCloser) {
		return dialSelf(t, "unix", filepath.Join(t.TempDir(), "s"))
	}},
	{"TCP", func(t *testing.T) (a, b io.ReadWriteCloser) { return dialSelf(t, "tcp", "127.0.0.1:0") }},
	{"memory", func(t *testing.T) (a, b io.ReadWriteCloser) { return Memory(0) }},
	{"memory of 10 bytes", func(t *testing.T) (a, b io.ReadWriteCloser) { return Memory(10) }},
	{"os.Pipe", func(t *testing.T) (a, b io.ReadWriteCloser) {
		r1, w1, err1 := os.Pipe()
		r2, w2, err2 := os.Pipe()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return files{r1, w2}, files{r2, w1}
	}},
}

type files struct{ r, w *os.File }

func (f files) Read(p []byte) (int, error)  { return f.r.Read(p) }
func (f files) Write(p []byte) (int, error) { return f.w.Write(p) }

// Close first ends the reads of the other side: on Windows, closing a file waits for a read from
// it.
func (f files) Close() error { return errors.Join(f.w.Close(), f.r.Close()) }

func dialSelf(t *testing.T, network, address string) (a, b io.ReadWriteCloser) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("no %s sockets: %v", network, err)
	}
	defer l.Close()
	if a, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

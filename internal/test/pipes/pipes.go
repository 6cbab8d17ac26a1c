// Package pipes has byte streams for tests: the two ends of a connection in memory, and of each
// transport that the system offers.
package pipes

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A Half is one direction of a connection in memory. It holds up to limit bytes that nobody has
// read yet; 0 is no limit. Waiting for it is waiting in a synctest bubble.
type Half struct {
	// Limit is how many bytes may wait to be read. Zero means any number. It must not be changed
	// while others use the Half.
	Limit int

	mu    sync.Mutex
	moved sync.Cond
	buf   []byte
	room  []byte // of which buf is the rest
	ended error  // what the reader gets in the end
	shut  bool   // the reader is gone
}

func newHalf(limit int) *Half {
	h := &Half{Limit: limit}
	h.moved.L = &h.mu
	return h
}

func (h *Half) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.buf) == 0 && h.ended == nil && !h.shut {
		h.moved.Wait()
	}
	switch {
	case h.shut:
		return 0, io.ErrClosedPipe
	case len(h.buf) == 0:
		return 0, h.ended
	}
	n := copy(p, h.buf)
	if h.buf = h.buf[n:]; len(h.buf) == 0 {
		h.buf = h.room[:0]
	}
	h.moved.Broadcast()
	return n, nil
}

func (h *Half) Write(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n < len(p) {
		for h.Limit > 0 && len(h.buf) >= h.Limit && !h.shut && h.ended == nil {
			h.moved.Wait()
		}
		if h.shut || h.ended != nil {
			return n, io.ErrClosedPipe
		}
		k := len(p) - n
		if h.Limit > 0 {
			k = min(k, h.Limit-len(h.buf))
		}
		h.buf = append(h.buf, p[n:n+k]...)
		h.room = h.buf
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

// Close makes everybody's calls fail.
func (h *Half) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = true
	h.moved.Broadcast()
}

// Len returns the number of bytes that wait to be read.
func (h *Half) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.buf)
}

// Take returns what waits to be read, without waiting.
func (h *Half) Take() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.buf
	h.buf, h.room = nil, nil
	h.moved.Broadcast()
	return b
}

// A End is one end of a connection in memory.
type End struct{ In, Out *Half }

func (d End) Read(p []byte) (int, error)  { return d.In.Read(p) }
func (d End) Write(p []byte) (int, error) { return d.Out.Write(p) }

func (d End) Close() error {
	d.In.Close()
	d.Out.End(io.EOF)
	return nil
}

// Memory returns the two ends of a connection in memory, whose directions hold limit bytes.
func Memory(limit int) (a, b End) {
	x, y := newHalf(limit), newHalf(limit)
	return End{x, y}, End{y, x}
}

// Transports make the two ends of a connection.
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

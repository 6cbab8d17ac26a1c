package jsonrpc

import (
	"io"
	"sync"
)

// A half is one direction of a connection in memory. It holds up to limit bytes that nobody has
// read yet; 0 is no limit. Waiting for it is waiting in a synctest bubble.
type half struct {
	mu    sync.Mutex
	moved sync.Cond
	buf   []byte
	room  []byte // of which buf is the rest
	limit int
	ended error // what the reader gets in the end
	shut  bool  // the reader is gone
	peak  int   // the most bytes that ever waited
}

func newHalf(limit int) *half {
	h := &half{limit: limit}
	h.moved.L = &h.mu
	return h
}

func (h *half) Read(p []byte) (int, error) {
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

func (h *half) Write(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n < len(p) {
		for h.limit > 0 && len(h.buf) >= h.limit && !h.shut && h.ended == nil {
			h.moved.Wait()
		}
		if h.shut || h.ended != nil {
			return n, io.ErrClosedPipe
		}
		k := len(p) - n
		if h.limit > 0 {
			k = min(k, h.limit-len(h.buf))
		}
		h.buf = append(h.buf, p[n:n+k]...)
		h.room = h.buf
		h.peak = max(h.peak, len(h.buf))
		n += k
		h.moved.Broadcast()
	}
	return n, nil
}

// end makes the reader get err behind what is there.
func (h *half) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil {
		h.ended = err
	}
	h.moved.Broadcast()
}

// close makes everybody's calls fail.
func (h *half) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = true
	h.moved.Broadcast()
}

// take returns what waits to be read, without waiting.
func (h *half) take() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.buf
	h.buf, h.room = nil, nil
	h.moved.Broadcast()
	return b
}

// A duplex is one end of a connection in memory.
type duplex struct{ in, out *half }

func (d duplex) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d duplex) Write(p []byte) (int, error) { return d.out.Write(p) }

func (d duplex) Close() error {
	d.in.close()
	d.out.end(io.EOF)
	return nil
}

// memoryPipe returns the two ends of a connection in memory, whose directions hold limit bytes.
func memoryPipe(limit int) (a, b duplex) {
	x, y := newHalf(limit), newHalf(limit)
	return duplex{x, y}, duplex{y, x}
}

package mcptest

import (
	"io"
	"sync"
)

// maxPipeBytes is what may lie in one direction of a Pipe, as in a pipe of the system.
const maxPipeBytes = 64 << 10

// An End is one of the two ends of a [Pipe]: a [jsonrpc.Framer] that can also end its output alone. Its methods may be called by any number of
// goroutines at once.
type End struct{ in, out *queue }

// Pipe connects two ends in memory: what is written to one is read from the other, a frame at a time and byte for byte, whatever is in it. A write
// waits while 64 KiB lie unread in its direction; a frame of any size fits into an empty one.
//
// It has no timers and no goroutines, so it works in a bubble of testing/synctest, where waiting for it counts as being blocked. Make it in the
// bubble where it is used.
func Pipe() (a, b *End) {
	aToB, bToA := newQueue(), newQueue()
	return &End{in: bToA, out: aToB}, &End{in: aToB, out: bToA}
}

// ReadFrame waits for the next frame, which belongs to the caller. After the other end's Close or CloseWrite it returns what was written before,
// then io.EOF; after a Close of this end, io.ErrClosedPipe.
func (e *End) ReadFrame() ([]byte, error) { return e.in.read() }

// WriteFrame sends a copy of msg. It returns io.ErrClosedPipe once either end is closed, or this end's output is.
func (e *End) WriteFrame(msg []byte) error { return e.out.write(msg) }

// CloseWrite ends this end's output, as closing its standard input does to a server: the other end reads what was written before, then io.EOF,
// and can still answer. It returns nil and may be called more than once.
func (e *End) CloseWrite() error {
	e.out.closeWrite()
	return nil
}

// Close ends both directions. Reads and writes of this end that are waiting return, and what was not read is lost. The other end can read what was
// written before. It returns nil and may be called more than once.
func (e *End) Close() error {
	e.out.closeWrite()
	e.in.closeRead()
	return nil
}

// A queue is one direction of a Pipe.
type queue struct {
	mu          sync.Mutex
	changed     sync.Cond
	frames      [][]byte
	bytes       int  // in frames
	writeClosed bool // nothing more is written
	readClosed  bool // nothing more is read
}

func newQueue() *queue {
	q := new(queue)
	q.changed.L = &q.mu
	return q
}

func (q *queue) write(msg []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) > 0 && q.bytes+len(msg) > maxPipeBytes && !q.writeClosed && !q.readClosed {
		q.changed.Wait()
	}
	if q.writeClosed || q.readClosed {
		return io.ErrClosedPipe
	}
	q.frames = append(q.frames, append([]byte{}, msg...))
	q.bytes += len(msg)
	q.changed.Broadcast()
	return nil
}

func (q *queue) read() ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) == 0 && !q.writeClosed && !q.readClosed {
		q.changed.Wait()
	}
	switch {
	case q.readClosed:
		return nil, io.ErrClosedPipe
	case len(q.frames) == 0:
		return nil, io.EOF
	}
	frame := q.frames[0]
	q.frames[0] = nil
	q.frames = q.frames[1:]
	q.bytes -= len(frame)
	q.changed.Broadcast()
	return frame, nil
}

// closeWrite is what the writer does last.
func (q *queue) closeWrite() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writeClosed = true
	q.changed.Broadcast()
}

// closeRead is what the reader does last.
func (q *queue) closeRead() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.readClosed, q.frames, q.bytes = true, nil, 0
	q.changed.Broadcast()
}

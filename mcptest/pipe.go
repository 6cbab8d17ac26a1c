package mcptest

import (
	"io"
	"sync"

	"mcpwire/jsonrpc"
)

// maxPipeBytes limits the unread bytes in one direction of a Pipe, as in a pipe of the operating
// system.
const maxPipeBytes = 64 << 10

// A pipeEnd is one of the two ends of a [Pipe].
type pipeEnd struct{ in, out *queue }

// Pipe returns two connected ends. Frames written to one are read from the other, byte for byte,
// whether or not they are valid JSON. A write blocks while more than 64 KiB would be unread in its
// direction; an empty direction takes a frame of any size. The methods of an end may be called by
// multiple goroutines at once. To close only the output of an end, make a
// [Peer] of it and call [Peer.CloseWrite].
//
// Pipe has no timers and no goroutines, so it works in a bubble of testing/synctest, where waiting
// for it is durably blocking. Create it inside the bubble.
func Pipe() (a, b jsonrpc.Framer) { return newPipe() }

func newPipe() (a, b *pipeEnd) {
	aToB, bToA := newQueue(), newQueue()
	return &pipeEnd{in: bToA, out: aToB}, &pipeEnd{in: aToB, out: bToA}
}

// ReadFrame waits for the next frame, which the caller owns. After the other end's Close or
// CloseWrite it returns the frames written before, then io.EOF. After Close of this end it returns
// io.ErrClosedPipe.
func (e *pipeEnd) ReadFrame() ([]byte, error) { return e.in.read() }

// WriteFrame sends a copy of msg. It returns io.ErrClosedPipe after either end or this end's output
// was closed.
func (e *pipeEnd) WriteFrame(msg []byte) error { return e.out.write(msg) }

// CloseWrite closes this end's output, like closing the standard input of a server. The other end
// reads the frames written before, then io.EOF, and can still write. CloseWrite returns nil and may
// be called more than once.
func (e *pipeEnd) CloseWrite() error {
	e.out.closeWrite()
	return nil
}

// Close closes both directions. Blocked reads and writes of this end return, and unread frames are
// dropped. The other end can still read the frames written before. Close returns nil and may be
// called more than once.
func (e *pipeEnd) Close() error {
	e.out.closeWrite()
	e.in.closeRead()
	return nil
}

// A queue is one direction of a Pipe.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond
	frames  [][]byte
	// bytes is the size of frames.
	bytes int
	// writeClosed is set by the writer's end.
	writeClosed bool
	// readClosed is set by the reader's end.
	readClosed bool
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
	if !q.addLocked(msg) {
		return io.ErrClosedPipe
	}
	return nil
}

// inject adds a frame of this package, whatever is unread. It reports whether the queue is open.
func (q *queue) inject(msg []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.addLocked(msg)
}

func (q *queue) addLocked(msg []byte) bool {
	if q.writeClosed || q.readClosed {
		return false
	}
	q.frames = append(q.frames, append([]byte{}, msg...))
	q.bytes += len(msg)
	q.changed.Broadcast()
	return true
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

func (q *queue) closeWrite() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writeClosed = true
	q.changed.Broadcast()
}

// closeRead closes the queue for reading and drops the unread frames.
func (q *queue) closeRead() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.readClosed, q.frames, q.bytes = true, nil, 0
	q.changed.Broadcast()
}

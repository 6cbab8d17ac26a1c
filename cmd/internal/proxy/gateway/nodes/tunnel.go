package nodes

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"mcpwire/cluster"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/json/jsonwire"
)

const (
	// idLength is the length of a tunnel's id, that of rand.Text.
	idLength = 26
	// maxChunk limits the bytes of a chunk.
	maxChunk = 128 << 10
	// maxBuffered limits the bytes that wait in one direction at each end; a chunk may exceed it.
	maxBuffered = 1 << 20
	// keepAlive is the time after which an end that has sent nothing asks whether the other one is
	// there.
	keepAlive = time.Second
	// unreachableTime is how long a node may be unreachable before it is lost.
	unreachableTime = 10 * time.Second
	// absentTime is that for a node that handles no messages.
	absentTime = 2 * time.Second
	// flushTime limits the time that a closed tunnel sends what waits.
	flushTime = time.Second
	// minRetry and maxRetry are the first and the longest time between attempts to send a chunk.
	minRetry, maxRetry = 5 * time.Millisecond, 200 * time.Millisecond
)

// A tunnel is a byte stream between two nodes. Each end sends chunks as requests of the bus, one at
// a time, and repeats them until it has a reply. Their numbers show the receiver which ones it has
// already. Its methods may be called by many goroutines at once.
type tunnel struct {
	c    *Children
	id   string
	node string
	// dialed means that this node has opened the tunnel.
	dialed bool
	// suspect is called once when the other node may be lost. It is nil at the node of the process.
	suspect func()
	// wake has an element if there is something to send, or to end.
	wake chan struct{}
	// broken ends when the tunnel fails.
	broken context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// changed is signaled when a field below changes.
	changed sync.Cond
	in, out []byte
	// received is the number of the last chunk that was received.
	received uint64
	// ended means that the other end sends no more.
	ended bool
	// closed means that Close was called.
	closed bool
	// aborted means that abort was called.
	aborted bool
	err     error
}

// newTunnel returns a tunnel to a node. An empty id means a new one.
func (c *Children) newTunnel(node, id string) (*tunnel, error) {
	t := &tunnel{c: c, id: id, node: node, dialed: id == "", wake: make(chan struct{}, 1)}
	if t.dialed {
		t.id = rand.Text()
	}
	t.changed.L = &t.mu
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, errClosed
	case len(c.tunnels) >= maxTunnels:
		return nil, errors.New("too many connections between nodes")
	case c.tunnels[t.id] != nil:
		return nil, errMessage
	}
	t.broken, t.cancel = context.WithCancel(context.Background())
	c.tunnels[t.id] = t
	return t, nil
}

// start begins to send.
func (t *tunnel) start() error {
	t.c.mu.Lock()
	closed := t.c.closed
	if !closed {
		t.c.wg.Go(t.send)
	}
	t.c.mu.Unlock()
	if closed {
		t.fail(errClosed)
		return errClosed
	}
	return nil
}

// fail ends the tunnel with an error, unless it has ended.
func (t *tunnel) fail(err error) {
	t.c.mu.Lock()
	delete(t.c.tunnels, t.id)
	t.c.mu.Unlock()
	t.mu.Lock()
	if t.err == nil {
		t.err = err
	}
	t.changed.Broadcast()
	t.mu.Unlock()
	t.cancel()
}

// Read implements io.Reader. It returns an error of the tunnel only when everything that was
// received has been read.
func (t *tunnel) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		switch {
		case t.closed:
			return 0, io.ErrClosedPipe
		case len(t.in) > 0:
			n := copy(p, t.in)
			if t.in = t.in[n:]; len(t.in) == 0 {
				t.in = nil
			}
			return n, nil
		case t.ended:
			return 0, io.EOF
		case t.err != nil:
			return 0, t.err
		}
		t.changed.Wait()
	}
}

// Write implements io.Writer. It waits while maxBuffered bytes have not been sent.
func (t *tunnel) Write(p []byte) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n < len(p) {
		switch {
		case t.closed:
			return n, io.ErrClosedPipe
		case t.err != nil:
			return n, t.err
		case len(t.out) >= maxBuffered:
			t.changed.Wait()
			continue
		}
		part := p[n:min(len(p), n+maxBuffered-len(t.out))]
		t.out = append(t.out, part...)
		n += len(part)
		t.signal()
	}
	return n, nil
}

// Close implements io.Closer. What was written is sent for flushTime.
func (t *tunnel) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeLocked()
	return nil
}

func (t *tunnel) closeLocked() {
	if t.closed {
		return
	}
	t.closed = true
	time.AfterFunc(flushTime, t.cancel)
	t.changed.Broadcast()
	t.signal()
}

// abort implements [connection]. What waits is not sent.
func (t *tunnel) abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.aborted, t.out = true, nil
	t.closeLocked()
}

func (t *tunnel) signal() { wait.Signal(t.wake) }

// A chunkReply is the reply to a chunk.
type chunkReply byte

const (
	chunkTaken chunkReply = iota
	// chunkRefused means that the receiver has no room. The chunk must be sent again.
	chunkRefused
	// chunkUnknown means that the receiver does not have the tunnel, or no longer.
	chunkUnknown
)

// The last byte of a chunk's header.
const (
	chunkFollows byte = iota
	// chunkLast means that nothing follows.
	chunkLast
	// chunkLost means that the sender has ended the process.
	chunkLost
)

// chunkHeader is the length of a chunk without its bytes: the tunnel's id, the number of the chunk,
// which is 0 if the chunk only asks, and one of the bytes above.
const chunkHeader = idLength + 8 + 1

// send sends what is written until the tunnel is closed or fails.
func (t *tunnel) send() {
	defer t.cancel()
	for number := uint64(1); ; {
		chunk, end := t.next()
		last := end != chunkFollows
		message := append(append(make([]byte, 0, 1+chunkHeader+len(chunk)), messageData), t.id...)
		switch {
		case last || len(chunk) > 0:
			message = binary.BigEndian.AppendUint64(message, number)
			number++
		default:
			message = binary.BigEndian.AppendUint64(message, 0)
		}
		message = append(append(message, end), chunk...)
		if err := t.deliver(message); err != nil {
			t.fail(err)
			return
		}
		if last {
			t.fail(io.ErrClosedPipe)
			return
		}
	}
}

// next waits for a chunk to send. It returns an empty one if keepAlive has passed. end is the last
// byte of its header.
func (t *tunnel) next() (chunk []byte, end byte) {
	timer := time.NewTimer(keepAlive)
	defer timer.Stop()
	for {
		t.mu.Lock()
		if n := min(len(t.out), maxChunk); n > 0 || t.closed {
			chunk, t.out = t.out[:n:n], t.out[n:]
			if len(t.out) == 0 {
				t.out = nil // chunk has the memory
			}
			switch {
			case t.aborted:
				end = chunkLost
			case t.closed && len(t.out) == 0:
				end = chunkLast
			}
			t.changed.Broadcast()
			t.mu.Unlock()
			return chunk, end
		}
		t.mu.Unlock()
		select {
		case <-t.wake:
		case <-timer.C:
			return nil, chunkFollows
		case <-t.broken.Done():
			return nil, chunkFollows // deliver fails
		}
	}
}

// deliver sends a message until the other node has taken it, or is lost.
func (t *tunnel) deliver(message []byte) error {
	ctx := t.broken
	began, suspected := time.Now(), false
	for delay := minRetry; ; delay = min(2*delay, maxRetry) {
		reply, err := t.c.node.Request(ctx, t.node, topic, message)
		silent := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return errClosed
		case err == nil && len(reply) == 1 && chunkReply(reply[0]) == chunkTaken:
			return nil
		case err == nil && len(reply) == 1 && chunkReply(reply[0]) == chunkRefused:
			began = time.Now() // it is there, and its client does not read
		case err == nil:
			return &lostError{t.node, io.ErrUnexpectedEOF}
		case errors.Is(err, cluster.ErrNoNode) && silent >= absentTime, !t.c.node.HasMember(t.node) && silent >= absentTime, silent >= unreachableTime:
			t.c.log.Warn("a node is lost", "node", t.node, "error", err)
			return &lostError{t.node, err}
		case t.suspect != nil && !suspected && (errors.Is(err, cluster.ErrNoNode) || !t.c.node.HasMember(t.node)):
			suspected = true
			t.suspect()
		}
		if !wait.Sleep(ctx, delay) {
			return errClosed
		}
	}
}

// receiveChunk takes in a chunk of another node.
func (c *Children) receiveChunk(data []byte) ([]byte, error) {
	if len(data) < chunkHeader || len(data) > chunkHeader+maxChunk {
		return nil, errMessage
	}
	c.mu.Lock()
	t := c.tunnels[string(data[:idLength])]
	c.mu.Unlock()
	reply := chunkUnknown
	if t != nil {
		end := data[chunkHeader-1]
		if reply = t.receive(binary.BigEndian.Uint64(data[idLength:]), end, data[chunkHeader:]); end == chunkLost {
			t.fail(&lostError{t.node, io.ErrUnexpectedEOF})
		}
	}
	return []byte{byte(reply)}, nil
}

// receive takes in a chunk.
func (t *tunnel) receive(number uint64, end byte, chunk []byte) chunkReply {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
		return chunkUnknown
	case number <= t.received: // a question, or a repetition
		return chunkTaken
	case number != t.received+1:
		return chunkUnknown
	case t.closed: // nobody reads it
	case len(t.in) >= maxBuffered:
		return chunkRefused
	default:
		t.in = append(t.in, chunk...)
	}
	t.received, t.ended = number, t.ended || end == chunkLast
	t.changed.Broadcast()
	return chunkTaken
}

// A lostError says that a node is gone, or no longer runs the process.
type lostError struct {
	node string
	err  error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("node lost: node %s, which ran the server, no longer does; it may have executed the request", e.node)
}

func (e *lostError) Unwrap() error { return e.err }

// ErrorData returns the data of the JSON-RPC error that clients get.
func (e *lostError) ErrorData() []byte {
	return append(jsonwire.AppendQuote([]byte(`{"reason":"node lost","mayHaveRun":true,"node":`), e.node), '}')
}

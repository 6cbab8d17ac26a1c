package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
)

// A writer collects framed messages and writes many at a time when they come fast. It has no
// goroutine: a sender that finds nobody writing writes all pending messages.
type writer struct {
	src Source
	// max limits the pending bytes before senders wait. The leader may have twice as much for its
	// responses.
	max int

	// size is len(pending), readable without the lock.
	size atomic.Int64
	mu   sync.Mutex
	// hasRoom is signaled when pending has been taken or err was set.
	hasRoom sync.Cond
	pending []byte
	// leaderBytes counts the pending bytes of the leader.
	leaderBytes int
	spare       []byte
	writing     bool
	err         error
	// owner is stopped once, without the lock, when writing has failed.
	owner interface{ stop(cause error) }
	wg    *sync.WaitGroup
	// drain writes pending messages on a goroutine of wg. It is made once, since it may start for
	// each message.
	drain func()

	// calls counts the pending calls of this side.
	calls *atomic.Int32
	// transport sends message by message, and nobody waits. It is nil if src has none.
	transport MessageTransport
}

// maxCopied limits the frames that are copied into the memory for many frames although they could
// replace it, in bytes. Memory that has grown for many frames should not leave with one of them.
const maxCopied = 32 << 10

// maxIdleMemory limits the memory of a written message that is kept for the next ones, in bytes.
const maxIdleMemory = 1 << 20

func (w *writer) init(src Source, limit int, owner interface{ stop(cause error) }, wg *sync.WaitGroup, calls *atomic.Int32) {
	w.src, w.max, w.owner, w.wg, w.calls = src, limit, owner, wg, calls
	w.hasRoom.L = &w.mu
	if s, ok := src.(*frameSource); ok {
		w.transport, _ = s.Framer.(MessageTransport)
	}
}

// put queues the leader's frames in *buf. It takes buf's memory and leaves other memory in its
// place.
func (w *writer) put(buf *[]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(*buf)
	if err := w.putLocked(buf); err != nil {
		return err
	}
	w.leaderBytes += n
	return nil
}

func (w *writer) putLocked(buf *[]byte) error {
	if w.err != nil {
		return w.err
	}
	if len(w.pending) == 0 && (len(*buf) > cap(w.pending) || len(*buf) > maxCopied) {
		w.pending, *buf = *buf, w.pending
	} else {
		w.pending = append(w.pending, *buf...)
	}
	*buf = (*buf)[:0]
	w.size.Store(int64(len(w.pending)))
	return nil
}

// send queues the frames and ensures that they are written. It waits while too much is queued. It
// calls allowed, if not nil, under the lock; false means that the frames must not be sent.
func (w *writer) send(buf *[]byte, allowed func() bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.overLimit() {
		w.hasRoom.Wait()
	}
	if allowed != nil && !allowed() {
		return jsonrpc.ErrRequestEnded
	}
	if w.transport != nil {
		return w.transportLocked(context.Background(), *buf)
	}
	if err := w.putLocked(buf); err != nil {
		return err
	}
	return w.flushLocked()
}

// post queues the frames for a goroutine of wg to write, so that a slow peer cannot block the
// caller.
func (w *writer) post(buf *[]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.postLocked(context.Background(), buf)
}

func (w *writer) postLocked(ctx context.Context, buf *[]byte) error {
	if w.transport != nil {
		return w.transportLocked(ctx, *buf)
	}
	err := w.putLocked(buf)
	if w.calls.Load() == 1 && !w.writing {
		w.tryLocked() // no other call could share the write: spare the goroutine
	}
	w.startLocked()
	return err
}

// postWithin is like post, but waits for room first: until ctx ends, and at most d if d is not 0.
// Without room by then, it queues nothing and returns a *queueFullError.
func (w *writer) postWithin(ctx context.Context, d time.Duration, buf *[]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.overLimit() {
		return w.postLocked(ctx, buf)
	}
	if d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	stop := context.AfterFunc(ctx, w.wake)
	defer stop()
	for w.overLimit() {
		if err := ctx.Err(); err != nil {
			return &queueFullError{err}
		}
		w.hasRoom.Wait()
	}
	return w.postLocked(ctx, buf)
}

// transportLocked sends one message by the transport at once, so that an error means that this
// message was not sent. The lock keeps the order; it is released for an error.
func (w *writer) transportLocked(ctx context.Context, msg []byte) error {
	if w.err != nil {
		return w.err
	}
	err := w.transport.Post(ctx, bytes.TrimSuffix(msg, []byte{'\n'}))
	if err == nil {
		return nil
	}
	w.fail(err)
	return w.err
}

// A queueFullError says that there was no room for a message within the sender's time limit.
type queueFullError struct{ cause error }

func (e *queueFullError) Error() string {
	return "not sent: the peer does not read: " + e.cause.Error()
}
func (e *queueFullError) Unwrap() error { return e.cause }

// postError returns the error of postWithin. Every error other than queueFullError ends the
// connection.
func postError(err error) error {
	if _, ok := errors.AsType[*queueFullError](err); ok || err == nil {
		return err
	}
	return fmt.Errorf("%w: %w", jsonrpc.ErrClosed, err)
}

// start writes the queued messages on a goroutine of wg.
func (w *writer) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.startLocked()
}

func (w *writer) startLocked() {
	if w.writing || len(w.pending) == 0 || w.err != nil {
		return
	}
	if w.drain == nil {
		w.drain = func() {
			defer w.wg.Done()
			if w.calls.Load() > 1 {
				runtime.Gosched() // other callers that a response woke may have more to write
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.drainLocked()
		}
	}
	w.writing = true
	w.wg.Add(1)
	go w.drain()
}

// overLimit reports whether senders wait. The lock is held.
func (w *writer) overLimit() bool { return len(w.pending) > w.max && w.writing && w.err == nil }

// leaderOverLimit reports whether the leader waits. The lock is held. The messages of senders do
// not count: they must not stop the leader from reading, because the peer may wait for responses to
// them before it reads on.
func (w *writer) leaderOverLimit() bool { return w.leaderBytes > 2*w.max && w.writing && w.err == nil }

// leaderBlocked reports whether the leader would wait.
func (w *writer) leaderBlocked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leaderOverLimit()
}

// queued returns the number of pending bytes.
func (w *writer) queued() int { return int(w.size.Load()) }

// tryLocked writes as many of the pending bytes as the peer takes without a wait.
func (w *writer) tryLocked() {
	n := w.src.TryWriteFrames(w.pending)
	w.pending = w.pending[:copy(w.pending, w.pending[n:])]
	w.leaderBytes = min(w.leaderBytes, len(w.pending))
	w.size.Store(int64(len(w.pending)))
}

// flush writes the pending messages, for the leader. It waits for room if another goroutine is
// writing and too much is queued.
func (w *writer) flush() error {
	w.mu.Lock()
	for w.leaderOverLimit() {
		w.hasRoom.Wait()
	}
	err := w.flushLocked()
	w.mu.Unlock()
	return err
}

func (w *writer) flushLocked() error {
	if w.writing {
		return w.err
	}
	w.writing = true
	return w.drainLocked()
}

// drainLocked writes until nothing is pending. The caller has set writing.
func (w *writer) drainLocked() error {
	for len(w.pending) > 0 && w.err == nil {
		p := w.pending
		w.pending, w.spare, w.leaderBytes = w.spare[:0], nil, 0
		w.size.Store(0)
		w.mu.Unlock()
		err := w.src.WriteFrames(p)
		w.mu.Lock()
		if cap(p) <= maxIdleMemory || len(p) > cap(p)/4 {
			w.spare = p
		}
		if err != nil && w.err == nil {
			w.fail(err)
		}
		w.hasRoom.Broadcast()
	}
	w.writing = false
	w.hasRoom.Broadcast()
	return w.err
}

// fail makes all later sends fail. The lock is held, and released while the owner is stopped.
func (w *writer) fail(err error) {
	w.err = fmt.Errorf("send: %w", err)
	w.pending, w.leaderBytes = nil, 0
	w.size.Store(0)
	w.mu.Unlock()
	w.owner.stop(w.err)
	w.mu.Lock()
}

// wait waits until nothing is being written or gaveUp returns true.
func (w *writer) wait(gaveUp func() bool) {
	w.mu.Lock()
	for w.writing && !gaveUp() {
		w.hasRoom.Wait()
	}
	w.mu.Unlock()
}

// close makes all later sends fail, and those that wait for room.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = jsonrpc.ErrClosed
	}
	w.pending, w.leaderBytes = nil, 0
	w.size.Store(0)
	w.hasRoom.Broadcast()
}

// wake makes wait call gaveUp again.
func (w *writer) wake() {
	w.mu.Lock()
	w.hasRoom.Broadcast()
	w.mu.Unlock()
}

package jsonrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A writer collects framed messages and writes them, many at a time when they come fast. There is no goroutine of its own: whoever finds
// nobody writing writes all there is.
type writer struct {
	src source
	max int // pending bytes above which senders wait; the leader has twice as much for its answers

	size        atomic.Int64 // of pending, for a look without the lock
	mu          sync.Mutex
	hasRoom     sync.Cond // signalled when pending has been taken or err was set
	pending     []byte
	leaderBytes int // bytes of pending that the leader has put there
	spare       []byte
	writing     bool
	err         error
	owner       interface{ stop(cause error) } // is told once, without the lock, that writing has failed
	wg          *sync.WaitGroup
	drain       func() // what a goroutine of wg does that writes; made once, since it is started for each message

	transport MessageTransport // what is written goes by it, message by message, and nobody waits; nil if src is none
}

func (w *writer) init(src source, limit int, owner interface{ stop(cause error) }, wg *sync.WaitGroup) {
	w.src, w.max, w.owner, w.wg = src, limit, owner, wg
	w.hasRoom.L = &w.mu
	if s, ok := src.(*frameSource); ok {
		w.transport, _ = s.Framer.(MessageTransport)
	}
}

// put queues the leader's frames in *buf. It takes buf's memory and leaves other memory in its place.
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
	if len(w.pending) == 0 {
		w.pending, *buf = *buf, w.pending
	} else {
		w.pending = append(w.pending, *buf...)
	}
	*buf = (*buf)[:0]
	w.size.Store(int64(len(w.pending)))
	return nil
}

// send queues the frames and sees that they are written. It waits while too much is queued. allowed, if not nil, is asked under the lock
// whether they may still be sent.
func (w *writer) send(buf *[]byte, allowed func() bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.overLimit() {
		w.hasRoom.Wait()
	}
	if allowed != nil && !allowed() {
		return ErrRequestEnded
	}
	if w.transport != nil {
		return w.transportLocked(context.Background(), *buf)
	}
	if err := w.putLocked(buf); err != nil {
		return err
	}
	return w.flushLocked()
}

// post queues the frames and leaves the writing to a goroutine of wg, so that a peer that does not read cannot keep the caller.
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
	w.startLocked()
	return err
}

// postWithin is post, but waits for room first: until ctx ends, and no longer than d if that is not 0. Then nothing was queued, and the error is an
// *noRoomError.
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
			return &noRoomError{err}
		}
		w.hasRoom.Wait()
	}
	return w.postLocked(ctx, buf)
}

// transportLocked sends one message by the courier: at once, so that an error is that of this message and says that it was not sent. The lock keeps the order, and is given up for an error.
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

// An noRoomError says that there was no room for a message as long as its sender would wait.
type noRoomError struct{ cause error }

func (e *noRoomError) Error() string { return "not sent: the peer does not read: " + e.cause.Error() }
func (e *noRoomError) Unwrap() error { return e.cause }

// postError is the error of a post by postWithin: whatever else can go wrong is the end of the connection.
func postError(err error) error {
	if _, ok := errors.AsType[*noRoomError](err); ok || err == nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

// start has what is queued written by a goroutine of wg.
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
			w.mu.Lock()
			defer w.mu.Unlock()
			w.drainLocked()
		}
	}
	w.writing = true
	w.wg.Add(1)
	go w.drain()
}

// overLimit reports, under the lock, whether senders wait.
func (w *writer) overLimit() bool { return len(w.pending) > w.max && w.writing && w.err == nil }

// leaderOverLimit reports, under the lock, whether the leader waits. What senders have queued does not count, however much it is: they must not keep the leader
// from reading, because it may be for the answers to what they send that the peer waits before it reads on.
func (w *writer) leaderOverLimit() bool { return w.leaderBytes > 2*w.max && w.writing && w.err == nil }

// leaderBlocked reports whether the leader would wait.
func (w *writer) leaderBlocked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leaderOverLimit()
}

// queued returns how many bytes wait to be written.
func (w *writer) queued() int { return int(w.size.Load()) }

// flush writes what is queued, for the leader, and waits for room if another goroutine is at it and too much is.
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

// drainLocked is the work of the one who set writing.
func (w *writer) drainLocked() error {
	for len(w.pending) > 0 && w.err == nil {
		p := w.pending
		w.pending, w.spare, w.leaderBytes = w.spare[:0], nil, 0
		w.size.Store(0)
		w.mu.Unlock()
		err := w.src.write(p)
		w.mu.Lock()
		if cap(p) <= maxIdleBuffer || len(p) > cap(p)/4 {
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

// fail makes everything that is sent from now on fail. The lock is held, and given up while others are told.
func (w *writer) fail(err error) {
	w.err = fmt.Errorf("send: %w", err)
	w.pending, w.leaderBytes = nil, 0
	w.size.Store(0)
	w.mu.Unlock()
	w.owner.stop(w.err)
	w.mu.Lock()
}

// wait waits until nothing is being written or until gave is true.
func (w *writer) wait(gaveUp func() bool) {
	w.mu.Lock()
	for w.writing && !gaveUp() {
		w.hasRoom.Wait()
	}
	w.mu.Unlock()
}

// close makes everything that is sent from now on fail, and whoever waits for room with it.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = ErrClosed
	}
	w.pending, w.leaderBytes = nil, 0
	w.size.Store(0)
	w.hasRoom.Broadcast()
}

// wake makes wait ask again.
func (w *writer) wake() {
	w.mu.Lock()
	w.hasRoom.Broadcast()
	w.mu.Unlock()
}

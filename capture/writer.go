package capture

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"sync"
	"time"
	"unicode/utf8"
)

// Limits of a Writer that is not told others.
const (
	DefaultMaxQueue     = 128 << 20        // bytes
	DefaultMaxPayload   = 64 << 20         // bytes
	DefaultCloseTimeout = 10 * time.Second // that Close waits for a slow disk
)

const (
	writeInterval  = 5 * time.Millisecond   // between two writes, so that a quiet wire does not wake a goroutine for each message
	flushInterval  = 500 * time.Millisecond // between two flushes of a compressor while the wire is busy
	idleFlushDelay = 100 * time.Millisecond // without an event, after which a compressor is flushed
)

var (
	// ErrClosed is returned by calls on a Writer that was closed.
	ErrClosed = errors.New("capture: closed")
	// ErrUnfinished is wrapped by the error of a Close that did not wait any longer for the disk. What was recorded last may not be in the file.
	ErrUnfinished = errors.New("capture: not everything was written in time")
)

// Options are the options of a [Writer]. nil means defaults.
type Options struct {
	// Tool, Transport, Name and URL are for the head, see [Head].
	Tool, Transport, Name, URL string
	// Redact says what is hidden besides the usual.
	Redact *Redaction
	// Unredacted turns redaction off: the capture is as secret as the traffic.
	Unredacted bool
	// MaxQueue is how many bytes may wait to be written; 0 is DefaultMaxQueue. What is beyond is not recorded, and the capture says so.
	MaxQueue int
	// MaxPayload is how many bytes of a payload are recorded; 0 is DefaultMaxPayload. It is never more than half of MaxQueue.
	MaxPayload int
	// CloseTimeout is how long Close waits for what was recorded to be written; 0 is DefaultCloseTimeout.
	CloseTimeout time.Duration
	// Append lets [Create] go on behind the end of a file that exists, with a head of its own. It must not be compressed.
	Append bool
	// Opened is called with each file that [Create] makes, before anything is written to it: to lock it,
	// for example. The file stays the property of the [File], whose Close closes it. nil is none.
	Opened func(*os.File)
	// Notice is told of what happens to the file of a [File] while it records, see [ErrRemoved]. It is
	// called by the goroutine that writes. nil is none.
	Notice func(error)
	// Tee is shown what is written; nil is none. See [Tee].
	Tee Tee
	// Want is asked whether an event is worth recording, by many goroutines at once, and must return at once; nil records all. size is that of its payload, and of all that waits to be written. Events that
	// are not wanted get their numbers, and become a gap. What is not traffic is not asked about: that a process was started or has ended, the end of a stream, notes.
	Want func(size int) bool
}

// A Writer records events. Recording takes the time of copying the payload: a goroutine of the Writer's hides secrets and writes, and if it is too slow
// events are lost, which the capture then says. Its methods may be called by many goroutines at once.
type Writer struct {
	opts  Options
	start time.Time
	id    string

	mu      sync.Mutex
	n       uint64         // of the last event
	full    []*eventBuffer // before queue: those that have their size
	queue   *eventBuffer
	free    []*eventBuffer // written, for use again; none when nothing waits
	waiting int            // bytes in queue, and in what is being written
	gap     Gap            // lost since the last event that was queued, if Lost > 0
	gapN    uint64
	gapT    time.Duration
	lost    uint64
	closed  bool
	idle    bool // the goroutine waits for wake
	err     error

	wake   chan struct{} // one element: look at the queue
	urgent chan struct{} // one element: do not linger
	done   chan struct{} // closed when the goroutine has ended
	flush  chan chan error

	loop writeLoop // the goroutine's
}

// NewWriter returns a Writer that records to w, and writes the head at once. w is written to by one goroutine, and never after Close has returned nil; it is not closed.
// A w that has a method Flush() error, as compressors have, is flushed twice a second, and when nothing was recorded for a tenth of one.
func NewWriter(dst io.Writer, opts *Options) *Writer {
	w := &Writer{
		id:   rand.Text(),
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), done: make(chan struct{}), flush: make(chan chan error),
		queue: new(eventBuffer),
	}
	if opts != nil {
		w.opts = *opts
	}
	o := &w.opts
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&o.MaxQueue, DefaultMaxQueue)
	o.MaxQueue = max(o.MaxQueue, 4<<10)
	set(&o.MaxPayload, DefaultMaxPayload)
	o.MaxPayload = min(o.MaxPayload, o.MaxQueue/2)
	if o.CloseTimeout <= 0 {
		o.CloseTimeout = DefaultCloseTimeout
	}
	w.start = time.Now()
	w.loop.init(w, dst)
	go w.run()
	return w
}

// ID returns the id of the capture.
func (w *Writer) ID() string { return w.id }

// Record records an event, and returns the number it got. Kind, Dir and what the kind needs must be set; N, T and At are not looked at. Call it before the bytes
// are forwarded, so that the order of the capture is one in which things may have caused each other.
//
// It never waits for the disk. Data is copied. What e points to else is kept, and must not be changed any more; e itself may be used again. After Close it does
// nothing, and returns 0.
func (w *Writer) Record(e *Event) (n uint64) { return w.record(e, nil) }

// Wants reports whether an event of traffic with so many bytes of payload would be recorded now: see Options.Want. Who would have to copy them can save it.
func (w *Writer) Wants(size int) bool {
	if w.opts.Want == nil {
		return true
	}
	w.mu.Lock()
	size += w.waiting
	w.mu.Unlock()
	return w.opts.Want(size)
}

// RecordOwned is Record for a payload that the caller does not need any more: Data is not copied. The Writer reads it until it has been written, or given up, and then calls free, once, on a
// goroutine of its own or before RecordOwned returns.
func (w *Writer) RecordOwned(e *Event, free func()) (n uint64) { return w.record(e, free) }

// record records an event. free is nil if Data has to be copied.
func (w *Writer) record(e *Event, free func()) (n uint64) {
	owned := false
	if free != nil {
		defer func() {
			if !owned {
				free()
			}
		}()
	}
	if !w.wanted(e) {
		return w.skip(e)
	}
	e = w.truncate(e)
	cost := e.cost()
	var own []byte
	if len(e.Data) >= largePayload {
		switch ok := w.reserve(cost); {
		case !ok:
			cost = -1
		case free != nil:
			own = e.Data
		default:
			own = bytes.Clone(e.Data) // outside of the lock
		}
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return 0
	}
	w.n++
	n = w.n
	t := time.Since(w.start)
	if cost < 0 || own == nil && w.waiting+cost > w.opts.MaxQueue {
		w.countLost(e, n, t, GapQueue)
		w.mu.Unlock()
		return n
	}
	if own == nil {
		w.waiting += cost
	}
	w.queueGap()
	w.queue.add(e, n, t, own, cost)
	if own != nil && free != nil {
		w.queue.freeLast(free)
		owned = true
	}
	idle := w.idle
	w.idle = false
	full := w.queue.cost > w.opts.MaxQueue/4
	if w.queue.cost >= maxBufferCost {
		full = true
		w.full = append(w.full, w.queue)
		if n := len(w.free); n > 0 {
			w.queue, w.free = w.free[n-1], w.free[:n-1]
		} else {
			w.queue = w.queue.emptyCopy()
		}
	}
	w.mu.Unlock()
	if idle {
		wakeUp(w.wake)
	}
	if full {
		wakeUp(w.urgent)
	}
	return n
}

func wakeUp(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// truncate returns the event with no more of its payload than is recorded.
func (w *Writer) truncate(e *Event) *Event {
	if len(e.Data) <= w.opts.MaxPayload {
		return e
	}
	cut := *e
	cut.Len = e.wireLen()
	end := w.opts.MaxPayload
	for i := 0; i < utf8.UTFMax && end > 0 && !utf8.RuneStart(e.Data[end]); i++ {
		end--
	}
	cut.Data = e.Data[:end]
	cut.Cut = true
	return &cut
}

// reserve makes room for a payload that has memory of its own, and reports whether there is any.
func (w *Writer) reserve(cost int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ok := !w.closed && w.waiting+cost <= w.opts.MaxQueue
	if ok {
		w.waiting += cost
	}
	return ok
}

// wanted reports whether an event is recorded.
func (w *Writer) wanted(e *Event) bool {
	switch e.Kind {
	case KindMessage, KindRequest, KindResponse, KindBody, KindSSE, KindEnd, KindStderr:
		return w.Wants(len(e.Data))
	}
	return true
}

// skip gives an event that is not wanted its number.
func (w *Writer) skip(e *Event) (n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0
	}
	w.n++
	w.countLost(e, w.n, time.Since(w.start), GapUnwatched)
	return w.n
}

// countLost counts an event that is not recorded. The first of several says why.
func (w *Writer) countLost(e *Event, n uint64, t time.Duration, why string) {
	if w.gap.Lost == 0 {
		w.gapN, w.gapT, w.gap.Why = n, t, why
	}
	w.gap.Lost++
	w.gap.Bytes += e.wireLen()
	w.gap.Until = t
	w.lost++
}

// queueGap queues what is known of the events that were lost before the next one.
func (w *Writer) queueGap() {
	if w.gap.Lost > 0 {
		w.queue.add(gapEvent(w.gapN, w.gapT, w.gap), w.gapN, w.gapT, nil, 0)
		w.gap = Gap{}
	}
}

// Lost returns how many events were not recorded because the disk was too slow, or failed, or because nobody wanted them.
func (w *Writer) Lost() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Err returns the first error that writing met, or nil. Recording goes on, and so do the attempts to write.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Flush waits until everything that was recorded before has been handed to the writer below, or ctx ends. It returns what Err does.
func (w *Writer) Flush(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case w.flush <- reply:
	case <-w.done:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close writes what is left, and the last line of the capture. It waits no longer than the close timeout: then the error wraps ErrUnfinished, and the goroutine
// that writes goes on until its write returns. Otherwise the error is what Err returns. It may be called more than once.
func (w *Writer) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	wakeUp(w.wake)
	wakeUp(w.urgent)
	timeout := time.NewTimer(w.opts.CloseTimeout)
	defer timeout.Stop()
	select {
	case <-w.done:
		return w.Err()
	case <-timeout.C:
		return errors.Join(ErrUnfinished, w.Err())
	}
}

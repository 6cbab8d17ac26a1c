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
	linger    = 5 * time.Millisecond   // between two writes, so that a quiet wire does not wake a goroutine for each message
	syncEvery = 500 * time.Millisecond // between two flushes of a compressor while the wire is busy
	quiet     = 100 * time.Millisecond // without an event, after which a compressor is flushed
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
	n       uint64   // of the last event
	full    []*batch // before queue: those that have their size
	queue   *batch
	free    []*batch // written, for use again; none when nothing waits
	waiting int      // bytes in queue, and in what is being written
	gap     Gap      // lost since the last event that was queued, if Lost > 0
	gapN    uint64
	gapT    time.Duration
	lost    uint64
	closed  bool
	idle    bool // the goroutine waits for wake
	err     error

	wake  chan struct{} // one element: look at the queue
	hurry chan struct{} // one element: do not linger
	done  chan struct{} // closed when the goroutine has ended
	flush chan chan error

	w writing // the goroutine's
}

// NewWriter returns a Writer that records to w, and writes the head at once. w is written to by one goroutine, and never after Close has returned nil; it is not closed.
// A w that has a method Flush() error, as compressors have, is flushed twice a second, and when nothing was recorded for a tenth of one.
func NewWriter(w io.Writer, opts *Options) *Writer {
	c := &Writer{
		id:   rand.Text(),
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), done: make(chan struct{}), flush: make(chan chan error),
		queue: new(batch),
	}
	if opts != nil {
		c.opts = *opts
	}
	o := &c.opts
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
	c.start = time.Now()
	c.w.init(c, w)
	go c.run()
	return c
}

// ID returns the id of the capture.
func (c *Writer) ID() string { return c.id }

// Record records an event, and returns the number it got. Kind, Dir and what the kind needs must be set; N, T and At are not looked at. Call it before the bytes
// are forwarded, so that the order of the capture is one in which things may have caused each other.
//
// It never waits for the disk. Data is copied. What e points to else is kept, and must not be changed any more; e itself may be used again. After Close it does
// nothing, and returns 0.
func (c *Writer) Record(e *Event) (n uint64) { return c.record(e, nil) }

// Wants reports whether an event of traffic with so many bytes of payload would be recorded now: see Options.Want. Who would have to copy them can save it.
func (c *Writer) Wants(size int) bool {
	if c.opts.Want == nil {
		return true
	}
	c.mu.Lock()
	size += c.waiting
	c.mu.Unlock()
	return c.opts.Want(size)
}

// Hand is Record for a payload that the caller does not need any more: Data is not copied. The Writer reads it until it has been written, or given up, and then calls free, once, on a
// goroutine of its own or before Hand returns.
func (c *Writer) Hand(e *Event, free func()) (n uint64) { return c.record(e, free) }

// record records an event. free is nil if Data has to be copied.
func (c *Writer) record(e *Event, free func()) (n uint64) {
	handed := false
	if free != nil {
		defer func() {
			if !handed {
				free()
			}
		}()
	}
	if !c.wanted(e) {
		return c.pass(e)
	}
	e = c.within(e)
	cost := e.cost()
	var own []byte
	if len(e.Data) >= largePayload {
		switch ok := c.reserve(cost); {
		case !ok:
			cost = -1
		case free != nil:
			own = e.Data
		default:
			own = bytes.Clone(e.Data) // outside of the lock
		}
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0
	}
	c.n++
	n = c.n
	t := time.Since(c.start)
	if cost < 0 || own == nil && c.waiting+cost > c.opts.MaxQueue {
		c.miss(e, n, t, GapQueue)
		c.mu.Unlock()
		return n
	}
	if own == nil {
		c.waiting += cost
	}
	c.endGap()
	c.queue.add(e, n, t, own, cost)
	if own != nil && free != nil {
		c.queue.freeLast(free)
		handed = true
	}
	idle := c.idle
	c.idle = false
	full := c.queue.cost > c.opts.MaxQueue/4
	if c.queue.cost >= batchCost {
		full = true
		c.full = append(c.full, c.queue)
		if n := len(c.free); n > 0 {
			c.queue, c.free = c.free[n-1], c.free[:n-1]
		} else {
			c.queue = c.queue.successor()
		}
	}
	c.mu.Unlock()
	if idle {
		signal(c.wake)
	}
	if full {
		signal(c.hurry)
	}
	return n
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// within returns the event with no more of its payload than is recorded.
func (c *Writer) within(e *Event) *Event {
	if len(e.Data) <= c.opts.MaxPayload {
		return e
	}
	cut := *e
	cut.Len = e.wireLen()
	end := c.opts.MaxPayload
	for i := 0; i < utf8.UTFMax && end > 0 && !utf8.RuneStart(e.Data[end]); i++ {
		end--
	}
	cut.Data = e.Data[:end]
	cut.Cut = true
	return &cut
}

// reserve makes room for a payload that has memory of its own, and reports whether there is any.
func (c *Writer) reserve(cost int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ok := !c.closed && c.waiting+cost <= c.opts.MaxQueue
	if ok {
		c.waiting += cost
	}
	return ok
}

// wanted reports whether an event is recorded.
func (c *Writer) wanted(e *Event) bool {
	switch e.Kind {
	case KindMessage, KindRequest, KindResponse, KindBody, KindSSE, KindEnd, KindStderr:
		return c.Wants(len(e.Data))
	}
	return true
}

// pass gives an event that is not wanted its number.
func (c *Writer) pass(e *Event) (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0
	}
	c.n++
	c.miss(e, c.n, time.Since(c.start), GapUnwatched)
	return c.n
}

// miss counts an event that is not recorded. The first of several says why.
func (c *Writer) miss(e *Event, n uint64, t time.Duration, why string) {
	if c.gap.Lost == 0 {
		c.gapN, c.gapT, c.gap.Why = n, t, why
	}
	c.gap.Lost++
	c.gap.Bytes += e.wireLen()
	c.gap.Until = t
	c.lost++
}

// endGap queues what is known of the events that were lost before the next one.
func (c *Writer) endGap() {
	if c.gap.Lost > 0 {
		c.queue.add(gapOf(c.gapN, c.gapT, c.gap), c.gapN, c.gapT, nil, 0)
		c.gap = Gap{}
	}
}

// Lost returns how many events were not recorded because the disk was too slow, or failed, or because nobody wanted them.
func (c *Writer) Lost() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Err returns the first error that writing met, or nil. Recording goes on, and so do the attempts to write.
func (c *Writer) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Flush waits until everything that was recorded before has been handed to the writer below, or ctx ends. It returns what Err does.
func (c *Writer) Flush(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case c.flush <- reply:
	case <-c.done:
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
func (c *Writer) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	signal(c.wake)
	signal(c.hurry)
	timeout := time.NewTimer(c.opts.CloseTimeout)
	defer timeout.Stop()
	select {
	case <-c.done:
		return c.Err()
	case <-timeout.C:
		return errors.Join(ErrUnfinished, c.Err())
	}
}

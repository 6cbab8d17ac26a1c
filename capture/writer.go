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

// writeLoop is what the goroutine of a Writer works with.
type writeLoop struct {
	enc         *Encoder
	flusher     interface{ Flush() error } // nil if nothing below has a buffer
	spare       *eventBuffer
	writeFailed bool // the last write failed, maybe within a line
	dirty       bool // the flusher has something that is not flushed

	next        uint64    // number of the event that the next line is about
	events      uint64    // written
	unflushed   lostRange // the events since the last write that did not fail: lost if the next one does
	lost        lostRange // those that were lost, as long as the capture does not say so
	head        Event
	headWritten bool // it is written
	lastFlush   time.Time
}

// A span is a run of events.
type lostRange struct {
	n   uint64 // of the first
	t   time.Duration
	gap Gap
}

func (lr *lostRange) add(e *Event) {
	if lr.gap.Lost == 0 {
		lr.n, lr.t, lr.gap.Why = e.N, e.T, GapWrite
	}
	lr.gap.Lost++
	lr.gap.Bytes += e.wireLen()
	lr.gap.Until = e.T
}

func (lr *lostRange) merge(other lostRange) {
	if lr.gap.Lost == 0 {
		*lr = other
		return
	}
	lr.gap.Lost += other.gap.Lost
	lr.gap.Bytes += other.gap.Bytes
	lr.gap.Until = max(lr.gap.Until, other.gap.Until)
}

func (l *writeLoop) init(w *Writer, out io.Writer) {
	if w.opts.Unredacted {
		l.enc = NewUnredactedEncoder(w.opts.withTee(out))
	} else {
		l.enc = NewEncoder(w.opts.withTee(out), w.opts.Redact)
	}
	l.next = 1
	l.flusher, _ = out.(interface{ Flush() error })
	l.spare = new(eventBuffer)
	l.head = Event{Kind: KindHead, Head: &Head{
		Version: Version, ID: w.id, At: w.start, Tool: w.opts.Tool, Transport: w.opts.Transport, Name: w.opts.Name, URL: w.opts.URL,
	}}
	l.enc.Encode(&l.head)
}

// run is the goroutine of a Writer. It takes what was recorded, writes it, and lingers a little before it looks again.
func (w *Writer) run() {
	defer close(w.done)
	timer := time.NewTimer(writeInterval)
	defer timer.Stop()
	w.writeEvents(new(eventBuffer)) // the head
	for {
		b, more, closed := w.nextBuffer()
		if b != nil {
			w.writeEvents(b)
			w.releaseBuffer(b)
		}
		if more {
			continue
		}
		if closed {
			break
		}
		timer.Reset(writeInterval)
		select {
		case <-timer.C:
		case <-w.urgent:
		case reply := <-w.flush:
			w.drain()
			reply <- w.flushDst()
		}
		w.wait()
	}
	w.writeTail()
}

// nextBuffer returns a batch of what is queued, or nil if there is nothing. more tells that there are others,
// closed that no more will come.
func (w *Writer) nextBuffer() (b *eventBuffer, more, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle = false
	if w.closed {
		w.queueGap()
	}
	if len(w.full) > 0 {
		b = w.full[0]
		w.full[0] = nil
		if w.full = w.full[1:]; len(w.full) == 0 {
			w.full = nil
		}
		return b, len(w.full) > 0 || len(w.queue.events) > 0, w.closed
	}
	if len(w.queue.events) == 0 {
		return nil, false, w.closed
	}
	b = w.queue
	if w.queue, w.loop.spare = w.loop.spare, nil; w.queue == nil {
		w.queue = new(eventBuffer)
	}
	return b, false, w.closed
}

// releaseBuffer makes room for what the batch has held.
func (w *Writer) releaseBuffer(b *eventBuffer) {
	cost := b.cost
	b.reset()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting -= cost
	if len(w.full) > 0 && len(w.free) < maxFreeBuffers {
		w.free = append(w.free, b)
		return
	}
	if len(w.full) == 0 {
		w.free = nil
	}
	w.loop.spare = b
}

// maxFreeBuffers is how many batches are kept for use again while the wire is faster than the disk.
const maxFreeBuffers = 8

// wait waits until there is something to write or to flush.
func (w *Writer) wait() {
	w.mu.Lock()
	if len(w.full) > 0 || len(w.queue.events) > 0 || w.closed {
		w.mu.Unlock()
		return
	}
	w.idle = true
	w.mu.Unlock()
	var flush <-chan time.Time
	if w.loop.dirty {
		t := time.NewTimer(min(idleFlushDelay, max(0, flushInterval-time.Since(w.loop.lastFlush))))
		defer t.Stop()
		flush = t.C
	}
	select {
	case <-w.wake:
	case <-w.urgent:
	case <-flush:
		w.flushDst()
	case reply := <-w.flush:
		w.drain()
		reply <- w.flushDst()
	}
}

// drain writes what is queued now.
func (w *Writer) drain() {
	w.mu.Lock()
	left := len(w.full) + 1
	w.mu.Unlock()
	for ; left > 0; left-- { // not what comes meanwhile
		b, _, _ := w.nextBuffer()
		if b == nil {
			return
		}
		w.writeEvents(b)
		w.releaseBuffer(b)
	}
}

// writeEvents writes the events of a batch, and accounts for them.
func (w *Writer) writeEvents(b *eventBuffer) {
	l := &w.loop
	defer l.endLine(w.opts.Tee)
	if l.writeFailed {
		// The last line may be half there: end it, so that no other is lost with it.
		l.writeFailed, l.enc.out.err = false, nil
		l.enc.out.str("\n")
		if !l.headWritten {
			l.enc.Encode(&l.head)
		}
		if l.lost.gap.Lost > 0 {
			l.enc.Encode(gapEvent(l.lost.n, l.lost.t, l.lost.gap))
		}
	}
	for i := range b.events {
		e := b.event(i)
		if e.Kind != KindGap {
			l.unflushed.add(e)
		}
		l.next = max(l.next, e.N+1)
		if l.enc.Encode(e) == nil && len(l.enc.out.buf) == 0 {
			l.markWritten()
		}
	}
	l.dirty = l.flusher != nil
	if err := l.enc.Flush(); err != nil {
		w.writeFailed(err)
		return
	}
	l.markWritten()
	if l.dirty && time.Since(l.lastFlush) > flushInterval {
		w.flushDst()
	}
}

// markWritten notes that everything was written.
func (l *writeLoop) markWritten() {
	l.headWritten = true
	l.events += l.unflushed.gap.Lost
	l.unflushed, l.lost = lostRange{}, lostRange{}
}

// writeFailed notes that writing failed. The next batch is another attempt: disks that are full do not stay so.
func (w *Writer) writeFailed(err error) {
	l := &w.loop
	l.writeFailed = true
	w.mu.Lock()
	if w.err == nil {
		w.err = writeError(err)
	}
	w.lost += l.unflushed.gap.Lost
	w.mu.Unlock()
	l.lost.merge(l.unflushed)
	l.unflushed = lostRange{}
}

// flushDst empties the compressor, if there is one.
func (w *Writer) flushDst() error {
	l := &w.loop
	l.lastFlush = time.Now()
	if l.dirty {
		l.dirty = false
		if err := l.flusher.Flush(); err != nil {
			w.writeFailed(err)
		}
	}
	return w.Err()
}

// writeTail writes the tail.
func (w *Writer) writeTail() {
	l := &w.loop
	if l.writeFailed {
		w.writeEvents(new(eventBuffer))
	}
	w.mu.Lock()
	n, t, lost := w.n+1, time.Since(w.start), w.lost
	w.mu.Unlock()
	l.enc.Encode(&Event{Kind: KindTail, N: n, T: t, Tail: &Tail{Events: l.events, Lost: lost}})
	if err := l.enc.Flush(); err != nil {
		w.writeFailed(err)
	}
	l.next = n
	l.endLine(w.opts.Tee)
	l.dirty = l.flusher != nil
	w.flushDst()
}

// A batch holds events between the one who records them and the goroutine that writes them. Small payloads share one piece of memory, which is used again.
type eventBuffer struct {
	events []queuedEvent
	data   []byte
	cost   int
}

type queuedEvent struct {
	ev       Event
	from, to int    // of the payload in batch.data, unless it is in ev.Data
	shared   bool   // it is in batch.data
	free     func() // gives the payload back; nil if it is the collector's
}

const (
	largePayload  = 64 << 10 // from here on a payload has memory of its own
	maxIdleData   = 1 << 20  // more is given back when the use is far less
	maxIdleEvents = 2048
	maxBufferCost = 4 << 20 // bytes: a batch does not grow above it, since growing copies
)

// emptyCopy returns a batch for as much as b holds.
func (b *eventBuffer) emptyCopy() *eventBuffer {
	return &eventBuffer{events: make([]queuedEvent, 0, len(b.events)), data: make([]byte, 0, len(b.data))}
}

// add appends an event. Its payload is copied, unless own says that the queue may keep it.
func (b *eventBuffer) add(e *Event, n uint64, t time.Duration, own []byte, cost int) {
	if len(b.events) < cap(b.events) {
		b.events = b.events[:len(b.events)+1]
	} else {
		b.events = append(b.events, queuedEvent{})
	}
	q := &b.events[len(b.events)-1]
	q.ev = *e
	q.ev.N, q.ev.T = n, t
	q.shared, q.free = false, nil
	b.cost += cost
	switch {
	case own != nil:
		q.ev.Data = own
	case e.Data != nil:
		q.shared = true
		q.from = len(b.data)
		b.data = append(b.data, e.Data...)
		q.to = len(b.data)
		q.ev.Data = nil
	}
}

// freeLast has the payload of the event that was added last given back when it is not needed any more.
func (b *eventBuffer) freeLast(free func()) { b.events[len(b.events)-1].free = free }

// event returns an event with its payload. It is good until reset.
func (b *eventBuffer) event(i int) *Event {
	q := &b.events[i]
	if q.shared {
		q.ev.Data = nonNil(b.data[q.from:q.to:q.to]) // empty is not absent, even if the batch has no memory yet
	}
	return &q.ev
}

// reset empties the batch, and lets go of what a burst has made it grow to.
func (b *eventBuffer) reset() {
	for i := range b.events {
		if free := b.events[i].free; free != nil {
			free()
		}
	}
	events, data := len(b.events), len(b.data)
	clear(b.events)
	b.events, b.data, b.cost = b.events[:0], b.data[:0], 0
	if cap(b.data) > maxIdleData && data < cap(b.data)/4 {
		b.data = nil
	}
	if cap(b.events) > maxIdleEvents && events < cap(b.events)/4 {
		b.events = nil
	}
}

// maxLine is how long a line of text may be before it is recorded in pieces.
const maxLine = 64 << 10

// Lines records text as it comes, such as what a process writes to its standard error, line by line: a secret that two writes share is seen whole. It is an
// io.Writer that never fails, for any number of goroutines.
type Lines struct {
	w       *Writer
	mu      sync.Mutex
	ev      Event
	partial []byte // of a line that has no end yet
}

// Lines returns an io.Writer that records each line of what is written to it as an event like e, usually of [KindStderr]; Data is the line without its end. A line of more than 64 KiB is recorded in parts. Close records a last line that has no end.
func (w *Writer) Lines(e Event) *Lines { return &Lines{w: w, ev: e} }

// Write records the lines that p completes.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		k := bytes.IndexByte(p, '\n')
		if k >= 0 && k <= maxLine && len(l.partial) == 0 && l.ev.Part == 0 {
			l.record(p[:k])
			p = p[k+1:]
			continue
		}
		end := len(p)
		if k >= 0 {
			end = k
		}
		room := maxLine - len(l.partial)
		if end > room {
			l.partial = append(l.partial, p[:room]...)
			l.ev.Part++
			l.record(l.partial)
			l.partial, p = l.partial[:0], p[room:]
			continue
		}
		l.partial = append(l.partial, p[:end]...)
		if k >= 0 {
			l.recordLast()
			end++
		}
		p = p[end:]
	}
	return n, nil
}

func (l *Lines) record(line []byte) {
	l.ev.Data = line
	if line == nil {
		l.ev.Data = []byte{}
	}
	l.w.Record(&l.ev)
	l.ev.Data = nil
}

// recordLast records the end of a line that was kept.
func (l *Lines) recordLast() {
	if l.ev.Part > 0 {
		l.ev.Part++
	}
	l.record(l.partial)
	l.ev.Part, l.partial = 0, l.partial[:0]
}

// Close records what has no line end. It returns nil.
func (l *Lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 || l.ev.Part > 0 {
		l.recordLast()
	}
	return nil
}

// A Tee is shown what a [Writer] writes: the lines of the capture, redacted, before they are compressed, and whether or not there was room for them below. Its methods are called by the
// goroutine that writes, one at a time, until Close has returned nil. They must return at once, since what is recorded waits in a bounded queue meanwhile.
type Tee interface {
	// Write is shown bytes that follow the ones before. They may be part of a line. They must not be kept.
	Write(p []byte)
	// EndLine says that the last line has come as a whole, or, if writing failed, that no more of it comes. next is the number of the event that the next line is about; a greater one if that one gets lost.
	EndLine(next uint64)
}

// teeWriter writes to w, and shows it to a Tee.
type teeWriter struct {
	w   io.Writer
	tee Tee
}

func (t teeWriter) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.tee.Write(p)
	return n, err
}

// withTee returns the writer for the encoder.
func (o *Options) withTee(w io.Writer) io.Writer {
	if o.Tee == nil {
		return w
	}
	return teeWriter{w, o.Tee}
}

// endLine tells the Tee, if there is one, that what was written ends where a line does.
func (l *writeLoop) endLine(tee Tee) {
	if tee != nil {
		tee.EndLine(l.next)
	}
}

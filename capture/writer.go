package capture

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/base/hooks"
	"mcpwire/internal/base/wait"
)

// Defaults of a Writer.
const (
	defaultMaxQueue     = 128 << 20        // bytes
	defaultMaxPayload   = 64 << 20         // bytes
	defaultCloseTimeout = 10 * time.Second // for which Close waits
)

const (
	// writeInterval is the time between two writes. It avoids waking the goroutine for each
	// message.
	writeInterval = 5 * time.Millisecond
	// flushInterval is the time between two flushes of a compressor under traffic.
	flushInterval = 500 * time.Millisecond
	// idleFlushDelay is the time without an event after which a compressor is flushed.
	idleFlushDelay = 100 * time.Millisecond
)

// errUnfinished is wrapped by the error of Close if the disk was too slow.
var errUnfinished = fmt.Errorf("capture: not everything was written in time: %w", os.ErrDeadlineExceeded)

// Options are the options of a [Writer]. Nil means defaults.
type Options struct {
	// Tool, Transport, Name and URL are for the head, see [Head].
	Tool      string
	Transport Transport
	Name, URL string
	// Redact adds to the default redaction, or turns it off. Nil is the default alone.
	Redact *Redaction
	// MaxQueue limits the bytes that wait to be written. Zero means 128 MiB. Events beyond it
	// become gaps.
	MaxQueue int
	// MaxPayload limits the recorded bytes of a payload. Zero means 64 MiB. It is at most half of
	// MaxQueue.
	MaxPayload int
	// CloseTimeout limits the time that Close waits for the last writes. Zero means ten seconds.
	CloseTimeout time.Duration
	// Append lets [Create] append a capture with its own head to an existing file, which must be
	// private to its owner and not compressed.
	Append bool
	// Notice is called when the file of a [File] disappears while it records, and is created again.
	// The writing goroutine calls it. Nil means no call.
	Notice func(error)
	// Hooks are for the programs of this repository. Others leave it nil.
	Hooks *hooks.Writer[Event]
}

// A Writer records events. Recording only copies the payload; a goroutine redacts and writes. If
// that goroutine is too slow, events are lost and the capture has a gap. A Writer is safe for
// concurrent use.
type Writer struct {
	opts  Options
	start time.Time
	id    string
	// want is that of the hooks. It may be nil.
	want func(size int) bool

	mu sync.Mutex
	// n is the number of the last event.
	n uint64
	// full holds the buffers that have reached their size. They come before queue.
	full  []*eventBuffer
	queue *eventBuffer
	// free holds written buffers for reuse. It is empty when nothing waits.
	free []*eventBuffer
	// waiting is the cost of queue, full and the buffer being written, in bytes.
	waiting int
	// gap describes the events lost since the last queued one, if Lost > 0.
	gap    Gap
	gapN   uint64
	gapT   time.Duration
	lost   uint64
	closed bool
	// idle reports that the goroutine waits for wake.
	idle bool
	err  error

	// wake has room for one element, which announces a queued event.
	wake chan struct{}
	// urgent has room for one element, which ends the pause between writes.
	urgent chan struct{}
	// done is closed when the goroutine has ended.
	done  chan struct{}
	flush chan chan error

	// loop is used only by the writing goroutine.
	loop writeLoop
}

// NewWriter returns a Writer that records to dst, and writes the head at once. One goroutine writes
// to dst; it stops before Close returns, unless Close wraps [os.ErrDeadlineExceeded]. The Writer
// does not close dst. If dst has a method Flush() error, as compressors have, the Writer flushes it
// twice a second under traffic, and after a pause of a tenth of a second.
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
	defaults.IfNotPositive(&o.MaxQueue, defaultMaxQueue)
	o.MaxQueue = max(o.MaxQueue, 4<<10)
	defaults.IfNotPositive(&o.MaxPayload, defaultMaxPayload)
	o.MaxPayload = min(o.MaxPayload, o.MaxQueue/2)
	defaults.IfNotPositive(&o.CloseTimeout, defaultCloseTimeout)
	if h := o.Hooks; h != nil {
		w.want, w.loop.tee = h.Want, h.Tee
		h.Attach(hooked{w})
	}
	w.start = time.Now()
	w.loop.init(w, dst)
	go w.run()
	return w
}

// ID returns the id of the capture.
func (w *Writer) ID() string { return w.id }

// Record records an event and returns its number. Kind, Dir and the fields of the kind must be set;
// N, T and At are ignored. Call it before the bytes are forwarded, so that the order of the capture
// is a possible order of cause and effect.
//
// Record never waits for the disk. It copies Data. It keeps everything else that e points to, which
// must not change afterwards; e itself may be reused. After Close it does nothing and returns 0.
func (w *Writer) Record(e *Event) (n uint64) { return w.record(e, nil) }

// hooked is the hooks.Recorder that a Writer gives to its hooks.
type hooked struct{ w *Writer }

func (h hooked) Wants(size int) bool { return h.w.wants(size) }

func (h hooked) RecordOwned(e *Event, free func()) (n uint64) { return h.w.record(e, free) }

// wants reports whether to record an event of traffic with a payload of size bytes.
func (w *Writer) wants(size int) bool {
	if w.want == nil {
		return true
	}
	w.mu.Lock()
	size += w.waiting
	w.mu.Unlock()
	return w.want(size)
}

// record records an event. A nil free means that Data must be copied.
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
			own = bytes.Clone(e.Data) // outside the lock
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
		wait.Signal(w.wake)
	}
	if full {
		wait.Signal(w.urgent)
	}
	return n
}

// truncate returns the event with its payload cut to MaxPayload.
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

// reserve reserves queue space for a payload with its own memory. It reports whether there was
// room.
func (w *Writer) reserve(cost int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ok := !w.closed && w.waiting+cost <= w.opts.MaxQueue
	if ok {
		w.waiting += cost
	}
	return ok
}

// wanted reports whether to record an event.
func (w *Writer) wanted(e *Event) bool {
	switch e.Kind {
	case KindMessage, KindRequest, KindResponse, KindBody, KindSSE, KindEnd, KindStderr, KindTranslate:
		return w.wants(len(e.Data))
	}
	return true
}

// skip assigns a number to an unwanted event.
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

// countLost counts an event that is not recorded. The first one of a gap sets the reason.
func (w *Writer) countLost(e *Event, n uint64, t time.Duration, why GapReason) {
	if w.gap.Lost == 0 {
		w.gapN, w.gapT, w.gap.Why = n, t, why
	}
	w.gap.Lost++
	w.gap.Bytes += e.wireLen()
	w.gap.Until = t
	w.lost++
}

// queueGap queues the gap of events that were lost before the next one.
func (w *Writer) queueGap() {
	if w.gap.Lost > 0 {
		w.queue.add(gapEvent(w.gapN, w.gapT, w.gap), w.gapN, w.gapT, nil, 0)
		w.gap = Gap{}
	}
}

// Lost returns the number of events that were not recorded because the disk was too slow or failed,
// or because nobody wanted them.
func (w *Writer) Lost() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// firstErr returns the first write error, or nil.
func (w *Writer) firstErr() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Flush waits until all earlier events have been written and flushed to the underlying writer, or
// ctx ends. It returns the first write error so far, after which the Writer continues to record and
// to write, or an error that wraps os.ErrClosed after Close.
func (w *Writer) Flush(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case w.flush <- reply:
	case <-w.done:
		return fmt.Errorf("flushing the capture: %w", os.ErrClosed)
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

// Close writes the remaining events and the tail. After the close timeout it returns an error that
// wraps [os.ErrDeadlineExceeded], and the goroutine continues until its write returns. Otherwise it
// returns the result of Err. It may be called more than once.
func (w *Writer) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	wait.Signal(w.wake)
	wait.Signal(w.urgent)
	select {
	case <-w.done:
		return w.firstErr()
	case <-time.After(w.opts.CloseTimeout):
		return errors.Join(errUnfinished, w.firstErr())
	}
}

// writeLoop is the state of a Writer's goroutine.
type writeLoop struct {
	enc *Encoder
	// tee is nil if nobody watches the output.
	tee hooks.Tee
	// flusher is nil if the destination has no buffer.
	flusher interface{ Flush() error }
	spare   *eventBuffer
	// writeFailed reports that the last write failed, possibly within a line.
	writeFailed bool
	// dirty reports that flusher has unflushed data.
	dirty bool

	// next is the number of the event for the next line.
	next uint64
	// events counts the written events.
	events uint64
	// unflushed has the events since the last successful write. They are lost if the next one
	// fails.
	unflushed lostRange
	// lost has the lost events that the capture does not mention yet.
	lost        lostRange
	head        Event
	headWritten bool
	lastFlush   time.Time
}

// A lostRange is a run of events.
type lostRange struct {
	// n is the number of the first event.
	n   uint64
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
	l.enc = NewEncoder(l.withTee(out), w.opts.Redact)
	l.next = 1
	l.flusher, _ = out.(interface{ Flush() error })
	l.spare = new(eventBuffer)
	l.head = Event{Kind: KindHead, Head: &Head{
		Version: Version, ID: w.id, At: w.start, Tool: w.opts.Tool, Transport: w.opts.Transport, Name: w.opts.Name, URL: w.opts.URL,
	}}
	l.enc.Encode(&l.head)
}

// run is the goroutine of a Writer. It writes the queued events and pauses a little before it looks
// again.
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

// nextBuffer returns a buffer of queued events, or nil if it has none. more reports that further
// events wait, closed that no more will come.
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

// releaseBuffer frees the queue space of a written buffer.
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

// maxFreeBuffers limits the buffers kept for reuse while traffic is faster than the disk.
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
		flush = time.After(min(idleFlushDelay, max(0, flushInterval-time.Since(w.loop.lastFlush))))
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

// drain writes the events that are queued now.
func (w *Writer) drain() {
	w.mu.Lock()
	left := len(w.full) + 1
	w.mu.Unlock()
	for ; left > 0; left-- { // excludes later events
		b, _, _ := w.nextBuffer()
		if b == nil {
			return
		}
		w.writeEvents(b)
		w.releaseBuffer(b)
	}
}

// writeEvents writes the events of a buffer and updates the counters.
func (w *Writer) writeEvents(b *eventBuffer) {
	l := &w.loop
	defer l.endLine()
	if l.writeFailed {
		// The last line may be incomplete. End it, so that the next one is not lost with it.
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
		if l.enc.encode(e) == nil && len(l.enc.out.buf) == 0 {
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

// markWritten notes that everything so far was written.
func (l *writeLoop) markWritten() {
	l.headWritten = true
	l.events += l.unflushed.gap.Lost
	l.unflushed, l.lost = lostRange{}, lostRange{}
}

// writeFailed notes a write error. The next buffer is another attempt, since a full disk may get
// room again.
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

// flushDst flushes the compressor, if there is one.
func (w *Writer) flushDst() error {
	l := &w.loop
	l.lastFlush = time.Now()
	if l.dirty {
		l.dirty = false
		if err := l.flusher.Flush(); err != nil {
			w.writeFailed(err)
		}
	}
	return w.firstErr()
}

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
	l.endLine()
	l.dirty = l.flusher != nil
	w.flushDst()
}

// An eventBuffer holds events between Record and the writing goroutine. Small payloads share one
// reusable block of memory.
type eventBuffer struct {
	events []queuedEvent
	data   []byte
	cost   int
}

type queuedEvent struct {
	ev Event
	// from and to delimit the payload in eventBuffer.data if shared is set.
	from, to int
	shared   bool
	// free returns the payload to its owner. It is nil if the garbage collector owns it.
	free func()
}

const (
	// largePayload is the size in bytes from which a payload has its own memory.
	largePayload = 64 << 10
	// Larger idle capacity is released when the use is far less.
	maxIdleData   = 1 << 20
	maxIdleEvents = 2048
	// maxBufferCost limits a buffer in bytes, since growth copies.
	maxBufferCost = 4 << 20
)

// emptyCopy returns an empty buffer with room for the contents of b.
func (b *eventBuffer) emptyCopy() *eventBuffer {
	return &eventBuffer{events: make([]queuedEvent, 0, len(b.events)), data: make([]byte, 0, len(b.data))}
}

// add appends an event. It copies the payload unless own is set, which the buffer keeps.
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

// freeLast sets the function that frees the payload of the last event.
func (b *eventBuffer) freeLast(free func()) { b.events[len(b.events)-1].free = free }

// event returns an event with its payload. It is valid until reset.
func (b *eventBuffer) event(i int) *Event {
	q := &b.events[i]
	if q.shared {
		// An empty payload must not become nil, even if data is nil.
		q.ev.Data = nonNil(b.data[q.from:q.to:q.to])
	}
	return &q.ev
}

// reset empties the buffer and releases memory that a burst left.
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

// teeWriter writes to w and copies to a Tee.
type teeWriter struct {
	w   io.Writer
	tee hooks.Tee
}

func (t teeWriter) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.tee.Write(p)
	return n, err
}

// withTee returns the writer for the encoder.
func (l *writeLoop) withTee(w io.Writer) io.Writer {
	if l.tee == nil {
		return w
	}
	return teeWriter{w, l.tee}
}

// endLine notifies the Tee, if there is one, that the output is at the end of a line.
func (l *writeLoop) endLine() {
	if l.tee != nil {
		l.tee.EndLine(l.next)
	}
}

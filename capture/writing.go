package capture

import (
	"io"
	"time"
)

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

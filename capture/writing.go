package capture

import (
	"io"
	"time"
)

// writing is what the goroutine of a Writer works with.
type writing struct {
	enc     *Encoder
	flusher interface{ Flush() error } // nil if nothing below has a buffer
	spare   *batch
	broken  bool // the last write failed, maybe within a line
	dirty   bool // the flusher has something that is not flushed

	next      uint64 // number of the event that the next line is about
	events    uint64 // written
	risk      span   // the events since the last write that did not fail: lost if the next one does
	lost      span   // those that were lost, as long as the capture does not say so
	head      Event
	headed    bool // it is written
	lastFlush time.Time
}

// A span is a run of events.
type span struct {
	n   uint64 // of the first
	t   time.Duration
	gap Gap
}

func (s *span) add(e *Event) {
	if s.gap.Lost == 0 {
		s.n, s.t, s.gap.Why = e.N, e.T, GapWrite
	}
	s.gap.Lost++
	s.gap.Bytes += e.wireLen()
	s.gap.Until = e.T
}

func (s *span) join(o span) {
	if s.gap.Lost == 0 {
		*s = o
		return
	}
	s.gap.Lost += o.gap.Lost
	s.gap.Bytes += o.gap.Bytes
	s.gap.Until = max(s.gap.Until, o.gap.Until)
}

func (w *writing) init(c *Writer, out io.Writer) {
	if c.opts.Unredacted {
		w.enc = NewUnredactedEncoder(c.opts.showing(out))
	} else {
		w.enc = NewEncoder(c.opts.showing(out), c.opts.Redact)
	}
	w.next = 1
	w.flusher, _ = out.(interface{ Flush() error })
	w.spare = new(batch)
	w.head = Event{Kind: KindHead, Head: &Head{
		Version: Version, ID: c.id, At: c.start, Tool: c.opts.Tool, Transport: c.opts.Transport, Name: c.opts.Name, URL: c.opts.URL,
	}}
	w.enc.Encode(&w.head)
}

// run is the goroutine of a Writer. It takes what was recorded, writes it, and lingers a little before it looks again.
func (c *Writer) run() {
	defer close(c.done)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	c.write(new(batch)) // the head
	for {
		b, more, closed := c.take()
		if b != nil {
			c.write(b)
			c.give(b)
		}
		if more {
			continue
		}
		if closed {
			break
		}
		timer.Reset(linger)
		select {
		case <-timer.C:
		case <-c.hurry:
		case reply := <-c.flush:
			c.drain()
			reply <- c.sync()
		}
		c.wait()
	}
	c.finish()
}

// take returns a batch of what is queued, or nil if there is nothing. more tells that there are others,
// closed that no more will come.
func (c *Writer) take() (b *batch, more, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = false
	if c.closed {
		c.endGap()
	}
	if len(c.full) > 0 {
		b = c.full[0]
		c.full[0] = nil
		if c.full = c.full[1:]; len(c.full) == 0 {
			c.full = nil
		}
		return b, len(c.full) > 0 || len(c.queue.events) > 0, c.closed
	}
	if len(c.queue.events) == 0 {
		return nil, false, c.closed
	}
	b = c.queue
	if c.queue, c.w.spare = c.w.spare, nil; c.queue == nil {
		c.queue = new(batch)
	}
	return b, false, c.closed
}

// give makes room for what the batch has held.
func (c *Writer) give(b *batch) {
	cost := b.cost
	b.reset()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting -= cost
	if len(c.full) > 0 && len(c.free) < maxFree {
		c.free = append(c.free, b)
		return
	}
	if len(c.full) == 0 {
		c.free = nil
	}
	c.w.spare = b
}

// maxFree is how many batches are kept for use again while the wire is faster than the disk.
const maxFree = 8

// wait waits until there is something to write or to flush.
func (c *Writer) wait() {
	c.mu.Lock()
	if len(c.full) > 0 || len(c.queue.events) > 0 || c.closed {
		c.mu.Unlock()
		return
	}
	c.idle = true
	c.mu.Unlock()
	var flush <-chan time.Time
	if c.w.dirty {
		t := time.NewTimer(min(quiet, max(0, syncEvery-time.Since(c.w.lastFlush))))
		defer t.Stop()
		flush = t.C
	}
	select {
	case <-c.wake:
	case <-c.hurry:
	case <-flush:
		c.sync()
	case reply := <-c.flush:
		c.drain()
		reply <- c.sync()
	}
}

// drain writes what is queued now.
func (c *Writer) drain() {
	c.mu.Lock()
	left := len(c.full) + 1
	c.mu.Unlock()
	for ; left > 0; left-- { // not what comes meanwhile
		b, _, _ := c.take()
		if b == nil {
			return
		}
		c.write(b)
		c.give(b)
	}
}

// write writes the events of a batch, and accounts for them.
func (c *Writer) write(b *batch) {
	w := &c.w
	defer w.whole(c.opts.Tee)
	if w.broken {
		// The last line may be half there: end it, so that no other is lost with it.
		w.broken, w.enc.out.err = false, nil
		w.enc.out.str("\n")
		if !w.headed {
			w.enc.Encode(&w.head)
		}
		if w.lost.gap.Lost > 0 {
			w.enc.Encode(gapOf(w.lost.n, w.lost.t, w.lost.gap))
		}
	}
	for i := range b.events {
		e := b.event(i)
		if e.Kind != KindGap {
			w.risk.add(e)
		}
		w.next = max(w.next, e.N+1)
		if w.enc.Encode(e) == nil && len(w.enc.out.buf) == 0 {
			w.safe()
		}
	}
	w.dirty = w.flusher != nil
	if err := w.enc.Flush(); err != nil {
		c.failed(err)
		return
	}
	w.safe()
	if w.dirty && time.Since(w.lastFlush) > syncEvery {
		c.sync()
	}
}

// safe notes that everything was written.
func (w *writing) safe() {
	w.headed = true
	w.events += w.risk.gap.Lost
	w.risk, w.lost = span{}, span{}
}

// failed notes that writing failed. The next batch is another attempt: disks that are full do not stay so.
func (c *Writer) failed(err error) {
	w := &c.w
	w.broken = true
	c.mu.Lock()
	if c.err == nil {
		c.err = errWrite(err)
	}
	c.lost += w.risk.gap.Lost
	c.mu.Unlock()
	w.lost.join(w.risk)
	w.risk = span{}
}

// sync empties the compressor, if there is one.
func (c *Writer) sync() error {
	w := &c.w
	w.lastFlush = time.Now()
	if w.dirty {
		w.dirty = false
		if err := w.flusher.Flush(); err != nil {
			c.failed(err)
		}
	}
	return c.Err()
}

// finish writes the tail.
func (c *Writer) finish() {
	w := &c.w
	if w.broken {
		c.write(new(batch))
	}
	c.mu.Lock()
	n, t, lost := c.n+1, time.Since(c.start), c.lost
	c.mu.Unlock()
	w.enc.Encode(&Event{Kind: KindTail, N: n, T: t, Tail: &Tail{Events: w.events, Lost: lost}})
	if err := w.enc.Flush(); err != nil {
		c.failed(err)
	}
	w.next = n
	w.whole(c.opts.Tee)
	w.dirty = w.flusher != nil
	c.sync()
}

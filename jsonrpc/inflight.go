package jsonrpc

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

var errDuplicateID = &Error{Code: CodeInvalidRequest, Message: "invalid request: a request with this id is still in flight"}

// A table holds the requests that are off the leader's hands: running on goroutines of their own, or queued for one.
type table struct {
	count   atomic.Int32 // of listed requests
	running atomic.Int32 // goroutines that run handlers, without those of Standing requests

	mu       sync.Mutex
	listed   listing
	bytes    int        // frames of the requests that run
	standing int        // goroutines that run Standing requests
	queue    []*Request // first come, first served
	queued   int        // bytes of their frames
	notes    []*Request // notifications, which one goroutine takes in order
	note     *Request   // the one it has at hand
	noting   bool
	idle     chan struct{} // closed when nothing is listed; made by whenIdle
}

// requestCost is what a queued request counts besides its frame, in bytes.
const requestCost = 512

// has reports whether a request with that id is in flight.
func (t *table) has(id ID) bool {
	if t.count.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.listed.get(id) != nil
}

// list makes a request that the leader started one of those in flight, unless it is done, and counts it unless its answer is sent too.
func (t *table) list(r *Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !r.done {
		t.addLocked(r)
	}
	if !r.gone {
		r.counted = true
		t.running.Add(1)
	}
}

func (t *table) addLocked(r *Request) {
	r.counted = true
	t.listed.add(r)
	t.count.Add(1)
}

// unlist takes the request out, so that nobody can cancel it any more, and reports whether it may still be answered.
func (t *table) unlist(r *Request) (owed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.done = true
	t.removeLocked(r)
	return !r.cancelled.Load()
}

func (t *table) removeLocked(r *Request) {
	if t.listed.remove(r) {
		t.count.Add(-1)
	}
}

// cancel cancels the request with that id, wherever it is.
func (t *table) cancel(id ID) bool {
	t.mu.Lock()
	r := t.listed.get(id)
	if r != nil {
		// The id is free from here on: no answer will come under it.
		t.removeLocked(r)
		r.cancel()
	}
	t.mu.Unlock()
	return r != nil
}

// cancelAll cancels what is running, drops what is queued, and returns how many requests there were. Those that run stay listed, for methods.
func (t *table) cancelAll() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cancelAllLocked()
}

func (t *table) cancelAllLocked() int {
	n := t.listed.len()
	for _, r := range t.queue {
		t.removeLocked(r)
	}
	t.queue, t.notes, t.queued = nil, nil, 0
	for r := range t.listed.all() {
		r.cancel()
	}
	if t.note != nil {
		t.note.cancel()
	}
	t.checkIdleLocked()
	return n
}

// whenIdle returns a channel that is closed as soon as no handler runs and none is queued.
func (t *table) whenIdle() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = make(chan struct{})
	idle := t.idle
	t.checkIdleLocked()
	return idle
}

func (t *table) checkIdleLocked() {
	if t.idle != nil && t.running.Load() == 0 && t.standing == 0 && len(t.queue) == 0 && !t.noting {
		close(t.idle)
		t.idle = nil
	}
}

// methods names what is still running, for the log.
func (t *table) methods() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for r := range t.listed.all() {
		names = append(names, clip(r.Method))
	}
	return names
}

// own makes a copy of r that does not depend on the leader: neither on its Request nor on its buffer. frame is the text of r, which may be a
// part of the frame that was read.
func (c *Conn) own(r *Request, frame []byte) *Request {
	n := requests.Get().(*Request)
	n.clear()
	n.conn, n.Route, n.State, n.pace, n.batch, n.base, n.until, n.Message = c, r.Route, r.State, r.pace, r.batch, r.base, r.until, r.Message
	n.size = len(frame) + requestCost
	if !c.detached && len(frame) > maxCopied && len(frame) == len(r.text) && c.src.held() <= maxWaste*len(frame) {
		n.big = frame
		c.src.detach()
		return n
	}
	n.frame = append(n.frame[:0], frame...)
	if len(frame) == len(r.text) {
		n.setText(n.frame)
		return n
	}
	if err := Parse(n.frame, &n.Message, c.opts.MaxDepth); err != nil {
		n.broken = err // not possible: it was parsed as a member of a batch
	}
	return n
}

// start lists the request and runs it on a goroutine of its own, or queues it.
func (c *Conn) start(r *Request, pace *Pace, frame []byte) {
	r.pace = pace
	c.enqueue(c.own(r, frame))
}

// enqueue starts r, which depends on nobody.
func (c *Conn) enqueue(r *Request) {
	t := &c.table
	t.mu.Lock()
	twice := t.listed.get(r.ID) != nil
	full := r.pace != Standing && (len(t.queue) > 0 || !c.fitsLocked(r)) // nobody overtakes those in the queue
	overloaded := full && t.queued+r.size > c.opts.MaxQueueBytes && len(t.queue) > 0
	switch {
	case twice, overloaded:
		t.mu.Unlock()
		e := errDuplicateID
		if overloaded {
			e = Errorf(CodeInternalError, "overloaded: %d requests are in flight and %d bytes are queued", t.running.Load(), c.opts.MaxQueueBytes)
		}
		c.answer(r, e)
		r.release()
		return
	case full:
		t.addLocked(r)
		t.queue = append(t.queue, r)
		t.queued += r.size
		t.mu.Unlock()
		return
	}
	t.addLocked(r)
	if r.pace == Standing {
		t.standing++
	} else {
		t.running.Add(1)
		t.bytes += r.size
	}
	t.mu.Unlock()
	c.wg.Go(func() { c.work(r) })
}

// work runs requests until none is queued.
func (c *Conn) work(r *Request) {
	defer func() {
		if r != nil {
			c.exited(r)
		}
	}()
	for r != nil {
		if !r.cancelled.Load() {
			r.began = time.Now()
			r.respond()
			if r.pace != nil && r.pace != Standing {
				r.pace.observe(time.Since(r.began), r.size)
			}
		}
		next := c.complete(r)
		r.release()
		r = next
	}
}

// complete sends the answer of a request that was handled off the leader's hands, or that lost its leader, and returns the next queued one that
// the goroutine should run.
func (c *Conn) complete(r *Request) *Request {
	owed := c.table.unlist(r)
	sent := owed
	reply := &r.reply
	if r.batch != nil && !r.cut {
		owed = r.batch.add(c, r.reply, owed)
		reply = &r.batch.reply
	}
	if owed && len(*reply) > 0 {
		if err := c.w.send(reply, nil); err != nil {
			c.log.Debug("answer not sent", "error", err)
			sent = false
		}
	}
	if !sent && r.unsent != nil {
		r.unsent()
	}
	t := &c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	r.gone = true
	switch {
	case !r.counted:
		return nil // it lost its leader just now, and was answered before that could be noted
	case r.pace == Standing:
		t.standing--
		t.checkIdleLocked()
		return nil
	}
	t.running.Add(-1)
	t.bytes -= r.size
	return c.nextLocked()
}

// fitsLocked reports whether there is a place for r among the requests that run. One always has a place, however large it is.
func (c *Conn) fitsLocked(r *Request) bool {
	t := &c.table
	return int(t.running.Load()) < c.opts.MaxInFlight && (t.bytes == 0 || t.bytes+r.size <= c.opts.MaxInFlightBytes)
}

// nextLocked gives the places that have become free to the first requests in the queue. It returns the one that the caller should run.
func (c *Conn) nextLocked() (next *Request) {
	t := &c.table
	for len(t.queue) > 0 && c.fitsLocked(t.queue[0]) {
		r := t.queue[0]
		t.queue[0] = nil
		t.queue = t.queue[1:]
		t.queued -= r.size
		t.running.Add(1)
		t.bytes += r.size
		if next == nil {
			next = r
		} else {
			c.wg.Go(func() { c.work(r) })
		}
	}
	t.checkIdleLocked()
	return next
}

// release gives the request's memory back.
func (r *Request) release() {
	if r.big != nil {
		recycle(r.big)
		r.big = nil
	}
	if cap(r.reply) > bufKeep {
		r.reply = nil
	}
	if cap(r.frame) > 2*maxCopied {
		r.frame = nil
	}
	r.Message = Message{}
	requests.Put(r)
}

// takeNotification hands a notification to the handler: here if that is quick, else to one goroutine that takes them in order. frame is the
// text of r.
func (c *Conn) takeNotification(r *Request, frame []byte) {
	if r.prepare() == Immediate {
		r.respond()
		return
	}
	t := &c.table
	r = c.own(r, frame)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.detached && c.stopping.Load() { // with the lock that closing takes, since it waits for the goroutine below
		r.release()
		return
	}
	if t.queued+r.size > c.opts.MaxQueueBytes && len(t.notes) > 0 {
		c.log.Warn("notification dropped: too many are waiting", "method", clip(r.Method))
		r.release()
		return
	}
	t.notes = append(t.notes, r)
	t.queued += r.size
	if !t.noting {
		t.noting = true
		t.running.Add(1)
		c.wg.Go(c.workNotes)
	}
}

func (c *Conn) workNotes() {
	n, r := c.nextNote()
	defer func() {
		if n != nil { // the handler ended the goroutine
			c.wg.Go(c.workNotes)
		}
	}()
	for n != nil {
		n.respond()
		done := n
		n, r = c.nextNote()
		done.release() // only now, because cancelAll may have seen it until then
	}
	c.work(r)
}

// nextNote returns the next notification; when there is none, a request that was waiting for the place.
func (c *Conn) nextNote() (note, r *Request) {
	t := &c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note = nil
	if len(t.notes) == 0 {
		t.noting = false
		t.running.Add(-1)
		return nil, c.nextLocked()
	}
	t.note = t.notes[0]
	t.notes[0] = nil
	t.notes = t.notes[1:]
	t.queued -= t.note.size
	return t.note, nil
}

// takeCancel acts on a notification that cancels a request and reports whether it was one.
func (c *Conn) takeCancel(n *Message) bool {
	id, reason, ok := c.opts.Cancellation.Target(n)
	if !ok {
		return false
	}
	found := len(id) > 0 && c.table.cancel(id)
	c.log.Debug("request cancelled by peer", "id", clip(id), "reason", reason, "found", found)
	return true
}

// reject answers a frame that is no message, unless it looks like a response.
func (c *Conn) reject(m *Message, err error) {
	var e *Error
	if !errors.As(err, &e) {
		return
	}
	c.log.Warn("bad message", "error", e, "id", clip(m.ID))
	if m.Kind == KindResponse || m.Kind == KindError {
		c.woke = c.calls.reject(m.ID, e) || c.woke
		return
	}
	c.refuse(m.ID, e)
}

// refuse queues an error answer; the leader writes it before it waits.
func (c *Conn) refuse(id ID, e *Error) {
	if !c.mayAnswer(id) {
		return
	}
	buf := c.src.begin(nil)
	start := len(buf)
	buf = AppendError(buf, id, e, !c.has(policyOmitNullID))
	if c.opts.Trace != nil {
		c.opts.Trace(Outgoing, buf[start:])
	}
	buf = c.src.finish(buf, 0)
	if err := c.w.put(&buf); err != nil {
		c.log.Debug("answer not sent", "error", err)
	}
}

// answer refuses a request that may be part of a batch.
func (c *Conn) answer(r *Request, e *Error) {
	if r.batch != nil {
		r.batch.add(c, AppendError(nil, r.ID, e, true), true)
		return
	}
	c.refuse(r.ID, e)
}

package jsonrpc

import (
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

var errDuplicateID = &Error{Code: CodeInvalidRequest, Message: "invalid request: a request with this id is still in flight"}

// A table holds the requests that are off the leader's hands: running on goroutines of their own, or queued for one.
type inFlight struct {
	count   atomic.Int32 // of listed requests
	running atomic.Int32 // goroutines that run handlers, without those of LongRunning requests

	mu                 sync.Mutex
	requests           requestSet
	runningBytes       int        // frames of the requests that run
	longRunning        int        // goroutines that run LongRunning requests
	queue              []*Request // first come, first served
	queuedBytes        int        // bytes of their frames
	notifications      []*Request // notifications, which one goroutine takes in order
	activeNotification *Request   // the one it has at hand
	notifying          bool
	idle               chan struct{} // closed when nothing is listed; made by whenIdle
}

// requestCost is what a queued request counts besides its frame, in bytes.
const requestCost = 512

// contains reports whether a request with that id is in flight.
func (f *inFlight) contains(id ID) bool {
	if f.count.Load() == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests.get(id) != nil
}

// track makes a request that the leader started one of those in flight, unless it is done, and counts it unless its answer is sent too.
func (f *inFlight) track(r *Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !r.done {
		f.trackLocked(r)
	}
	if !r.responded {
		r.counted = true
		f.running.Add(1)
	}
}

func (f *inFlight) trackLocked(r *Request) {
	r.counted = true
	f.requests.add(r)
	f.count.Add(1)
}

// untrack takes the request out, so that nobody can cancel it any more, and reports whether it may still be answered.
func (f *inFlight) untrack(r *Request) (mayRespond bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.done = true
	f.untrackLocked(r)
	return !r.canceled.Load()
}

func (f *inFlight) untrackLocked(r *Request) {
	if f.requests.remove(r) {
		f.count.Add(-1)
	}
}

// cancel cancels the request with that id, wherever it is.
func (f *inFlight) cancel(id ID) bool {
	f.mu.Lock()
	r := f.requests.get(id)
	if r != nil {
		// The id is free from here on: no answer will come under it.
		f.untrackLocked(r)
		r.cancel()
	}
	f.mu.Unlock()
	return r != nil
}

// cancelAll cancels what is running, drops what is queued, and returns how many requests there were. Those that run stay listed, for methods.
func (f *inFlight) cancelAll() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cancelAllLocked()
}

func (f *inFlight) cancelAllLocked() int {
	n := f.requests.len()
	for _, r := range f.queue {
		f.untrackLocked(r)
	}
	f.queue, f.notifications, f.queuedBytes = nil, nil, 0
	for r := range f.requests.all() {
		r.cancel()
	}
	if f.activeNotification != nil {
		f.activeNotification.cancel()
	}
	f.checkIdleLocked()
	return n
}

// whenIdle returns a channel that is closed as soon as no handler runs and none is queued.
func (f *inFlight) whenIdle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = make(chan struct{})
	idle := f.idle
	f.checkIdleLocked()
	return idle
}

func (f *inFlight) checkIdleLocked() {
	if f.idle != nil && f.running.Load() == 0 && f.longRunning == 0 && len(f.queue) == 0 && !f.notifying {
		close(f.idle)
		f.idle = nil
	}
}

// methods names what is still running, for the log.
func (f *inFlight) methods() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for r := range f.requests.all() {
		names = append(names, clip(r.Method))
	}
	return names
}

// copyRequest makes a copy of r that does not depend on the leader: neither on its Request nor on its buffer. frame is the text of r, which may be a
// part of the frame that was read.
func (c *Conn) copyRequest(r *Request, frame []byte) *Request {
	n := requests.Get().(*Request)
	n.clear()
	n.conn, n.Route, n.State, n.cost, n.batch, n.base, n.lifetime, n.Message = c, r.Route, r.State, r.cost, r.batch, r.base, r.lifetime, r.Message
	n.size = len(frame) + requestCost
	if !c.detached && len(frame) > maxCopy && len(frame) == len(r.text) && c.src.bufferSize() <= maxWaste*len(frame) {
		n.readBuf = frame
		c.src.detach()
		return n
	}
	n.frame = append(n.frame[:0], frame...)
	if len(frame) == len(r.text) {
		n.setText(n.frame)
		return n
	}
	if err := Parse(n.frame, &n.Message, c.opts.MaxDepth); err != nil {
		n.failure = err // not possible: it was parsed as a member of a batch
	}
	return n
}

// startRequest lists the request and runs it on a goroutine of its own, or queues it.
func (c *Conn) startRequest(r *Request, cost *CostEstimate, frame []byte) {
	r.cost = cost
	c.enqueue(c.copyRequest(r, frame))
}

// enqueue starts r, which depends on nobody.
func (c *Conn) enqueue(r *Request) {
	t := &c.inFlight
	t.mu.Lock()
	duplicate := t.requests.get(r.ID) != nil
	full := r.cost != LongRunning && (len(t.queue) > 0 || !c.fitsLocked(r)) // nobody overtakes those in the queue
	overloaded := full && t.queuedBytes+r.size > c.opts.MaxQueueBytes && len(t.queue) > 0
	switch {
	case duplicate, overloaded:
		t.mu.Unlock()
		e := errDuplicateID
		if overloaded {
			e = Errorf(CodeInternalError, "overloaded: %d requests are in flight and %d bytes are queued", t.running.Load(), c.opts.MaxQueueBytes)
		}
		c.rejectRequest(r, e)
		r.release()
		return
	case full:
		t.trackLocked(r)
		t.queue = append(t.queue, r)
		t.queuedBytes += r.size
		t.mu.Unlock()
		return
	}
	t.trackLocked(r)
	if r.cost == LongRunning {
		t.longRunning++
	} else {
		t.running.Add(1)
		t.runningBytes += r.size
	}
	t.mu.Unlock()
	c.wg.Go(func() { c.runRequests(r) })
}

// runRequests runs requests until none is queued.
func (c *Conn) runRequests(r *Request) {
	defer func() {
		if r != nil {
			c.handlerExited(r)
		}
	}()
	for r != nil {
		if !r.canceled.Load() {
			r.began = time.Now()
			r.respond()
			if r.cost != nil && r.cost != LongRunning {
				r.cost.observe(time.Since(r.began), r.size)
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
	mayRespond := c.inFlight.untrack(r)
	sent := mayRespond
	reply := &r.reply
	if r.batch != nil && !r.aborted {
		mayRespond = r.batch.add(c, r.reply, mayRespond)
		reply = &r.batch.reply
	}
	if mayRespond && len(*reply) > 0 {
		if err := c.w.send(reply, nil); err != nil {
			c.log.Debug("answer not sent", "error", err)
			sent = false
		}
	}
	if !sent && r.onUnsent != nil {
		r.onUnsent()
	}
	t := &c.inFlight
	t.mu.Lock()
	defer t.mu.Unlock()
	r.responded = true
	switch {
	case !r.counted:
		return nil // it lost its leader just now, and was answered before that could be noted
	case r.cost == LongRunning:
		t.longRunning--
		t.checkIdleLocked()
		return nil
	}
	t.running.Add(-1)
	t.runningBytes -= r.size
	return c.dequeueLocked()
}

// fitsLocked reports whether there is a place for r among the requests that run. One always has a place, however large it is.
func (c *Conn) fitsLocked(r *Request) bool {
	t := &c.inFlight
	return int(t.running.Load()) < c.opts.MaxInFlight && (t.runningBytes == 0 || t.runningBytes+r.size <= c.opts.MaxInFlightBytes)
}

// dequeueLocked gives the places that have become free to the first requests in the queue. It returns the one that the caller should run.
func (c *Conn) dequeueLocked() (next *Request) {
	t := &c.inFlight
	for len(t.queue) > 0 && c.fitsLocked(t.queue[0]) {
		r := t.queue[0]
		t.queue[0] = nil
		t.queue = t.queue[1:]
		t.queuedBytes -= r.size
		t.running.Add(1)
		t.runningBytes += r.size
		if next == nil {
			next = r
		} else {
			c.wg.Go(func() { c.runRequests(r) })
		}
	}
	t.checkIdleLocked()
	return next
}

// release gives the request's memory back.
func (r *Request) release() {
	if r.readBuf != nil {
		putBuffer(r.readBuf)
		r.readBuf = nil
	}
	if cap(r.reply) > maxIdleBuffer {
		r.reply = nil
	}
	if cap(r.frame) > 2*maxCopy {
		r.frame = nil
	}
	r.Message = Message{}
	requests.Put(r)
}

// handleNotification hands a notification to the handler: here if that is quick, else to one goroutine that takes them in order. frame is the
// text of r.
func (c *Conn) handleNotification(r *Request, frame []byte) {
	if r.prepare() == Immediate {
		r.respond()
		return
	}
	t := &c.inFlight
	r = c.copyRequest(r, frame)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.detached && c.stopping.Load() { // with the lock that closing takes, since it waits for the goroutine below
		r.release()
		return
	}
	if t.queuedBytes+r.size > c.opts.MaxQueueBytes && len(t.notifications) > 0 {
		c.log.Warn("notification dropped: too many are waiting", "method", clip(r.Method))
		r.release()
		return
	}
	t.notifications = append(t.notifications, r)
	t.queuedBytes += r.size
	if !t.notifying {
		t.notifying = true
		t.running.Add(1)
		c.wg.Go(c.runNotifications)
	}
}

func (c *Conn) runNotifications() {
	n, r := c.nextNotification()
	defer func() {
		if n != nil { // the handler ended the goroutine
			c.wg.Go(c.runNotifications)
		}
	}()
	for n != nil {
		n.respond()
		done := n
		n, r = c.nextNotification()
		done.release() // only now, because cancelAll may have seen it until then
	}
	c.runRequests(r)
}

// nextNotification returns the next notification; when there is none, a request that was waiting for the place.
func (c *Conn) nextNotification() (notification, r *Request) {
	t := &c.inFlight
	t.mu.Lock()
	defer t.mu.Unlock()
	t.activeNotification = nil
	if len(t.notifications) == 0 {
		t.notifying = false
		t.running.Add(-1)
		return nil, c.dequeueLocked()
	}
	t.activeNotification = t.notifications[0]
	t.notifications[0] = nil
	t.notifications = t.notifications[1:]
	t.queuedBytes -= t.activeNotification.size
	return t.activeNotification, nil
}

// handleCancel acts on a notification that cancels a request and reports whether it was one.
func (c *Conn) handleCancel(n *Message) bool {
	id, reason, ok := c.opts.Cancellation.Target(n)
	if !ok {
		return false
	}
	found := len(id) > 0 && c.inFlight.cancel(id)
	c.log.Debug("request cancelled by peer", "id", clip(id), "reason", reason, "found", found)
	return true
}

// rejectMessage answers a frame that is no message, unless it looks like a response.
func (c *Conn) rejectMessage(m *Message, err error) {
	var e *Error
	if !errors.As(err, &e) {
		return
	}
	c.log.Warn("bad message", "error", e, "id", clip(m.ID))
	if m.Kind == KindResponse || m.Kind == KindError {
		c.wokeCaller = c.calls.failMalformed(m.ID, e) || c.wokeCaller
		return
	}
	c.respondError(m.ID, e)
}

// respondError queues an error answer; the leader writes it before it waits.
func (c *Conn) respondError(id ID, e *Error) {
	if !c.mayRespond(id) {
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

// rejectRequest refuses a request that may be part of a batch.
func (c *Conn) rejectRequest(r *Request, e *Error) {
	if r.batch != nil {
		r.batch.add(c, AppendError(nil, r.ID, e, true), true)
		return
	}
	c.respondError(r.ID, e)
}

// A listing holds requests by their ids. Most connections have one at a time, which takes no further memory.
type requestSet struct {
	single *Request            // with a short id; nil if there is none
	rest   map[string]*Request // the others, by canonical id; nil until there was one
	idLen  int                 // bytes of id
	id     [24]byte            // canonical, of one
}

// get returns the request with that id; nil if there is none.
func (s *requestSet) get(id ID) *Request {
	key := id.canonical()
	if s.single != nil && string(s.id[:s.idLen]) == string(key) {
		return s.single
	}
	return s.rest[string(key)]
}

// add lists a request.
func (s *requestSet) add(r *Request) {
	key := r.ID.canonical()
	if s.single == nil && len(key) <= len(s.id) {
		s.single, s.idLen = r, copy(s.id[:], key)
		return
	}
	if s.rest == nil {
		s.rest = make(map[string]*Request)
	}
	r.key = string(key)
	s.rest[r.key] = r
}

// remove takes a request out, and reports whether it was listed. Its id may be another's by now.
func (s *requestSet) remove(r *Request) bool {
	switch r {
	case s.single:
		s.single = nil
	case s.rest[r.key]:
		delete(s.rest, r.key)
	default:
		return false
	}
	return true
}

func (s *requestSet) len() int {
	if s.single == nil {
		return len(s.rest)
	}
	return len(s.rest) + 1
}

// all ranges over the requests, in no order.
func (s *requestSet) all() iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		if s.single != nil && !yield(s.single) {
			return
		}
		for _, r := range s.rest {
			if !yield(r) {
				return
			}
		}
	}
}

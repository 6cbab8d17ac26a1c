package rpc

import (
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

var errDuplicateID = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "invalid request: a request with this id is still in flight"}

// inFlight holds the requests that the leader does not run: those on other goroutines and those in
// the queue.
type inFlight struct {
	c *Conn
	// count is the number of tracked requests.
	count atomic.Int32
	// running counts the goroutines that run handlers, except for LongRunning requests.
	running atomic.Int32

	mu       sync.Mutex
	requests requestSet
	// runningBytes is the size of the frames of running requests.
	runningBytes int
	// longRunning counts the goroutines that run LongRunning requests.
	longRunning int
	// queue is in the order of arrival.
	queue []*Request
	// queuedBytes is the size of the frames in both queues.
	queuedBytes int
	// notifications is the queue of one goroutine that handles them in order.
	notifications []*Request
	// activeNotification is the notification that is being handled.
	activeNotification *Request
	notifying          bool
	// idle is closed when nothing is running or queued. whenIdle makes it.
	idle chan struct{}
}

// requestCost is the overhead of a queued request beyond its frame, in bytes.
const requestCost = 512

// contains reports whether a request with the given id is in flight.
func (f *inFlight) contains(id jsonrpc.ID) bool {
	if f.count.Load() == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests.get(id) != nil
}

// track adds a request that the leader started, unless it is done, and counts it unless its
// response was sent too.
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

// untrack removes the request, so that it can no longer be canceled, and reports whether it may
// still be answered.
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

// cancel cancels the request with the given id, and reports whether there was one.
func (f *inFlight) cancel(id jsonrpc.ID, cause error) bool {
	f.mu.Lock()
	r := f.requests.get(id)
	if r != nil {
		// The id is free from now on, since no response will use it.
		f.untrackLocked(r)
		r.cancel(cause)
	}
	f.mu.Unlock()
	return r != nil
}

// cancelAll cancels running requests and drops queued ones. Running requests stay tracked, for
// methods.
func (f *inFlight) cancelAll(cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelAllLocked(cause)
}

func (f *inFlight) cancelAllLocked(cause error) {
	for _, r := range f.queue {
		f.untrackLocked(r)
	}
	f.queue, f.notifications, f.queuedBytes = nil, nil, 0
	for r := range f.requests.all() {
		r.cancel(cause)
	}
	if f.activeNotification != nil {
		f.activeNotification.cancel(cause)
	}
	f.checkIdleLocked()
}

// whenIdle returns a channel that is closed as soon as no handler is running or queued.
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

// methods returns the methods of the running requests, for the log.
func (f *inFlight) methods() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for r := range f.requests.all() {
		names = append(names, clip.String(r.Method, 100))
	}
	return names
}

// copy returns a copy of r that uses neither the leader's Request nor its buffer. whole says
// that r is all of the frame that src has read last, so that the copy may take over the buffer.
func (f *inFlight) copy(r *Request, whole bool) *Request {
	n := requests.Get().(*Request)
	n.clear()
	n.conn, n.Route, n.State, n.cost, n.batch, n.base, n.lifetime, n.Message = f.c, r.Route, r.State, r.cost, r.batch, r.base, r.lifetime, r.Message
	frame := r.Raw()
	n.size = len(frame) + requestCost
	if whole && len(frame) > maxCopy && f.c.src.BufferSize() <= maxWaste*len(frame) {
		n.readBuf = frame
		f.c.src.Detach()
		return n
	}
	n.frame = n.Move(n.frame)
	return n
}

// enqueue starts or queues r, which must not use the leader's memory.
func (f *inFlight) enqueue(r *Request) {
	f.mu.Lock()
	duplicate := f.requests.get(r.ID) != nil
	full := r.cost != LongRunning && (len(f.queue) > 0 || !f.fitsLocked(r)) // keep the order
	overloaded := full && f.queuedBytes+r.size > f.c.opts.MaxQueueBytes && len(f.queue) > 0
	switch {
	case duplicate, overloaded:
		f.mu.Unlock()
		e := errDuplicateID
		if overloaded {
			e = jsonrpc.Errorf(jsonrpc.CodeInternalError, "overloaded: %d requests are in flight and %d bytes are queued", f.running.Load(), f.c.opts.MaxQueueBytes)
		}
		f.c.rejectRequest(r, e)
		r.release()
		return
	case full:
		f.trackLocked(r)
		f.queue = append(f.queue, r)
		f.queuedBytes += r.size
		f.mu.Unlock()
		return
	}
	f.trackLocked(r)
	if r.cost == LongRunning {
		f.longRunning++
	} else {
		f.running.Add(1)
		f.runningBytes += r.size
	}
	f.mu.Unlock()
	f.c.wg.Go(func() { f.run(r) })
}

// run runs r and then queued requests until none is left.
func (f *inFlight) run(r *Request) {
	defer func() {
		if r != nil {
			f.c.handlerExited(r)
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
		next := f.complete(r)
		r.release()
		r = next
	}
}

// complete sends the response of a request that was handled on another goroutine, or whose leader
// lost the lead. It returns the next queued request that the goroutine should run.
func (f *inFlight) complete(r *Request) *Request {
	mayRespond := f.untrack(r)
	sent := mayRespond
	reply := &r.reply
	if r.batch != nil && !r.aborted {
		mayRespond = r.batch.add(f.c, r.reply, mayRespond)
		reply = &r.batch.reply
	}
	if mayRespond && len(*reply) > 0 {
		if err := f.c.w.send(reply, nil); err != nil {
			f.c.log.Debug("response not sent", "error", err)
			sent = false
		}
	}
	if !sent && r.onUnsent != nil {
		r.onUnsent()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r.responded = true
	switch {
	case !r.counted:
		return nil // the lead was lost and the response sent before track ran
	case r.cost == LongRunning:
		f.longRunning--
		f.checkIdleLocked()
		return nil
	}
	f.running.Add(-1)
	f.runningBytes -= r.size
	return f.dequeueLocked()
}

// fitsLocked reports whether r may run now. One request may run whatever its size.
func (f *inFlight) fitsLocked(r *Request) bool {
	return int(f.running.Load()) < f.c.opts.MaxInFlight && (f.runningBytes == 0 || f.runningBytes+r.size <= f.c.opts.MaxInFlightBytes)
}

// dequeueLocked starts the first requests in the queue as far as the limits allow. It returns the
// one that the caller should run.
func (f *inFlight) dequeueLocked() (next *Request) {
	for len(f.queue) > 0 && f.fitsLocked(f.queue[0]) {
		r := f.queue[0]
		f.queue[0] = nil
		f.queue = f.queue[1:]
		f.queuedBytes -= r.size
		f.running.Add(1)
		f.runningBytes += r.size
		if next == nil {
			next = r
		} else {
			f.c.wg.Go(func() { f.run(r) })
		}
	}
	f.checkIdleLocked()
	return next
}

// release returns the request's memory to the pools.
func (r *Request) release() {
	if r.readBuf != nil {
		r.conn.src.Release(r.readBuf)
		r.readBuf = nil
	}
	if cap(r.reply) > maxIdleMemory {
		r.reply = nil
	}
	if cap(r.frame) > 2*maxCopy {
		r.frame = nil
	}
	r.Message = jsonrpc.Message{}
	requests.Put(r)
}

// handleNotification runs the handler of a notification here if it is Immediate, and otherwise
// queues the notification for one goroutine that handles them in order. whole is as for copy.
func (f *inFlight) handleNotification(r *Request, whole bool) {
	if r.prepare() == Immediate {
		r.respond()
		return
	}
	r = f.copy(r, whole)
	f.mu.Lock()
	defer f.mu.Unlock()
	// Check under the lock that closing takes, since closing waits for the goroutine below.
	if f.c.detached && f.c.stopping.Load() {
		r.release()
		return
	}
	if f.queuedBytes+r.size > f.c.opts.MaxQueueBytes && len(f.notifications) > 0 {
		f.c.log.Warn("notification dropped: too many are queued", "method", clip.String(r.Method, 100))
		r.release()
		return
	}
	f.notifications = append(f.notifications, r)
	f.queuedBytes += r.size
	if !f.notifying {
		f.notifying = true
		f.running.Add(1)
		f.c.wg.Go(f.runNotifications)
	}
}

func (f *inFlight) runNotifications() {
	n, r := f.nextNotification()
	defer func() {
		if n != nil { // the handler ended the goroutine
			f.c.wg.Go(f.runNotifications)
		}
	}()
	for n != nil {
		n.respond()
		done := n
		n, r = f.nextNotification()
		done.release() // not earlier: cancelAll may use it until then
	}
	f.run(r)
}

// nextNotification returns the next notification. After the last, it returns a queued request
// that may run in its place.
func (f *inFlight) nextNotification() (notification, r *Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.activeNotification = nil
	if len(f.notifications) == 0 {
		f.notifying = false
		f.running.Add(-1)
		return nil, f.dequeueLocked()
	}
	f.activeNotification = f.notifications[0]
	f.notifications[0] = nil
	f.notifications = f.notifications[1:]
	f.queuedBytes -= f.activeNotification.size
	return f.activeNotification, nil
}

// handleCancel handles a cancellation, and reports whether n was one.
func (f *inFlight) handleCancel(n *jsonrpc.Message) bool {
	id, reason, ok := f.c.opts.Cancellation.Target(n)
	if !ok {
		return false
	}
	found := len(id) > 0 && f.cancel(id, &jsonrpc.CanceledError{Reason: reason})
	f.c.log.Debug("request cancelled by peer", "id", clip.String(id, 100), "reason", reason, "found", found)
	return true
}

// rejectMessage answers an invalid message, unless it looks like a response: then the call fails.
func (c *Conn) rejectMessage(m *jsonrpc.Message, err error) {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return
	}
	c.log.Warn("invalid message", "error", e, "id", clip.String(m.ID, 100))
	if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
		c.leader.wokeCaller = c.failMalformed(m.ID, e) || c.leader.wokeCaller
		return
	}
	c.respondError(m.ID, e)
}

// respondError queues an error response. The leader writes it before it waits.
func (c *Conn) respondError(id jsonrpc.ID, e *jsonrpc.Error) {
	if !c.mayRespond(id) {
		return
	}
	buf := c.errorFrame(id, e, !c.policy.Load().OmitNullID)
	if err := c.w.put(&buf); err != nil {
		c.log.Debug("response not sent", "error", err)
	}
}

// errorFrame returns a framed error response.
func (c *Conn) errorFrame(id jsonrpc.ID, e *jsonrpc.Error, nullID bool) []byte {
	buf := c.src.BeginFrame(nil)
	start := len(buf)
	buf = jsonrpc.AppendError(buf, id, e, nullID)
	c.trace(jsonrpc.Outgoing, buf[start:])
	return c.src.FinishFrame(buf, 0)
}

// rejectRequest answers a request, which may be part of a batch, with an error.
func (c *Conn) rejectRequest(r *Request, e *jsonrpc.Error) {
	if r.batch != nil {
		r.batch.add(c, jsonrpc.AppendError(nil, r.ID, e, true), true)
		return
	}
	c.respondError(r.ID, e)
}

// A requestSet holds requests by their ids. Most connections have one at a time, which needs no
// further memory.
type requestSet struct {
	// single is a request with a short id. It may be nil.
	single *Request
	// rest holds the other requests by canonical id. It is nil until the first.
	rest map[string]*Request
	// idLen is the length of the id in id.
	idLen int
	// id is the canonical id of single.
	id [24]byte
}

// get returns the request with the given id, or nil.
func (s *requestSet) get(id jsonrpc.ID) *Request {
	key := id.Canonical()
	if s.single != nil && string(s.id[:s.idLen]) == string(key) {
		return s.single
	}
	return s.rest[string(key)]
}

func (s *requestSet) add(r *Request) {
	key := r.ID.Canonical()
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

// remove removes a request, and reports whether it was in the set. Another request may have its id
// by now.
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

// all ranges over the requests, in no particular order.
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

package jsonrpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// How a connection reads and answers. One goroutine at a time is the leader: it reads, parses each frame in one pass, wakes callers, acts on
// cancellations, answers what is quick where it stands, starts goroutines for the rest, and writes all its answers at once before it waits for
// more. A wake-up of another goroutine costs several times what a quick answer does, which is why there is no goroutine between.
//
// What keeps a slow handler, or a peer that does not read, from holding everything up: the leader does those two things, running a handler
// and writing, in sections that a watchdog looks at. One that does not end within a tick or two loses the lead to a new goroutine, and ends as
// an ordinary request.
//
// Invariants:
//
//  1. turn counts sections: even while the leader reads or parses, odd within a section. The leader alone makes it odd. Whoever moves it from odd
//     to even by compare-and-swap has the lead: the leader itself at the end of the section, or the one that takes over.
//  2. Only the leader touches src's reading side, and never within a section. A new leader detaches src first: the frame under the old
//     leader's handler stays where it is.
//  3. Finished answers are in the writer, not in the leader's hands, before a section starts. So a new leader can write them.
//  4. current is the request that the section handles, nil while it writes. It is set before turn becomes odd and read after turn was taken.
//  5. A request that lost its leader is listed among the others in flight, unless it is done: then nobody needs to find it any more, but the
//     end of the connection still waits for its answer to be sent.
//  6. The leader waits for input in the way that holds on to its processor only when nothing else here wants one.
type leaderState struct {
	turn       atomic.Uint64
	current    *Request
	armed      atomic.Bool
	lastTurn   uint64 // turn at the last tick; the watchdog's
	idleTicks  int    // ticks without a turn
	timer      *time.Timer
	wokeCaller bool        // a caller was woken since the last wait; the leader's
	parked     atomic.Bool // the leader waits for input
	hasLeader  atomic.Bool // somebody has the lead
}

const (
	tick         = 5 * time.Millisecond
	maxIdleTicks = 20
	maxInline    = 512 << 10 // larger frames take long whoever handles them
	maxCopy      = 64 << 10  // of a larger frame, the memory is handed over,
	maxWaste     = 4         // unless it is more than so many times as large
	maxUnflushed = 64 << 10  // answers that the leader holds back while it has more frames
)

// lead is the life of a leader. follows tells that it took over from another.
func (c *Conn) lead(turn uint64, tookOver bool) {
	req := &Request{conn: c}
	alive := true
	defer func() {
		if alive {
			c.leaderExited(req, turn)
		}
	}()
	if tookOver {
		c.src.detach()
	}
	err, leading := c.read(req, &turn)
	alive = false
	if leading {
		c.hasLeader.Store(false)
		if err != nil {
			c.inputEnd <- err
		}
	}
}

// leaderExited is what is left to do when a handler ended the leader's goroutine: another takes the lead, and the request gets its answer.
func (c *Conn) leaderExited(req *Request, turn uint64) {
	if req.responded {
		return // it was the leader once, and ran what was queued
	}
	if !c.takeOver(turn+1) && c.turn.Load() == turn {
		c.hasLeader.Store(false) // in an Immediate handler: nothing watches over those
		c.inputEnd <- errExited
		return
	}
	c.handlerExited(req)
}

// read takes frames until the lead is lost, and held is false, or until there are no more, and err says why.
func (c *Conn) read(req *Request, turn *uint64) (err error, leading bool) {
	for {
		frame, err := c.src.next()
		switch {
		case c.stopping.Load():
			return nil, c.flush(turn)
		case err == nil:
			if !c.handleFrame(req, frame, turn) {
				return nil, false
			}
		case err == errNeedMore:
			if !c.flush(turn) {
				return nil, false
			}
			c.parked.Store(true)
			err := c.src.fill(c.isIdle())
			c.parked.Store(false)
			if err != nil {
				return err, true
			}
			continue
		case !c.handleReadError(err):
			return err, c.flush(turn)
		}
		if c.w.queued() > maxUnflushed && !c.flush(turn) {
			return nil, false
		}
	}
}

// handleReadError answers for a frame that could not be read, or makes a call fail, if the stream goes on behind it.
func (c *Conn) handleReadError(err error) bool {
	if lost, ok := errors.AsType[*CallError](err); ok {
		c.wokeCaller = c.calls.failTransport(lost) || c.wokeCaller
		return true
	}
	if err == ErrGap {
		if c.opts.OnGap != nil {
			c.opts.OnGap()
		}
		return true
	}
	bad, ok := errors.AsType[*FrameError](err)
	if !ok {
		return false
	}
	c.log.Warn("bad frame", "error", bad)
	large, ok := errors.AsType[*TooLargeError](err)
	switch {
	case !ok:
		c.respondError(nil, &Error{Code: bad.Code, Message: bad.Reason})
	case large.isAnswer(): // without an id: peers do not answer those
		c.wokeCaller = c.calls.failTooLarge(large, c.log) || c.wokeCaller
	case large.Kind != KindNotification:
		c.respondError(large.ID, &Error{Code: bad.Code, Message: bad.Reason})
	}
	return true
}

// handleFrame deals with one frame and reports whether the lead is still held.
func (c *Conn) handleFrame(req *Request, frame []byte, turn *uint64) bool {
	if c.opts.Trace != nil {
		c.opts.Trace(Incoming, frame)
	}
	if IsBatch(frame) {
		c.handleBatch(frame)
		return true
	}
	req.clear()
	if err := Parse(frame, &req.Message, c.opts.MaxDepth); err != nil {
		c.rejectMessage(&req.Message, err)
		return true
	}
	switch req.Kind {
	case KindRequest:
		return c.handleRequest(req, frame, turn)
	case KindNotification:
		if !c.handleCancel(&req.Message) {
			c.handleNotification(req, frame)
		}
	default:
		c.wokeCaller = c.calls.resolve(&req.Message, c.log) || c.wokeCaller
	}
	return true
}

func (c *Conn) handleRequest(r *Request, frame []byte, turn *uint64) bool {
	if c.dropRequest(r) {
		return true
	}
	if c.inFlight.contains(r.ID) {
		c.respondError(r.ID, errDuplicateID)
		return true
	}
	cost := r.prepare()
	switch {
	case cost == Immediate:
		r.respond()
		if err := c.w.put(&r.reply); err != nil {
			c.log.Debug("answer not sent", "error", err)
		}
		return true
	case cost != nil && !c.opts.Goroutines && len(frame) <= maxInline && cost.fast():
		return c.runInline(r, cost, len(frame), turn)
	}
	c.startRequest(r, cost, frame)
	return true
}

// dropRequest passes over a request where nothing is answered.
func (c *Conn) dropRequest(r *Request) bool {
	if !c.has(policyDropRequests) {
		return false
	}
	c.log.Warn("request dropped: the peer may not send any", "id", clip(r.ID), "method", clip(r.Method))
	return true
}

// runInline runs the handler here, in a section.
func (c *Conn) runInline(r *Request, cost *CostEstimate, size int, turn *uint64) bool {
	c.beginSection(r, *turn)
	timed := cost.sample()
	var began time.Time
	if timed {
		began = time.Now()
	}
	r.respond()
	if timed {
		cost.observe(time.Since(began), size)
	}
	if !c.endSection(turn) {
		cost.recordOverrun()
		if next := c.complete(r); next != nil {
			c.runRequests(next)
		}
		return false
	}
	if err := c.w.put(&r.reply); err != nil {
		c.log.Debug("answer not sent", "error", err)
		if r.onUnsent != nil {
			r.onUnsent()
		}
	}
	return true
}

// flush writes what is queued, in a section, and reports whether the lead is still held.
func (c *Conn) flush(turn *uint64) bool {
	if c.w.queued() == 0 {
		return true
	}
	c.beginSection(nil, *turn)
	if err := c.w.flush(); err != nil {
		c.log.Debug("flush", "error", err)
	}
	return c.endSection(turn)
}

func (c *Conn) beginSection(r *Request, turn uint64) {
	c.current = r
	if r != nil {
		r.turn = turn + 1
	}
	c.turn.Store(turn + 1)
	if !c.armed.Load() {
		c.armWatchdog()
	}
}

func (c *Conn) endSection(turn *uint64) bool {
	if !c.turn.CompareAndSwap(*turn+1, *turn+2) {
		return false
	}
	*turn += 2
	return true
}

// isIdle reports whether nothing in this process is known to want the processor while the leader waits.
func (c *Conn) isIdle() bool {
	woke := c.wokeCaller
	c.wokeCaller = false
	return !woke && c.inFlight.running.Load() == 0 && c.calls.count.Load() == 0
}

// takeOver gives the lead to a new goroutine if the section of that turn is still under way.
func (c *Conn) takeOver(turn uint64) bool {
	if turn%2 == 0 || !c.turn.CompareAndSwap(turn, turn+1) {
		return false
	}
	if r := c.current; r != nil {
		c.inFlight.track(r)
	}
	c.wg.Go(func() { c.lead(turn+1, true) })
	return true
}

// quiesce waits until the leader has done with what it read, and makes a handler that it runs just now an ordinary request. It gives up on an
// Immediate handler that does what it must not, and waits.
func (c *Conn) quiesce() {
	began := time.Now()
	for c.hasLeader.Load() && !c.parked.Load() && !c.takeOver(c.turn.Load()) && time.Since(began) < c.opts.DrainTimeout {
		time.Sleep(tick / 50) // it is parsing: no event to wait for, and soon over
	}
}

// yieldLead is called before code waits for a peer within a handler: if a leader runs it, nobody would read what it, or another, waits for. It need
// not be the leader of the connection that the call goes out on.
func yieldLead(ctx context.Context) {
	if r := RequestContext(ctx); r != nil && r.conn != nil {
		r.conn.takeOver(r.turn)
	}
}

// armWatchdog starts the watchdog, which goes on for as long as there is traffic.
func (c *Conn) armWatchdog() {
	if c.armed.Swap(true) {
		return
	}
	c.idleTicks = 0
	c.timer.Reset(tick)
}

func (c *Conn) watchdogTick() {
	turn := c.turn.Load()
	switch {
	case turn != c.lastTurn:
		c.lastTurn, c.idleTicks = turn, 0
	case turn%2 == 1 && !c.w.leaderBlocked():
		c.takeOver(turn)
	case turn%2 == 0:
		c.idleTicks++
	}
	if c.idleTicks < maxIdleTicks && !c.stopping.Load() {
		c.timer.Reset(tick)
		return
	}
	c.armed.Store(false)
	if c.turn.Load()%2 == 1 && !c.stopping.Load() {
		c.armWatchdog() // a section began between the look and the disarming
	}
}

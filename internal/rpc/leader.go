package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

// leaderState is how a connection reads and answers. One goroutine at a time is the leader: it
// reads, parses each frame in one pass, wakes callers, handles cancellations, runs quick handlers
// itself, starts goroutines for the others, and writes all its responses at once before it waits
// for more input. A wake-up of another goroutine costs several times what a quick response does.
// For that reason no other goroutine is between.
//
// A slow handler, or a peer that does not read, must not block everything. So the leader runs
// handlers and writes only in sections, which a watchdog observes. A section that does not end
// within a tick or two loses the lead to a new goroutine, and ends as an ordinary request.
//
// Invariants:
//
//  1. turn counts sections: even while the leader reads or parses, odd within a section. The leader
//     alone makes it odd. Whoever moves it from odd to even by compare-and-swap has the lead: the
//     leader itself at the end of the section, or the one that takes over.
//  2. Only the leader touches src's reading side, and never within a section. A new leader detaches
//     src first: the frame under the old leader's handler stays in place.
//  3. Finished responses are in the writer, not held by the leader, before a section starts. So a
//     new leader can write them.
//  4. current is the request that the section handles, nil while it writes. It is set before turn
//     becomes odd and read after turn was taken.
//  5. A request that lost its leader is tracked among the others in flight, unless it is done: then
//     nobody needs to find it, but the end of the connection still waits for its response to be
//     sent.
//  6. The leader waits for input in the way that keeps its processor busy only when nothing else in
//     this process needs one.
type leaderState struct {
	turn    atomic.Uint64
	current *Request
	armed   atomic.Bool
	// lastTurn is turn at the last tick. Only the watchdog uses it.
	lastTurn uint64
	// idleTicks counts ticks without a section.
	idleTicks int
	timer     *time.Timer
	// wokeCaller says that a caller was woken since the last wait. Only the leader uses it.
	wokeCaller bool
	// parked says that the leader waits for input.
	parked atomic.Bool
	// hasLeader says that a goroutine has the lead.
	hasLeader atomic.Bool
}

const (
	tick         = 5 * time.Millisecond
	maxIdleTicks = 20
	maxInline    = 512 << 10 // larger frames are slow anyway
	maxCopy      = 64 << 10  // larger frames are not copied: their buffer is handed over,
	maxWaste     = 4         // unless it is more than this many times as large
	maxUnflushed = 64 << 10  // responses that the leader holds back while it has more frames
)

// lead runs a leader. tookOver says that it took over from another.
func (c *Conn) lead(turn uint64, tookOver bool) {
	req := &Request{conn: c}
	alive := true
	defer func() {
		if alive {
			c.leaderExited(req, turn)
		}
	}()
	if tookOver {
		c.src.Detach()
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

// leaderExited runs when a handler ended the leader's goroutine. Another goroutine takes the lead,
// and the request is answered.
func (c *Conn) leaderExited(req *Request, turn uint64) {
	if req.responded {
		return // it was the leader before, and ran queued requests
	}
	if !c.takeOver(turn+1) && c.turn.Load() == turn {
		c.hasLeader.Store(false) // in an Immediate handler, which no watchdog watches
		c.inputEnd <- errExited
		return
	}
	c.handlerExited(req)
}

// read handles frames until the lead is lost, and leading is false, or until the input ends with
// err.
func (c *Conn) read(req *Request, turn *uint64) (err error, leading bool) {
	for {
		frame, err := c.src.NextFrame()
		switch {
		case c.stopping.Load():
			return nil, c.flush(turn)
		case frame != nil:
			if !c.handleFrame(req, frame, turn) {
				return nil, false
			}
		case err == nil: // no complete frame is buffered
			if !c.flush(turn) {
				return nil, false
			}
			c.parked.Store(true)
			err := c.src.Fill(c.isIdle())
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

// handleReadError answers for a frame that could not be read, or fails a call. It reports whether
// the stream goes on.
func (c *Conn) handleReadError(err error) bool {
	if lost, ok := errors.AsType[*jsonrpc.CallError](err); ok {
		c.wokeCaller = c.calls.failTransport(lost) || c.wokeCaller
		return true
	}
	if err == jsonrpc.ErrGap {
		if c.opts.OnGap != nil {
			c.opts.OnGap()
		}
		return true
	}
	bad, ok := errors.AsType[*jsonrpc.FrameError](err)
	if !ok {
		return false
	}
	c.log.Warn("invalid frame", "error", bad)
	large, ok := errors.AsType[*jsonrpc.TooLargeError](err)
	switch {
	case !ok:
		c.respondError(nil, &jsonrpc.Error{Code: bad.Code, Message: bad.Reason})
	case large.Is(jsonrpc.ErrMalformed): // no error response: peers do not answer responses
		c.wokeCaller = c.calls.failTooLarge(large, c.log) || c.wokeCaller
	case large.Kind != jsonrpc.KindNotification:
		c.respondError(large.ID, &jsonrpc.Error{Code: bad.Code, Message: bad.Reason})
	}
	return true
}

// handleFrame handles one frame and reports whether the goroutine still has the lead.
func (c *Conn) handleFrame(req *Request, frame []byte, turn *uint64) bool {
	if c.opts.Trace != nil {
		c.opts.Trace(jsonrpc.Incoming, frame)
	}
	if jsonrpc.IsBatch(frame) {
		c.handleBatch(frame)
		return true
	}
	req.clear()
	if err := jsonrpc.Parse(frame, &req.Message, c.opts.MaxDepth); err != nil {
		c.rejectMessage(&req.Message, err)
		return true
	}
	switch req.Kind {
	case jsonrpc.KindRequest:
		return c.handleRequest(req, frame, turn)
	case jsonrpc.KindNotification:
		if !c.handleCancel(&req.Message) {
			c.handleNotification(req, true)
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
			c.log.Debug("response not sent", "error", err)
		}
		return true
	case cost != nil && !c.opts.Goroutines && len(frame) <= maxInline && cost.fast():
		return c.runInline(r, cost, len(frame), turn)
	}
	c.startRequest(r, cost)
	return true
}

// dropRequest drops a request if the policy says so, and reports whether it did.
func (c *Conn) dropRequest(r *Request) bool {
	if !c.has(policyDropRequests) {
		return false
	}
	c.log.Warn("request dropped: the peer must not send requests", "id", clip.String(r.ID, 100), "method", clip.String(r.Method, 100))
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
		c.log.Debug("response not sent", "error", err)
		if r.onUnsent != nil {
			r.onUnsent()
		}
	}
	return true
}

// flush writes the queued output, in a section, and reports whether the goroutine still has the
// lead.
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

// isIdle reports whether no other work in this process is known while the leader waits.
func (c *Conn) isIdle() bool {
	woke := c.wokeCaller
	c.wokeCaller = false
	return !woke && c.inFlight.running.Load() == 0 && c.calls.count.Load() == 0
}

// takeOver gives the lead to a new goroutine if the section of the given turn is still running.
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

// quiesce waits until the leader has handled what it read, and turns a handler that it runs into an
// ordinary request. It waits at most the drain timeout for an Immediate handler that blocks.
func (c *Conn) quiesce() {
	began := time.Now()
	for c.hasLeader.Load() && !c.parked.Load() && !c.takeOver(c.turn.Load()) && time.Since(began) < c.opts.DrainTimeout {
		time.Sleep(tick / 50) // it is parsing: no event to wait for, and soon over
	}
}

// yieldLead is called in a handler before it waits for a peer. If a leader runs the handler, nobody
// else would read the input that it waits for. The call may use another connection than the
// leader's.
func yieldLead(ctx context.Context) {
	if r := RequestContext(ctx); r != nil && r.conn != nil {
		r.conn.takeOver(r.turn)
	}
}

// armWatchdog starts the watchdog, which runs for as long as there is traffic.
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
		c.armWatchdog() // a section began after the test and before the disarming
	}
}

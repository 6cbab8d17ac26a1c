package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

// A leader is how a connection reads and answers. One goroutine at a time is the leader: it
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
type leader struct {
	c       *Conn
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
	// running says that a goroutine has the lead.
	running atomic.Bool
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
func (l *leader) lead(turn uint64, tookOver bool) {
	req := &Request{conn: l.c}
	alive := true
	defer func() {
		if alive {
			l.exited(req, turn)
		}
	}()
	if tookOver {
		l.c.src.Detach()
	}
	err, leading := l.read(req, &turn)
	alive = false
	if leading {
		l.running.Store(false)
		if err != nil {
			l.c.inputEnd <- err
		}
	}
}

// exited runs when a handler ended the leader's goroutine. Another goroutine takes the lead,
// and the request is answered.
func (l *leader) exited(req *Request, turn uint64) {
	if req.responded {
		return // it was the leader before, and ran queued requests
	}
	if !l.takeOver(turn+1) && l.turn.Load() == turn {
		l.running.Store(false) // in an Immediate handler, which no watchdog watches
		l.c.inputEnd <- errExited
		return
	}
	l.c.handlerExited(req)
}

// read handles frames until the lead is lost, and leading is false, or until the input ends with
// err.
func (l *leader) read(req *Request, turn *uint64) (err error, leading bool) {
	for {
		frame, err := l.c.src.NextFrame()
		switch {
		case l.c.stopping.Load():
			return nil, l.flush(turn)
		case frame != nil:
			if !l.handleFrame(req, frame, turn) {
				return nil, false
			}
		case err == nil: // no complete frame is buffered
			if !l.flush(turn) {
				return nil, false
			}
			l.parked.Store(true)
			err := l.c.src.Fill(l.isIdle())
			l.parked.Store(false)
			if err != nil {
				return err, true
			}
			continue
		case !l.handleReadError(err):
			return err, l.flush(turn)
		}
		if l.c.w.queued() > maxUnflushed && !l.flush(turn) {
			return nil, false
		}
	}
}

// handleReadError answers for a frame that could not be read, or fails a call. It reports whether
// the stream goes on.
func (l *leader) handleReadError(err error) bool {
	if lost, ok := errors.AsType[*jsonrpc.CallError](err); ok {
		l.wokeCaller = l.c.calls.fail(lost.ID, lost) || l.wokeCaller
		return true
	}
	if err == jsonrpc.ErrGap {
		if l.c.opts.OnGap != nil {
			l.c.opts.OnGap()
		}
		return true
	}
	bad, ok := errors.AsType[*jsonrpc.FrameError](err)
	if !ok {
		return false
	}
	l.c.log.Warn("invalid frame", "error", bad)
	large, ok := errors.AsType[*jsonrpc.TooLargeError](err)
	switch {
	case !ok:
		l.c.respondError(nil, &jsonrpc.Error{Code: bad.Code, Message: bad.Reason})
	case large.Is(jsonrpc.ErrMalformed): // no error response: peers do not answer responses
		l.wokeCaller = l.c.calls.failTooLarge(large, l.c.log) || l.wokeCaller
	case large.Kind != jsonrpc.KindNotification:
		l.c.respondError(large.ID, &jsonrpc.Error{Code: bad.Code, Message: bad.Reason})
	}
	return true
}

// handleFrame handles one frame and reports whether the goroutine still has the lead.
func (l *leader) handleFrame(req *Request, frame []byte, turn *uint64) bool {
	l.c.trace(jsonrpc.Incoming, frame)
	if rpcbatch.Is(frame) {
		l.c.handleBatch(frame)
		return true
	}
	req.clear()
	if err := jsonrpc.Parse(frame, &req.Message, l.c.opts.MaxDepth); err != nil {
		if id, ok := BrokenResponse(frame); req.Kind == jsonrpc.KindInvalid && len(req.ID) == 0 && ok {
			req.ID, req.Kind = id, jsonrpc.KindResponse
		}
		l.c.rejectMessage(&req.Message, err)
		return true
	}
	switch req.Kind {
	case jsonrpc.KindRequest:
		return l.handleRequest(req, frame, turn)
	case jsonrpc.KindNotification:
		if !l.c.inFlight.handleCancel(&req.Message) {
			l.c.inFlight.handleNotification(req, true)
		}
	default:
		l.wokeCaller = l.c.resolve(&req.Message) || l.wokeCaller
	}
	return true
}

func (l *leader) handleRequest(r *Request, frame []byte, turn *uint64) bool {
	if l.dropRequest(r) {
		return true
	}
	if l.c.inFlight.contains(r.ID) {
		l.c.respondError(r.ID, errDuplicateID)
		return true
	}
	cost := r.prepare()
	switch {
	case cost == Immediate:
		r.respond()
		if err := l.c.w.put(&r.reply); err != nil {
			l.c.log.Debug("response not sent", "error", err)
		}
		return true
	case cost != nil && !l.c.opts.Goroutines && len(frame) <= maxInline && cost.fast():
		return l.runInline(r, cost, len(frame), turn)
	}
	r.cost = cost
	l.c.inFlight.enqueue(l.c.inFlight.copy(r, true))
	return true
}

// dropRequest drops a request if the policy says so, and reports whether it did.
func (l *leader) dropRequest(r *Request) bool {
	if !l.c.policy.Load().DropRequests {
		return false
	}
	l.c.log.Warn("request dropped: the peer must not send requests", "id", clip.String(r.ID, 100), "method", clip.String(r.Method, 100))
	return true
}

// runInline runs the handler here, in a section.
func (l *leader) runInline(r *Request, cost *CostEstimate, size int, turn *uint64) bool {
	l.beginSection(r, *turn)
	timed := cost.sample()
	var began time.Time
	if timed {
		began = time.Now()
	}
	r.respond()
	if timed {
		cost.observe(time.Since(began), size)
	}
	if !l.endSection(turn) {
		cost.recordOverrun()
		if next := l.c.inFlight.complete(r); next != nil {
			l.c.inFlight.run(next)
		}
		return false
	}
	if err := l.c.w.put(&r.reply); err != nil {
		l.c.log.Debug("response not sent", "error", err)
		if r.onUnsent != nil {
			r.onUnsent()
		}
	}
	return true
}

// flush writes the queued output, in a section, and reports whether the goroutine still has the
// lead.
func (l *leader) flush(turn *uint64) bool {
	if l.c.w.queued() == 0 {
		return true
	}
	l.beginSection(nil, *turn)
	if err := l.c.w.flush(); err != nil {
		l.c.log.Debug("flush", "error", err)
	}
	return l.endSection(turn)
}

func (l *leader) beginSection(r *Request, turn uint64) {
	l.current = r
	if r != nil {
		r.turn = turn + 1
	}
	l.turn.Store(turn + 1)
	if !l.armed.Load() {
		l.armWatchdog()
	}
}

func (l *leader) endSection(turn *uint64) bool {
	if !l.turn.CompareAndSwap(*turn+1, *turn+2) {
		return false
	}
	*turn += 2
	return true
}

// isIdle reports whether no other work in this process is known while the leader waits.
func (l *leader) isIdle() bool {
	woke := l.wokeCaller
	l.wokeCaller = false
	return !woke && l.c.inFlight.running.Load() == 0 && l.c.calls.count.Load() == 0
}

// takeOver gives the lead to a new goroutine if the section of the given turn is still running.
func (l *leader) takeOver(turn uint64) bool {
	if turn%2 == 0 || !l.turn.CompareAndSwap(turn, turn+1) {
		return false
	}
	if r := l.current; r != nil {
		l.c.inFlight.track(r)
	}
	l.c.wg.Go(func() { l.lead(turn+1, true) })
	return true
}

// quiesce waits until the leader has handled what it read, and turns a handler that it runs into an
// ordinary request. It waits at most the drain timeout for an Immediate handler that blocks.
func (l *leader) quiesce() {
	began := time.Now()
	for l.running.Load() && !l.parked.Load() && !l.takeOver(l.turn.Load()) && time.Since(began) < l.c.opts.DrainTimeout {
		time.Sleep(tick / 50) // it is parsing: no event to wait for, and soon over
	}
}

// yieldLead is called in a handler before it waits for a peer. If a leader runs the handler, nobody
// else would read the input that it waits for. The call may use another connection than the
// leader's.
func yieldLead(ctx context.Context) {
	if r := RequestContext(ctx); r != nil && r.conn != nil {
		r.conn.leader.takeOver(r.turn)
	}
}

// armWatchdog starts the watchdog, which runs for as long as there is traffic.
func (l *leader) armWatchdog() {
	if l.armed.Swap(true) {
		return
	}
	l.idleTicks = 0
	l.timer.Reset(tick)
}

func (l *leader) watchdogTick() {
	turn := l.turn.Load()
	switch {
	case turn != l.lastTurn:
		l.lastTurn, l.idleTicks = turn, 0
	case turn%2 == 1 && !l.c.w.leaderBlocked():
		l.takeOver(turn)
	case turn%2 == 0:
		l.idleTicks++
	}
	if l.idleTicks < maxIdleTicks && !l.c.stopping.Load() {
		l.timer.Reset(tick)
		return
	}
	l.armed.Store(false)
	if l.turn.Load()%2 == 1 && !l.c.stopping.Load() {
		l.armWatchdog() // a section began after the test and before the disarming
	}
}

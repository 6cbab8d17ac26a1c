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
	turn    atomic.Uint64
	current *Request
	armed   atomic.Bool
	seen    uint64 // turn at the last tick; the watchdog's
	quiet   int    // ticks without a turn
	timer   *time.Timer
	woke    bool        // a caller was woken since the last wait; the leader's
	parked  atomic.Bool // the leader waits for input
	led     atomic.Bool // somebody has the lead
}

const (
	tick       = 5 * time.Millisecond
	quietTicks = 20
	maxInline  = 512 << 10 // larger frames take long whoever handles them
	maxCopied  = 64 << 10  // of a larger frame, the memory is handed over,
	maxWaste   = 4         // unless it is more than so many times as large
	maxHeld    = 64 << 10  // answers that the leader holds back while it has more frames
)

// lead is the life of a leader. follows tells that it took over from another.
func (c *Conn) lead(turn uint64, follows bool) {
	own := &Request{conn: c}
	alive := true
	defer func() {
		if alive {
			c.leaderExited(own, turn)
		}
	}()
	if follows {
		c.src.detach()
	}
	err, held := c.read(own, &turn)
	alive = false
	if held {
		c.led.Store(false)
		if err != nil {
			c.inputEnd <- err
		}
	}
}

// leaderExited is what is left to do when a handler ended the leader's goroutine: another takes the lead, and the request gets its answer.
func (c *Conn) leaderExited(own *Request, turn uint64) {
	if own.gone {
		return // it was the leader once, and ran what was queued
	}
	if !c.takeOver(turn+1) && c.turn.Load() == turn {
		c.led.Store(false) // in an Immediate handler: nothing watches over those
		c.inputEnd <- errExited
		return
	}
	c.exited(own)
}

// read takes frames until the lead is lost, and held is false, or until there are no more, and err says why.
func (c *Conn) read(own *Request, turn *uint64) (err error, held bool) {
	for {
		frame, err := c.src.next()
		switch {
		case c.stopping.Load():
			return nil, c.flush(turn)
		case err == nil:
			if !c.take(own, frame, turn) {
				return nil, false
			}
		case err == errNeedMore:
			if !c.flush(turn) {
				return nil, false
			}
			c.parked.Store(true)
			err := c.src.fill(c.alone())
			c.parked.Store(false)
			if err != nil {
				return err, true
			}
			continue
		case !c.passOver(err):
			return err, c.flush(turn)
		}
		if c.w.queued() > maxHeld && !c.flush(turn) {
			return nil, false
		}
	}
}

// passOver answers for a frame that could not be read, or makes a call fail, if the stream goes on behind it.
func (c *Conn) passOver(err error) bool {
	if lost, ok := errors.AsType[*CallError](err); ok {
		c.woke = c.calls.miscarry(lost) || c.woke
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
		c.refuse(nil, &Error{Code: bad.Code, Message: bad.Reason})
	case large.isAnswer(): // without an id: peers do not answer those
		c.woke = c.calls.miscarryOnly(large, c.log) || c.woke
	case large.Kind != KindNotification:
		c.refuse(large.ID, &Error{Code: bad.Code, Message: bad.Reason})
	}
	return true
}

// take deals with one frame and reports whether the lead is still held.
func (c *Conn) take(own *Request, frame []byte, turn *uint64) bool {
	if c.opts.Trace != nil {
		c.opts.Trace(Incoming, frame)
	}
	if IsBatch(frame) {
		c.takeBatch(frame)
		return true
	}
	own.clear()
	if err := Parse(frame, &own.Message, c.opts.MaxDepth); err != nil {
		c.reject(&own.Message, err)
		return true
	}
	switch own.Kind {
	case KindRequest:
		return c.takeRequest(own, frame, turn)
	case KindNotification:
		if !c.takeCancel(&own.Message) {
			c.takeNotification(own, frame)
		}
	default:
		c.woke = c.calls.deliver(&own.Message, c.log) || c.woke
	}
	return true
}

func (c *Conn) takeRequest(r *Request, frame []byte, turn *uint64) bool {
	if c.drop(r) {
		return true
	}
	if c.table.has(r.ID) {
		c.refuse(r.ID, errDuplicateID)
		return true
	}
	pace := r.prepare()
	switch {
	case pace == Immediate:
		r.respond()
		if err := c.w.put(&r.reply); err != nil {
			c.log.Debug("answer not sent", "error", err)
		}
		return true
	case pace != nil && !c.opts.Goroutines && len(frame) <= maxInline && pace.fast():
		return c.inline(r, pace, len(frame), turn)
	}
	c.start(r, pace, frame)
	return true
}

// drop passes over a request where nothing is answered.
func (c *Conn) drop(r *Request) bool {
	if !c.has(policyNoAnswers) {
		return false
	}
	c.log.Warn("request dropped: the peer may not send any", "id", clip(r.ID), "method", clip(r.Method))
	return true
}

// inline runs the handler here, in a section.
func (c *Conn) inline(r *Request, pace *Pace, size int, turn *uint64) bool {
	c.enter(r, *turn)
	timed := pace.sample()
	var began time.Time
	if timed {
		began = time.Now()
	}
	r.respond()
	if timed {
		pace.observe(time.Since(began), size)
	}
	if !c.leave(turn) {
		pace.overran()
		if next := c.complete(r); next != nil {
			c.work(next)
		}
		return false
	}
	if err := c.w.put(&r.reply); err != nil {
		c.log.Debug("answer not sent", "error", err)
		if r.unsent != nil {
			r.unsent()
		}
	}
	return true
}

// flush writes what is queued, in a section, and reports whether the lead is still held.
func (c *Conn) flush(turn *uint64) bool {
	if c.w.queued() == 0 {
		return true
	}
	c.enter(nil, *turn)
	if err := c.w.flush(); err != nil {
		c.log.Debug("flush", "error", err)
	}
	return c.leave(turn)
}

func (c *Conn) enter(r *Request, turn uint64) {
	c.current = r
	if r != nil {
		r.turn = turn + 1
	}
	c.turn.Store(turn + 1)
	if !c.armed.Load() {
		c.arm()
	}
}

func (c *Conn) leave(turn *uint64) bool {
	if !c.turn.CompareAndSwap(*turn+1, *turn+2) {
		return false
	}
	*turn += 2
	return true
}

// alone reports whether nothing in this process is known to want the processor while the leader waits.
func (c *Conn) alone() bool {
	woke := c.woke
	c.woke = false
	return !woke && c.table.running.Load() == 0 && c.calls.count.Load() == 0
}

// takeOver gives the lead to a new goroutine if the section of that turn is still under way.
func (c *Conn) takeOver(turn uint64) bool {
	if turn%2 == 0 || !c.turn.CompareAndSwap(turn, turn+1) {
		return false
	}
	if r := c.current; r != nil {
		c.table.list(r)
	}
	c.wg.Go(func() { c.lead(turn+1, true) })
	return true
}

// settle waits until the leader has done with what it read, and makes a handler that it runs just now an ordinary request. It gives up on an
// Immediate handler that does what it must not, and waits.
func (c *Conn) settle() {
	began := time.Now()
	for c.led.Load() && !c.parked.Load() && !c.takeOver(c.turn.Load()) && time.Since(began) < c.opts.DrainTimeout {
		time.Sleep(tick / 50) // it is parsing: no event to wait for, and soon over
	}
}

// yield is called before code waits for a peer within a handler: if a leader runs it, nobody would read what it, or another, waits for. It need
// not be the leader of the connection that the call goes out on.
func yield(ctx context.Context) {
	if r := RequestContext(ctx); r != nil && r.conn != nil {
		r.conn.takeOver(r.turn)
	}
}

// arm starts the watchdog, which goes on for as long as there is traffic.
func (c *Conn) arm() {
	if c.armed.Swap(true) {
		return
	}
	c.quiet = 0
	c.timer.Reset(tick)
}

func (c *Conn) watch() {
	turn := c.turn.Load()
	switch {
	case turn != c.seen:
		c.seen, c.quiet = turn, 0
	case turn%2 == 1 && !c.w.stuck():
		c.takeOver(turn)
	case turn%2 == 0:
		c.quiet++
	}
	if c.quiet < quietTicks && !c.stopping.Load() {
		c.timer.Reset(tick)
		return
	}
	c.armed.Store(false)
	if c.turn.Load()%2 == 1 && !c.stopping.Load() {
		c.arm() // a section began between the look and the disarming
	}
}

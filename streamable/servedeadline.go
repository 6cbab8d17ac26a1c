package streamable

import (
	"errors"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A deadline is that of one direction of a connection. While nobody waits, the connection beneath may have any; while somebody does, it has one that is not later
// than the one that is wanted. Times are counted from bounds.base.
type deadline struct {
	wanted   atomic.Int64 // by the caller
	armed    atomic.Int64 // what the connection beneath has, or spent; it is changed with mu held
	waiters  atomic.Int32 // calls under way
	explicit atomic.Bool  // armed is not implied, but was wanted; changed with armed
	implied  atomic.Bool  // a wait ends by itself if no deadline is wanted: see patience
	mu       sync.Mutex
}

const (
	never = math.MaxInt64 // no deadline is wanted
	fired = math.MinInt64 // the one that the connection beneath has has come
)

// now returns the time as deadlines are counted.
func (c *boundedConn) now() int64 { return int64(time.Since(c.limits.epoch)) }

// setWanted is what callers set a deadline by. That it stores first and looks for waits then, and begin counts first and looks for what is wanted then, makes
// one of them see the other.
func (c *boundedConn) setWanted(d *deadline, t time.Time) error {
	at := int64(never)
	if !t.IsZero() {
		at = int64(t.Sub(c.limits.epoch))
	}
	if d.wanted.Load() == at {
		return nil
	}
	d.wanted.Store(at)
	if d.waiters.Load() == 0 {
		return nil
	}
	if armed := d.armed.Load(); at < armed || at == never && d.implied.Load() && d.explicit.Load() || at != armed && c.isExact(d) {
		_, err := c.arm(d)
		return err
	}
	return nil
}

// isExact reports whether a deadline of the connection beneath must be the one that is wanted while somebody waits, and not only no later.
func (c *boundedConn) isExact(d *deadline) bool { return c.exactWrites && d == &c.writes }

// impliedTimeout is how long a wait goes on where no deadline is wanted and one is implied.
func (c *boundedConn) impliedTimeout(d *deadline) time.Duration {
	if d == &c.writes {
		return c.limits.writeTimeout
	}
	return c.limits.idleTimeout
}

// setBeneath gives the connection beneath a deadline.
func (c *boundedConn) setBeneath(d *deadline, t time.Time) error {
	if d == &c.writes {
		return c.Conn.SetWriteDeadline(t)
	}
	return c.Conn.SetReadDeadline(t)
}

// arm gives the connection beneath the deadline that is wanted, or implied, and reports whether it was the latter.
func (c *boundedConn) arm(d *deadline) (implied bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		at := d.wanted.Load()
		implied = at == never && d.implied.Load()
		if implied {
			at = c.now() + int64(c.impliedTimeout(d))
		}
		d.explicit.Store(!implied)
		d.armed.Store(at)
		var t time.Time
		if at != never {
			t = c.limits.epoch.Add(time.Duration(at))
		}
		if err := c.setBeneath(d, t); err != nil {
			return implied, err
		}
		if d.wanted.Load() >= at {
			return implied, nil
		} // else somebody has wanted an earlier one meanwhile, and may have compared it with the one before
	}
}

// A wait is what a call that may wait has to know of its deadline.
type wait struct {
	implied bool // the deadline beneath is an implied one that was set for it
	rearmed bool // it has come too early once, and was set anew
}

// beginWait is called before a wait, which the caller ends, unless there is an error.
func (c *boundedConn) beginWait(d *deadline) (w wait, err error) {
	d.waiters.Add(1)
	if c.isArmedFor(d, d.wanted.Load(), d.armed.Load()) {
		return w, nil
	}
	if passed, _ := c.hasPassed(d); passed {
		d.waiters.Add(-1)
		return w, os.ErrDeadlineExceeded
	}
	if w.implied, err = c.arm(d); err != nil {
		d.waiters.Add(-1)
	}
	return w, err
}

// isArmedFor reports whether the connection beneath may be waited for with the deadline that it has.
func (c *boundedConn) isArmedFor(d *deadline, at, armed int64) bool {
	implied := at == never && d.implied.Load()
	if c.isExact(d) {
		return at == armed && !implied
	}
	return at >= armed && armed != fired && (!implied || armed != never && !d.explicit.Load())
}

// hasPassed reports whether the deadline that is wanted has come.
func (c *boundedConn) hasPassed(d *deadline) (passed bool, now int64) {
	switch at := d.wanted.Load(); {
	case at == never:
	case at <= 0: // as net/http sets it to end a wait at once
		return true, 0
	default:
		now = c.now()
		passed = now >= at
	}
	return passed, now
}

// rearm reports whether err is of a deadline that was too early, and sets the right one then. It does so again only when that has come too: there are connections
// that go on to fail by a deadline that they do not have any more.
func (c *boundedConn) rearm(d *deadline, err error, w *wait) bool {
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || c.isExact(d) {
		return false
	}
	implied := d.implied.Load() && d.wanted.Load() == never
	passed, now := c.hasPassed(d)
	if implied && w.implied {
		passed, now = true, c.now()
	}
	if passed {
		d.mu.Lock()
		if d.armed.Load() <= now { // or somebody else has set another meanwhile
			d.armed.Store(fired)
		}
		d.mu.Unlock()
		return false
	}
	if w.rearmed && c.now() < d.armed.Load() {
		return false
	}
	w.rearmed = true
	w.implied, err = c.arm(d)
	return err == nil
}

func (d *deadline) endWait() { d.waiters.Add(-1) }

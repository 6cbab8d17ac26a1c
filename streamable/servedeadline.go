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
	wanted  atomic.Int64 // by the caller
	armed   atomic.Int64 // what the connection beneath has, or spent; it is changed with mu held
	waits   atomic.Int32 // calls under way
	lax     atomic.Bool  // armed is not implied, but was wanted; changed with armed
	implied atomic.Bool  // a wait ends by itself if no deadline is wanted: see patience
	mu      sync.Mutex
}

const (
	never = math.MaxInt64 // no deadline is wanted
	spent = math.MinInt64 // the one that the connection beneath has has come
)

// now returns the time as deadlines are counted.
func (c *boundedConn) now() int64 { return int64(time.Since(c.of.base)) }

// want is what callers set a deadline by. That it stores first and looks for waits then, and begin counts first and looks for what is wanted then, makes
// one of them see the other.
func (c *boundedConn) want(d *deadline, t time.Time) error {
	at := int64(never)
	if !t.IsZero() {
		at = int64(t.Sub(c.of.base))
	}
	if d.wanted.Load() == at {
		return nil
	}
	d.wanted.Store(at)
	if d.waits.Load() == 0 {
		return nil
	}
	if armed := d.armed.Load(); at < armed || at == never && d.implied.Load() && d.lax.Load() || at != armed && c.strict(d) {
		_, err := c.arm(d)
		return err
	}
	return nil
}

// strict reports whether a deadline of the connection beneath must be the one that is wanted while somebody waits, and not only no later.
func (c *boundedConn) strict(d *deadline) bool { return c.exact && d == &c.writes }

// patience is how long a wait goes on where no deadline is wanted and one is implied.
func (c *boundedConn) patience(d *deadline) time.Duration {
	if d == &c.writes {
		return c.of.write
	}
	return c.of.idle
}

// set gives the connection beneath a deadline.
func (c *boundedConn) set(d *deadline, t time.Time) error {
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
			at = c.now() + int64(c.patience(d))
		}
		d.lax.Store(!implied)
		d.armed.Store(at)
		var t time.Time
		if at != never {
			t = c.of.base.Add(time.Duration(at))
		}
		if err := c.set(d, t); err != nil {
			return implied, err
		}
		if d.wanted.Load() >= at {
			return implied, nil
		} // else somebody has wanted an earlier one meanwhile, and may have compared it with the one before
	}
}

// A wait is what a call that may wait has to know of its deadline.
type wait struct {
	own   bool // the deadline beneath is an implied one that was set for it
	again bool // it has come too early once, and was set anew
}

// begin is called before a wait, which the caller ends, unless there is an error.
func (c *boundedConn) begin(d *deadline) (w wait, err error) {
	d.waits.Add(1)
	if c.fits(d, d.wanted.Load(), d.armed.Load()) {
		return w, nil
	}
	if passed, _ := c.passed(d); passed {
		d.waits.Add(-1)
		return w, os.ErrDeadlineExceeded
	}
	if w.own, err = c.arm(d); err != nil {
		d.waits.Add(-1)
	}
	return w, err
}

// fits reports whether the connection beneath may be waited for with the deadline that it has.
func (c *boundedConn) fits(d *deadline, at, armed int64) bool {
	implied := at == never && d.implied.Load()
	if c.strict(d) {
		return at == armed && !implied
	}
	return at >= armed && armed != spent && (!implied || armed != never && !d.lax.Load())
}

// passed reports whether the deadline that is wanted has come.
func (c *boundedConn) passed(d *deadline) (passed bool, now int64) {
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

// goesOn reports whether err is of a deadline that was too early, and sets the right one then. It does so again only when that has come too: there are connections
// that go on to fail by a deadline that they do not have any more.
func (c *boundedConn) goesOn(d *deadline, err error, w *wait) bool {
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || c.strict(d) {
		return false
	}
	implied := d.implied.Load() && d.wanted.Load() == never
	passed, now := c.passed(d)
	if implied && w.own {
		passed, now = true, c.now()
	}
	if passed {
		d.mu.Lock()
		if d.armed.Load() <= now { // or somebody else has set another meanwhile
			d.armed.Store(spent)
		}
		d.mu.Unlock()
		return false
	}
	if w.again && c.now() < d.armed.Load() {
		return false
	}
	w.again = true
	w.own, err = c.arm(d)
	return err == nil
}

func (d *deadline) end() { d.waits.Add(-1) }

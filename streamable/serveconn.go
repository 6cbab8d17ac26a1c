package streamable

import (
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A boundedListener accepts no more connections while as many as may be are open. The others wait in the queue of the operating system, which is bounded too.
type boundedListener struct {
	net.Listener
	connLimits
	log  *slog.Logger
	done chan struct{} // closed by Close
	once sync.Once
	err  error // of Close

	lastWarning time.Time // of Accept, which one goroutine calls
}

func newBoundedListener(l net.Listener, b connLimits, log *slog.Logger) *boundedListener {
	return &boundedListener{Listener: l, connLimits: b, log: log, done: make(chan struct{})}
}

// warnInterval is how often it is logged at most that there are too many connections.
const warnInterval = time.Minute

// Accept implements [net.Listener].
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	default:
		if now := time.Now(); l.lastWarning.IsZero() || now.Sub(l.lastWarning) >= warnInterval {
			l.lastWarning = now
			l.log.Warn("no more connections are accepted until one ends", "limit", cap(l.slots))
		}
		select {
		case l.slots <- struct{}{}:
		case <-l.done:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return newBoundedConn(c, &l.connLimits), nil
}

// Close implements [net.Listener].
func (l *boundedListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.err = l.Listener.Close()
	})
	return l.err
}

// A boundedConn is a connection that gives its place back when it is closed, and whose deadlines cost little.
//
// For each request of HTTP/1 a server sets about ten deadlines, nearly all of which are replaced before anything could have waited for them, and each moves a
// timer. Here a deadline is only noted. The connection beneath gets one when something is about to wait, and keeps it as long as it is not too late: if
// it then turns out to be too early, the wait goes on with the right one. What a caller sees of the deadlines that it sets is the same.
//
// The peer must take what is written in good time also where no deadline was set, and must send a request's header in good time once it has begun. When each
// write, or wait for a request, began is not noted for that: a deadline that was set for one before counts as well, but not alone, so that it may take twice as long.
//
// It is small, since a server has many, and each request finds its own gone from the processor's memory.
type boundedConn struct {
	net.Conn
	limits        *connLimits
	reads, writes deadline
	once          sync.Once
	exactWrites   bool // a deadline that has come spoils the connection beneath: it must not have one that is too early

	// What net/http waits for. Its goroutine has these, or the one that it has read on its behalf.
	waitingForRequest bool  // it has begun to wait for a request since it was idle
	readingHeader     bool  // what is read next is a request's header, or the rest of it
	headerDeadline    int64 // when that must have come; 0 if nobody waits for it yet
}

// connLimits are what connections have in common. They do not change.
type connLimits struct {
	slots chan struct{} // has an element for each connection
	epoch time.Time     // what deadlines are counted from

	writeTimeout  time.Duration // for a peer to take maxWrite bytes, up to twice that, unless a deadline is set; 0 is no bound
	idleTimeout   time.Duration // between requests, up to twice that; 0 leaves both this and the header to net/http
	headerTimeout time.Duration // of a request, from its first bytes; of the first one, from when it is waited for
}

func newBoundedConn(c net.Conn, limits *connLimits) *boundedConn {
	_, isWrapper := c.(interface{ NetConn() net.Conn }) // as crypto/tls has it
	b := &boundedConn{Conn: c, limits: limits, exactWrites: isWrapper, readingHeader: limits.idleTimeout > 0}
	for _, d := range [...]*deadline{&b.reads, &b.writes} {
		d.wanted.Store(never)
		d.armed.Store(never)
	}
	b.writes.implied.Store(limits.writeTimeout > 0)
	return b
}

// onConnState is told by a server of HTTP/1 what the connection is about. Between requests, it then sets the deadline twice, to none: before it waits, and when it has seen
// the beginning of a request, which may be in what it had read before.
func onConnState(c net.Conn, state http.ConnState) {
	b, ok := c.(*boundedConn)
	if !ok {
		return
	}
	switch state {
	case http.StateIdle:
		b.waitingForRequest = false
		b.reads.implied.Store(true)
	case http.StateActive: // the header is there, and net/http has taken its deadline away
		b.readingHeader, b.headerDeadline = false, 0
	}
}

// clearImplied is for who takes a connection over: there are no deadlines but those that are set from now on. Nothing is being written.
func clearImplied(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	if b, ok := c.(*boundedConn); ok {
		b.writes.implied.Store(false)
	}
}

// Close implements [net.Conn].
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.limits.slots })
	return err
}

// CloseWrite lets net/http send the end of a last answer before the connection is reset.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Read implements [net.Conn].
func (c *boundedConn) Read(b []byte) (int, error) {
	d := &c.reads
	if c.readingHeader {
		c.setHeaderDeadline()
	}
	w, err := c.beginWait(d)
	if err != nil {
		return 0, err
	}
	for {
		n, err := c.Conn.Read(b)
		if !c.rearm(d, err, &w) || n > 0 {
			d.endWait()
			if n > 0 && d.implied.Load() {
				c.requestBegun()
			}
			return n, err
		}
	}
}

// requestBegun notes that a request has begun, which is no wait between requests any more.
func (c *boundedConn) requestBegun() {
	c.reads.implied.Store(false)
	c.readingHeader = true
}

// setHeaderDeadline sets the deadline for the rest of a header.
func (c *boundedConn) setHeaderDeadline() {
	if c.headerDeadline == 0 {
		c.headerDeadline = c.now() + int64(c.limits.headerTimeout)
	}
	c.setWanted(&c.reads, c.limits.epoch.Add(time.Duration(c.headerDeadline)))
}

// Write implements [net.Conn].
func (c *boundedConn) Write(b []byte) (written int, err error) {
	for {
		part := b[written:min(len(b), written+maxWrite)]
		n, err := c.write(part)
		if written += n; err != nil || written == len(b) {
			return written, err
		}
	}
}

func (c *boundedConn) write(part []byte) (written int, err error) {
	d := &c.writes
	w, err := c.beginWait(d)
	if err != nil {
		return 0, err
	}
	defer d.endWait()
	for {
		n, err := c.Conn.Write(part[written:])
		written += n
		if !c.rearm(d, err, &w) {
			return written, err
		}
	}
}

// SetDeadline implements [net.Conn].
func (c *boundedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn].
func (c *boundedConn) SetReadDeadline(t time.Time) error {
	if c.reads.implied.Load() { // see follow
		if c.waitingForRequest {
			c.requestBegun()
		}
		c.waitingForRequest = true
	}
	return c.setWanted(&c.reads, t)
}

// SetWriteDeadline implements [net.Conn].
func (c *boundedConn) SetWriteDeadline(t time.Time) error { return c.setWanted(&c.writes, t) }

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

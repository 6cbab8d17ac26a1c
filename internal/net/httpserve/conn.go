package httpserve

import (
	"context"
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

// A boundedListener is a net.Listener that accepts no connections beyond a limit. Further ones wait
// in the bounded queue of the operating system.
type boundedListener struct {
	net.Listener
	connLimits
	log *slog.Logger
	// done is closed by Close.
	done chan struct{}
	once sync.Once
	// err is the error of Close.
	err error

	// lastWarning is used by Accept, which one goroutine calls.
	lastWarning time.Time

	// draining is set when drain is called. drained is closed when no connection waits.
	draining atomic.Bool
	drained  chan struct{}
}

func newBoundedListener(l net.Listener, b connLimits, log *slog.Logger) *boundedListener {
	return &boundedListener{Listener: l, connLimits: b, log: log, done: make(chan struct{}), drained: make(chan struct{})}
}

// warnInterval is the shortest interval between warnings of too many connections.
const warnInterval = time.Minute

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
	c, err := l.accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return newBoundedConn(c, &l.connLimits), nil
}

// A deadlineListener is a listener of the operating system's sockets.
type deadlineListener interface{ SetDeadline(time.Time) error }

const (
	// drainWait is the time without a new connection after which the queue counts as empty.
	drainWait = 10 * time.Millisecond
	// drainLimit limits drain.
	drainLimit = time.Second
)

// accept accepts a connection. Once the listener is draining, it accepts those that wait, and then
// waits for Close.
func (l *boundedListener) accept() (net.Conn, error) {
	for empty := 0; ; {
		if l.draining.Load() {
			if err := l.Listener.(deadlineListener).SetDeadline(time.Now().Add(drainWait)); err != nil {
				return nil, err
			}
			empty++
		}
		c, err := l.Listener.Accept()
		if err == nil || !l.draining.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
		// The first deadline may be the one that drain sets.
		if empty == 2 {
			close(l.drained) // once: after done, SetDeadline fails
			<-l.done
			return nil, net.ErrClosed
		}
	}
}

// drain waits until the connections that wait in the queue of the operating system are accepted:
// Close resets them, although their clients may have sent a request. It returns when ctx ends, or
// after drainLimit. Accept must be running.
func (l *boundedListener) drain(ctx context.Context) {
	d, ok := l.Listener.(deadlineListener)
	if !ok {
		return
	}
	l.draining.Store(true)
	if d.SetDeadline(time.Now()) != nil { // which wakes Accept up
		return
	}
	select {
	case <-l.drained:
	case <-time.After(drainLimit):
	case <-ctx.Done():
	}
}

func (l *boundedListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.err = l.Listener.Close()
	})
	return l.err
}

// A boundedConn is a connection that frees its slot when it is closed, and makes deadlines cheap.
//
// For each HTTP/1 request a server sets about ten deadlines. It replaces most of them before
// anything waits, and each moves a timer. A boundedConn only records a deadline. It sets one on the
// underlying connection when a call is about to wait, and keeps it unless it is too late. If it
// turns out too early, the wait continues with the right one. Callers see no difference.
//
// A boundedConn is a net.Conn that also limits writes without a deadline, and the time for a
// request's header once the header has begun. It does not record when each write, or each wait for
// a request, began: an underlying deadline of an earlier one may serve, but only once, so that a
// limit may last twice as long.
//
// It is small: a server has many, and each request finds its own out of the processor's cache.
type boundedConn struct {
	net.Conn
	limits        *connLimits
	reads, writes deadline
	once          sync.Once
	// exactWrites means that an expired deadline makes the underlying connection unusable. It must
	// not get one that is too early.
	exactWrites bool

	// The following fields track the wait for a request. They belong to net/http's goroutine, or to
	// the one that reads on its behalf.
	// waitingForRequest means that the wait for a request has begun since the connection was idle.
	waitingForRequest bool
	// readingHeader means that the next read returns a request's header, or more of it.
	readingHeader bool
	// headerDeadline is the header's deadline. It is 0 if no read waits for the header yet.
	headerDeadline int64
	// joined collects writes, see join. It is nil outside a join, and belongs to the goroutine that
	// writes.
	joined *[]byte
}

// connLimits has the limits that connections share. It is immutable.
type connLimits struct {
	// slots has an element for each connection.
	slots chan struct{}
	// epoch is the time that deadlines count from.
	epoch time.Time

	// writeTimeout limits the time for a peer to read maxWrite bytes, up to twice that, unless a
	// deadline is set. Zero means no limit.
	writeTimeout time.Duration
	// idleTimeout limits the time between requests, up to twice that. Zero leaves it and the header
	// to net/http.
	idleTimeout time.Duration
	// headerTimeout limits the time for a request's header, from its first bytes. For the first
	// request it counts from the first read.
	headerTimeout time.Duration
}

func newBoundedConn(c net.Conn, limits *connLimits) *boundedConn {
	_, isWrapper := c.(interface{ NetConn() net.Conn }) // like crypto/tls.Conn
	b := &boundedConn{Conn: c, limits: limits, exactWrites: isWrapper, readingHeader: limits.idleTimeout > 0}
	for _, d := range [...]*deadline{&b.reads, &b.writes} {
		d.wanted.Store(never)
		d.armed.Store(never)
	}
	b.writes.implied.Store(limits.writeTimeout > 0)
	return b
}

// onConnState is the ConnState function of an HTTP/1 server. Between requests, net/http clears the
// read deadline twice: before it waits, and when the next request has begun, which may be in bytes
// read earlier.
func onConnState(c net.Conn, state http.ConnState) {
	b, ok := c.(*boundedConn)
	if !ok {
		return
	}
	switch state {
	case http.StateIdle:
		b.waitingForRequest = false
		b.reads.implied.Store(true)
	case http.StateActive: // net/http has removed the header's deadline
		b.readingHeader, b.headerDeadline = false, 0
	}
}

// clearImplied removes the implied write limit of a connection that was hijacked. No write may be
// running.
func clearImplied(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	if b, ok := c.(*boundedConn); ok {
		b.writes.implied.Store(false)
	}
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.limits.slots })
	return err
}

// CloseWrite lets net/http flush the last response before it resets the connection.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

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

// requestBegun notes that a request has begun, which ends the wait between requests.
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

// maxWrite is the number of bytes that a peer must read within Options.WriteTimeout.
const maxWrite = 64 << 10

// joinBuffers holds the buffers of joins.
var joinBuffers = sync.Pool{New: func() any { return new([]byte) }}

// join collects the writes that follow, up to maxWrite bytes, until writeJoined. net/http writes a
// response that does not fit into its buffer of 4 KiB in two parts, the first of which ends
// somewhere in the body.
func (c *boundedConn) join() { c.joined = joinBuffers.Get().(*[]byte) }

// writeJoined ends a join and writes what it has collected.
func (c *boundedConn) writeJoined() error {
	buf := c.joined
	c.joined = nil
	var err error
	if len(*buf) > 0 {
		_, err = c.writeParts(*buf)
		*buf = (*buf)[:0]
	}
	joinBuffers.Put(buf)
	return err
}

func (c *boundedConn) Write(b []byte) (written int, err error) {
	if c.joined == nil {
		return c.writeParts(b)
	}
	if len(*c.joined)+len(b) <= maxWrite {
		*c.joined = append(*c.joined, b...)
		return len(b), nil
	}
	if err := c.writeJoined(); err != nil {
		c.join() // for the caller of writeJoined
		return 0, err
	}
	c.join()
	return c.writeParts(b)
}

// writeParts writes b in parts that each have their own limit of time.
func (c *boundedConn) writeParts(b []byte) (written int, err error) {
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

func (c *boundedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *boundedConn) SetReadDeadline(t time.Time) error {
	if c.reads.implied.Load() { // see onConnState
		if c.waitingForRequest {
			c.requestBegun()
		}
		c.waitingForRequest = true
	}
	return c.setWanted(&c.reads, t)
}

func (c *boundedConn) SetWriteDeadline(t time.Time) error { return c.setWanted(&c.writes, t) }

// A deadline is the deadline of one direction of a connection. While no call waits, the underlying
// connection may have any deadline; while one does, it has one that is not later than the wanted
// one. Times count from connLimits.epoch.
type deadline struct {
	// wanted is the deadline that the caller set.
	wanted atomic.Int64
	// armed is the deadline of the underlying connection, or fired. It changes with mu held.
	armed atomic.Int64
	// waiters counts pending calls.
	waiters atomic.Int32
	// explicit means that armed was wanted and is not implied. It changes with armed.
	explicit atomic.Bool
	// implied means that a wait without a wanted deadline has a limit, see impliedTimeout.
	implied atomic.Bool
	mu      sync.Mutex
}

const (
	never = math.MaxInt64 // no deadline is wanted
	fired = math.MinInt64 // the underlying deadline has expired
)

// now returns the time since the epoch.
func (c *boundedConn) now() int64 { return int64(time.Since(c.limits.epoch)) }

// setWanted sets the deadline that a caller wants. It stores the deadline and then looks for waits,
// while beginWait counts the wait and then looks for the deadline: so one of them sees the other.
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

// isExact reports whether the underlying deadline must equal the wanted one during a wait.
func (c *boundedConn) isExact(d *deadline) bool { return c.exactWrites && d == &c.writes }

// impliedTimeout returns the limit of a wait without a wanted deadline.
func (c *boundedConn) impliedTimeout(d *deadline) time.Duration {
	if d == &c.writes {
		return c.limits.writeTimeout
	}
	return c.limits.idleTimeout
}

// setBeneath sets the deadline of the underlying connection.
func (c *boundedConn) setBeneath(d *deadline, t time.Time) error {
	if d == &c.writes {
		return c.Conn.SetWriteDeadline(t)
	}
	return c.Conn.SetReadDeadline(t)
}

// arm sets the underlying deadline to the wanted or the implied one, and reports whether it was
// implied.
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
		} // else the wanted deadline moved earlier meanwhile
	}
}

// A connWait is the state of one call that may wait.
type connWait struct {
	// implied means that an implied deadline was set for the call.
	implied bool
	// rearmed means that the deadline expired early and was set again.
	rearmed bool
}

// beginWait is called before a wait. The caller calls endWait unless there is an error.
func (c *boundedConn) beginWait(d *deadline) (w connWait, err error) {
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

// isArmedFor reports whether the underlying deadline allows a wait.
func (c *boundedConn) isArmedFor(d *deadline, at, armed int64) bool {
	implied := at == never && d.implied.Load()
	if c.isExact(d) {
		return at == armed && !implied
	}
	return at >= armed && armed != fired && (!implied || armed != never && !d.explicit.Load())
}

// hasPassed reports whether the wanted deadline has passed.
func (c *boundedConn) hasPassed(d *deadline) (passed bool, now int64) {
	switch at := d.wanted.Load(); {
	case at == never:
	case at <= 0: // net/http ends a wait this way
		return true, 0
	default:
		now = c.now()
		passed = now >= at
	}
	return passed, now
}

// rearm reports whether err comes from a deadline that was too early. If so, it sets the right one.
// It does so again only when that has passed too: some connections keep failing by a deadline that
// they no longer have.
func (c *boundedConn) rearm(d *deadline, err error, w *connWait) bool {
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
		if d.armed.Load() <= now { // or another call has set it meanwhile
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

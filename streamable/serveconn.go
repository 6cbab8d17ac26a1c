package streamable

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

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

package bridge

import (
	"errors"
	"net"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// aliveTimeout is how long a server that did not answer a request in time may take to give any sign of life.
const aliveTimeout = 10 * time.Second

// errUnresponsive is why a connection is given up that nothing comes by any more, though nobody has said that it has ended: the server hangs, or whatever is on the way has forgotten it.
var errUnresponsive = errors.New("it answers nothing any more, not even a ping")

// checkAlive is called when a request, made at that time, was not answered in time. If nothing else was heard since, the server is asked for a sign of life, and the connection ended if
// there is none, so that the next one has a better chance. Over HTTP each request has its own chance.
func (u *upstream) checkAlive(since time.Time) {
	if u.b.opts.HTTP || u.lastReceived.Load() > since.UnixNano() {
		return
	}
	u.mu.Lock()
	conn := u.conn
	doubted := conn != nil && !conn.checking
	if doubted {
		conn.checking = true
	}
	u.mu.Unlock()
	if doubted {
		u.b.spawn(func() { u.probeAlive(conn) })
	}
}

// A connection is one that a line has at the moment.
type connection struct {
	abort    func() // ends it because it is dead
	checking bool   // it is being found out whether it is; guarded by the line's lock
}

func (u *upstream) probeAlive(c *connection) {
	sentAt := time.Now().UnixNano()
	id := jsonrpc.StringID("mcpwire-alive")
	u.sendUrgent(queuedMessage{frame: jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil), id: id, noLogin: true})
	if !sleep(u.ctx, aliveTimeout) {
		return
	}
	if u.lastReceived.Load() < sentAt {
		c.abort()
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	c.checking = false
}

// writeTimeout is how long a client on a socket may take nothing of what it is sent: it may be gone without a word.
const writeTimeout = time.Minute

// writeChunk is how much of a message must be taken in that time, in bytes: a slow client may take longer for a large one.
const writeChunk = 32 << 10

// A patient connection is one whose writes have a deadline.
type deadlineConn struct{ net.Conn }

func (c deadlineConn) Write(b []byte) (written int, err error) {
	for {
		chunk := b[written:min(written+writeChunk, len(b))]
		if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(chunk)
		if written += n; err != nil || written == len(b) {
			return written, err
		}
	}
}

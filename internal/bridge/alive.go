package bridge

import (
	"errors"
	"net"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// alivePatience is how long a server that did not answer a request in time may take to give any sign of life.
const alivePatience = 10 * time.Second

// errDead is why a connection is given up that nothing comes by any more, though nobody has said that it has ended: the server hangs, or whatever is on the way has forgotten it.
var errDead = errors.New("it answers nothing any more, not even a ping")

// suspect is called when a request, made at that time, was not answered in time. If nothing else was heard since, the server is asked for a sign of life, and the connection ended if
// there is none, so that the next one has a better chance. Over HTTP each request has its own chance.
func (l *line) suspect(since time.Time) {
	if l.b.opts.HTTP || l.heard.Load() > since.UnixNano() {
		return
	}
	l.mu.Lock()
	now := l.now
	doubted := now != nil && !now.doubted
	if doubted {
		now.doubted = true
	}
	l.mu.Unlock()
	if doubted {
		l.b.spawn(func() { l.check(now) })
	}
}

// A connection is one that a line has at the moment.
type connection struct {
	cut     func() // ends it because it is dead
	doubted bool   // it is being found out whether it is; guarded by the line's lock
}

func (l *line) check(c *connection) {
	asked := time.Now().UnixNano()
	id := jsonrpc.StringID("mcpwire-alive")
	l.sendFirst(item{frame: jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil), id: id, quiet: true})
	if !sleep(l.ctx, alivePatience) {
		return
	}
	if l.heard.Load() < asked {
		c.cut()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.doubted = false
}

// sendPatience is how long a client on a socket may take nothing of what it is sent: it may be gone without a word.
const sendPatience = time.Minute

// sendPart is how much of a message must be taken in that time, in bytes: a slow client may take longer for a large one.
const sendPart = 32 << 10

// A patient connection is one whose writes have a deadline.
type patient struct{ net.Conn }

func (c patient) Write(b []byte) (written int, err error) {
	for {
		part := b[written:min(written+sendPart, len(b))]
		if err := c.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(part)
		if written += n; err != nil || written == len(b) {
			return written, err
		}
	}
}

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
	cut := l.cut
	l.cut = nil // it is being found out
	l.mu.Unlock()
	if cut != nil {
		l.b.spawn(func() { l.check(cut) })
	}
}

func (l *line) check(cut func()) {
	asked := time.Now().UnixNano()
	id := jsonrpc.StringID("mcpwire-alive")
	l.sendFirst(item{frame: jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil), id: id})
	if !sleep(l.ctx, alivePatience) {
		return
	}
	if l.heard.Load() < asked {
		cut()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		l.cut = cut // of an older connection, it does nothing
	}
}

// sendPatience is how long a client on a socket may take nothing of what it is sent: it may be gone without a word.
const sendPatience = time.Minute

// A patient connection is one whose writes have a deadline.
type patient struct{ net.Conn }

func (c patient) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

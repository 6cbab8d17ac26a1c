package bridge

import (
	"time"

	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// heardLocked takes note of a message for the client that is no answer: a question, which may take a user's time, the end of one, or a sign that the server is at work. c is
// the call whose stream it goes by; nil if that is not known.
func (p *translated) heardLocked(c *call, frame []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, 0) != nil {
		return
	}
	switch {
	case m.Kind == jsonrpc.KindRequest:
		p.asked[idKey(m.ID)] = struct{}{}
	case string(m.Method) == mcp.NotificationCancelled:
		id, _ := m.Param("requestId")
		delete(p.asked, idKey(id))
	case string(m.Method) != mcp.NotificationProgress:
	case c != nil:
		c.more()
	default:
		for _, c := range p.piped {
			c.more()
		}
	}
}

// expire gives a call up for which nothing was heard for too long.
func (p *translated) expire(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.streams[c.stream] != c && p.piped[idKey(c.id)] != c {
		return
	}
	if len(p.asked) > 0 { // it may be the user whom it waits for
		c.more()
		return
	}
	delete(p.streams, c.stream)
	if p.piped[idKey(c.id)] == c {
		delete(p.piped, idKey(c.id))
	}
	if c.method != mcp.MethodInitialize {
		var outs []translate.Out
		if c.modern && c.stream != 0 {
			outs = p.t.NearGone(time.Now(), c.stream)
		} else {
			outs = p.t.FromNear(time.Now(), cancellation(c.id, "timeout"), 0)
		}
		p.actLocked(c.client.lane, 0, outs)
	}
	c.late()
	p.line.suspect(c.began)
}

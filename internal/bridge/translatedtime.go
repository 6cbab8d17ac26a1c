package bridge

import (
	"time"

	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// noteActivityLocked takes note of a message for the client that is no answer: a question, which may take a user's time, the end of one, or a sign that the server is at work. c is
// the call whose stream it goes by; nil if that is not known.
func (t *translator) noteActivityLocked(c *call, frame []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, 0) != nil {
		return
	}
	switch {
	case m.Kind == jsonrpc.KindRequest:
		t.serverRequests[idKey(m.ID)] = struct{}{}
	case string(m.Method) == mcp.NotificationCancelled:
		id, _ := m.Param("requestId")
		delete(t.serverRequests, idKey(id))
	case string(m.Method) != mcp.NotificationProgress:
	case c != nil:
		c.resetTimer()
	default:
		for _, c := range t.callsByID {
			c.resetTimer()
		}
	}
}

// expire gives a call up for which nothing was heard for too long.
func (t *translator) expire(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.callsByStream[c.stream] != c && t.callsByID[idKey(c.id)] != c {
		return
	}
	if len(t.serverRequests) > 0 { // it may be the user whom it waits for
		c.resetTimer()
		return
	}
	delete(t.callsByStream, c.stream)
	if t.callsByID[idKey(c.id)] == c {
		delete(t.callsByID, idKey(c.id))
	}
	if c.method != mcp.MethodInitialize {
		var outs []translate.Out
		if c.modern && c.stream != 0 {
			outs = t.machine.StreamClosed(time.Now(), c.stream)
		} else {
			outs = t.machine.FromDownstream(time.Now(), cancellation(c.id, "timeout"), 0)
		}
		t.applyLocked(c.client.rec, 0, outs)
	}
	c.expire()
	t.upstream.checkAlive(c.began)
}

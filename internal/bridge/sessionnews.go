package bridge

import (
	"slices"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// forwardSessionNotification hands a notification to those clients of a session that it is for. c is the call on whose stream it came; nil if that is not known.
func (p *passthrough) forwardSessionNotification(c *call, frame []byte, m *jsonrpc.Message, event uint64) {
	method := string(m.Method)
	switch {
	case method == mcp.NotificationResourceUpdated:
		uri, _ := m.Param("uri")
		p.mu.Lock()
		to := p.subscribersLocked(stringOf(uri))
		p.mu.Unlock()
		p.sendToClients(to, frame, event)
	case method == mcp.NotificationTaskStatus:
		id, _ := m.Param("taskId")
		p.mu.Lock()
		cl := p.taskClientLocked(stringOf(id))
		p.mu.Unlock()
		p.sendToClient(cl, frame, event)
	case method == mcp.NotificationElicitationComplete:
		id, _ := m.Param("elicitationId")
		p.mu.Lock()
		cl := p.session.elicitations.remove(stringOf(id))
		p.mu.Unlock()
		p.sendToClient(cl, frame, event)
	case slices.ContainsFunc(listChanges[:], func(l [2]string) bool { return l[1] == method }):
		p.broadcast(frame, event)
	case c != nil:
		p.sendForCall(c, frame, event)
	case method == mcp.NotificationMessage:
		p.forwardLog(frame, m, event)
	default:
		p.broadcast(frame, event)
	}
}

// sendToClients hands a message to some clients.
func (p *passthrough) sendToClients(list []*client, frame []byte, event uint64) {
	for _, cl := range list {
		if err := cl.send(nil, frame, provenance{rec: p.upstream.rec, event: event, rule: "same"}); err != nil {
			p.b.opts.Logger.Debug("a message was dropped", "error", err)
		}
	}
}

// sendToClient hands a message to whose it is, if that is known.
func (p *passthrough) sendToClient(cl *client, frame []byte, event uint64) {
	if cl == nil {
		p.noteUnroutable(event)
		return
	}
	p.sendToClients([]*client{cl}, frame, event)
}

// subscribersLocked returns the clients that are subscribed to a resource, or to what it is a part of.
func (p *passthrough) subscribersLocked(uri string) (list []*client) {
	seen := map[*client]bool{}
	for whole, by := range p.resume.subscribers {
		if !isSubresource(uri, whole) {
			continue
		}
		for cl := range by {
			if !seen[cl] {
				seen[cl] = true
				list = append(list, cl)
			}
		}
	}
	return list
}

// isSubresource reports whether a resource is the other one, or a part of it.
func isSubresource(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, whole)
	return ok && (rest == "" || strings.HasSuffix(whole, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

// sessionSubscribe passes a subscription on unless there are too many to know whose they are.
func (p *passthrough) sessionSubscribe(c *call, frame []byte) []byte {
	p.mu.Lock()
	full := len(p.resume.subscribers) >= maxSubscriptions || len(frame) > maxReplayBytes
	p.mu.Unlock()
	if full {
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many resources are subscribed to, or the name of one is too long"))
		return nil
	}
	return frame
}

// sessionUnsubscribe passes the end of a subscription on, unless others go on with it.
func (p *passthrough) sessionUnsubscribe(c *call, frame []byte, m *jsonrpc.Message) []byte {
	v, _ := m.Param("uri")
	uri := stringOf(v)
	p.mu.Lock()
	others := false
	for cl := range p.resume.subscribers[uri] {
		others = others || cl != c.client
	}
	for other := range p.resume.pending {
		others = others || other.client != c.client && other.method == mcp.MethodResourcesSubscribe && other.subject == uri
	}
	if others {
		delete(p.resume.subscribers[uri], c.client)
	}
	p.mu.Unlock()
	if !others {
		return frame
	}
	c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridgeProvenance())
	return nil
}

package bridge

import (
	"slices"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ofServer hands a notification to those clients of a session that it is for. c is the call on whose stream it came; nil if that is not known.
func (p *plain) ofServer(c *call, frame []byte, m *jsonrpc.Message, event uint64) {
	method := string(m.Method)
	switch {
	case method == mcp.NotificationResourceUpdated:
		uri, _ := m.Param("uri")
		p.mu.Lock()
		to := p.subscribersLocked(text(uri))
		p.mu.Unlock()
		p.sendTo(to, frame, event)
	case method == mcp.NotificationTaskStatus:
		id, _ := m.Param("taskId")
		p.mu.Lock()
		cl := p.ofTaskLocked(text(id))
		p.mu.Unlock()
		p.sendToOwner(cl, frame, event)
	case method == mcp.NotificationElicitationComplete:
		id, _ := m.Param("elicitationId")
		p.mu.Lock()
		cl := p.session.pages.forget(text(id))
		p.mu.Unlock()
		p.sendToOwner(cl, frame, event)
	case slices.ContainsFunc(lists[:], func(l [2]string) bool { return l[1] == method }):
		p.broadcast(frame, event)
	case c != nil:
		p.pass(c, frame, event)
	case method == mcp.NotificationMessage:
		p.logged(frame, m, event)
	default:
		p.broadcast(frame, event)
	}
}

// sendTo hands a message to some clients.
func (p *plain) sendTo(list []*client, frame []byte, event uint64) {
	for _, cl := range list {
		if err := cl.send(nil, frame, made{lane: p.line.lane, of: event, rule: "same"}); err != nil {
			p.b.opts.Logger.Debug("a message was dropped", "error", err)
		}
	}
}

// sendToOwner hands a message to whose it is, if that is known.
func (p *plain) sendToOwner(cl *client, frame []byte, event uint64) {
	if cl == nil {
		p.homeless(event)
		return
	}
	p.sendTo([]*client{cl}, frame, event)
}

// subscribersLocked returns the clients that are subscribed to a resource, or to what it is a part of.
func (p *plain) subscribersLocked(uri string) (list []*client) {
	seen := map[*client]bool{}
	for whole, by := range p.past.by {
		if !isPart(uri, whole) {
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

// isPart reports whether a resource is the other one, or a part of it.
func isPart(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, whole)
	return ok && (rest == "" || strings.HasSuffix(whole, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

// subscribes passes a subscription on unless there are too many to know whose they are.
func (p *plain) subscribes(c *call, frame []byte) []byte {
	p.mu.Lock()
	full := len(p.past.by) >= maxSubscribed || len(frame) > maxRemembered
	p.mu.Unlock()
	if full {
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many resources are subscribed to, or the name of one is too long"))
		return nil
	}
	return frame
}

// unsubscribes passes the end of a subscription on, unless others go on with it.
func (p *plain) unsubscribes(c *call, frame []byte, m *jsonrpc.Message) []byte {
	v, _ := m.Param("uri")
	uri := text(v)
	p.mu.Lock()
	others := false
	for cl := range p.past.by[uri] {
		others = others || cl != c.client
	}
	for other := range p.past.pending {
		others = others || other.client != c.client && other.method == mcp.MethodResourcesSubscribe && other.about == uri
	}
	if others {
		delete(p.past.by[uri], c.client)
	}
	p.mu.Unlock()
	if !others {
		return frame
	}
	c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridged())
	return nil
}

package bridge

import (
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// refused answers a question that is for none of a session's clients in particular, and refuses one that none of them has declared to answer. It reports whether it did.
func (p *plain) refused(m *jsonrpc.Message) bool {
	method := string(m.Method)
	if method == mcp.MethodPing {
		p.tell(jsonrpc.AppendResult(nil, m.ID, []byte("{}")))
		return true
	}
	if !era.IsAsk(method) {
		return false
	}
	p.mu.Lock()
	declared, version := locate(p.past.initialize, "params", "capabilities").of(p.past.initialize), versionIn(p.past.result)
	p.mu.Unlock()
	revision, ok := mcp.ParseRevision(version)
	if !ok {
		return false // the client knows what the server means
	}
	q := era.Ask{Method: method, Params: m.Params}
	f := era.Of(revision)
	if _, missing := q.Missing(&era.Client{Capabilities: era.DeclaredByClient(declared, f)}, f); missing != "" {
		p.refuse(m, q.Refusal("none of the clients that share this session has declared "+missing))
		return true
	}
	return false
}

// relatedLocked returns the client whose task a message belongs to; nil if it says nothing of one that is known.
func (p *plain) relatedLocked(m *jsonrpc.Message) *client {
	meta, ok := m.Param("_meta")
	if p.session == nil || !ok {
		return nil
	}
	return p.ofTaskLocked(text(locate(meta, mcp.MetaRelatedTask, "taskId").of(meta)))
}

// ofTaskLocked returns the client whose task it is; nil if that is not known, or the client is gone.
func (p *plain) ofTaskLocked(id string) *client {
	if c := p.session.tasks.of[id]; c != nil && p.members[c.client] != nil {
		return c.client
	}
	return nil
}

// askedLocked notes what a client is asked that is talked of later.
func (p *plain) askedLocked(cl *client, m *jsonrpc.Message) {
	if p.session != nil && string(m.Method) == mcp.MethodElicit {
		id, _ := m.Param("elicitationId")
		p.session.pages.note(text(id), cl)
	}
}

// learnLocked takes note of what an answer says that is talked of later.
func (p *plain) learnLocked(c *call, m *jsonrpc.Message) {
	s := p.session
	if m.Kind == jsonrpc.KindError {
		if c.method == mcp.MethodSetLevel && p.members[c.client] != nil {
			p.members[c.client].level = mcp.LevelNone
		}
		if e := m.Err(); e.Code == mcp.CodeURLElicitationRequired {
			p.pagesLocked(c, e.Data)
		}
		return
	}
	switch c.method {
	case mcp.MethodSetLevel:
		s.level = c.hears
	case mcp.MethodTasksResult:
		p.taskOverLocked(c.about)
	default:
		if id := text(locate(m.Result, "task", "taskId").of(m.Result)); id != "" {
			if c.heard != "" { // it goes on to be told of
				p.tokens[c.heard] = c
			}
			if old, full := s.tasks.note(id, c); full {
				delete(p.tokens, old.heard)
			}
		}
	}
}

// pagesLocked notes the pages that an error demands to be visited.
func (p *plain) pagesLocked(c *call, data []byte) {
	at := locate(data, "elicitations")
	if !at.found() || data[at.start] != '[' {
		return
	}
	for pages := jsonwire.ArrayElements(at.of(data)); pages.Next(); {
		page := pages.Value()
		p.session.pages.note(text(locate(page, "elicitationId").of(page)), c.client)
	}
}

// taskOverLocked forgets a task.
func (p *plain) taskOverLocked(id string) {
	if c := p.session.tasks.forget(id); c != nil {
		delete(p.tokens, c.heard)
	}
}

// forsakeLocked forgets a client that leaves the others, and returns what is to be done about it: what it was asked is refused.
func (p *plain) forsakeLocked(cl *client) (then []func()) {
	s := p.session
	for key, a := range p.asked {
		if a.client == cl {
			delete(p.asked, key)
			refusal := jsonrpc.AppendError(nil, a.id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the client that was asked is gone"), false)
			then = append(then, func() { p.tell(refusal) })
		}
	}
	for id, c := range s.tasks.of {
		if c.client == cl {
			p.taskOverLocked(id)
		}
	}
	for id, one := range s.pages.of {
		if one == cl {
			s.pages.forget(id)
		}
	}
	if want := p.wantedLocked(); p.past.level != nil && want != mcp.LevelNone && want != s.level {
		s.level = want
		frame := withLevel(p.past.level, want)
		p.past.level = frame
		then = append(then, func() { p.remind(frame) })
	}
	return then
}

package bridge

import (
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// answerOrRefuse answers a question that is for none of a session's clients in particular, and refuses one that none of them has declared to answer. It reports whether it did.
func (p *passthrough) answerOrRefuse(m *jsonrpc.Message) bool {
	method := string(m.Method)
	if method == mcp.MethodPing {
		p.sendOwn(jsonrpc.AppendResult(nil, m.ID, []byte("{}")))
		return true
	}
	if !era.IsInputRequest(method) {
		return false
	}
	p.mu.Lock()
	declared, version := locate(p.resume.initialize, "params", "capabilities").slice(p.resume.initialize), versionIn(p.resume.initializeResult)
	p.mu.Unlock()
	revision, ok := mcp.ParseRevision(version)
	if !ok {
		return false // the client knows what the server means
	}
	q := era.InputRequest{Method: method, Params: m.Params}
	f := era.Of(revision)
	if _, missing := q.MissingCapability(&era.Client{Capabilities: era.DeclaredByClient(declared, f)}, f); missing != "" {
		p.refuse(m, q.Refusal("none of the clients that share this session has declared "+missing))
		return true
	}
	return false
}

// relatedTaskClientLocked returns the client whose task a message belongs to; nil if it says nothing of one that is known.
func (p *passthrough) relatedTaskClientLocked(m *jsonrpc.Message) *client {
	meta, ok := m.Param("_meta")
	if p.session == nil || !ok {
		return nil
	}
	return p.taskClientLocked(stringOf(locate(meta, mcp.MetaRelatedTask, "taskId").slice(meta)))
}

// taskClientLocked returns the client whose task it is; nil if that is not known, or the client is gone.
func (p *passthrough) taskClientLocked(id string) *client {
	if c := p.session.tasks.byName[id]; c != nil && p.clients[c.client] != nil {
		return c.client
	}
	return nil
}

// noteServerRequestLocked notes what a client is asked that is talked of later.
func (p *passthrough) noteServerRequestLocked(cl *client, m *jsonrpc.Message) {
	if p.session != nil && string(m.Method) == mcp.MethodElicit {
		id, _ := m.Param("elicitationId")
		p.session.elicitations.put(stringOf(id), cl)
	}
}

// noteResponseLocked takes note of what an answer says that is talked of later.
func (p *passthrough) noteResponseLocked(c *call, m *jsonrpc.Message) {
	s := p.session
	if m.Kind == jsonrpc.KindError {
		if c.method == mcp.MethodSetLevel && p.clients[c.client] != nil {
			p.clients[c.client].logLevel = mcp.LevelNone
		}
		if e := m.Err(); e.Code == mcp.CodeURLElicitationRequired {
			p.noteElicitationsLocked(c, e.Data)
		}
		return
	}
	switch c.method {
	case mcp.MethodSetLevel:
		s.level = c.logLevel
	case mcp.MethodTasksResult:
		p.removeTaskLocked(c.subject)
	default:
		if id := stringOf(locate(m.Result, "task", "taskId").slice(m.Result)); id != "" {
			if c.tokenKey != "" { // it goes on to be told of
				p.tokens[c.tokenKey] = c
			}
			if old, full := s.tasks.put(id, c); full {
				delete(p.tokens, old.tokenKey)
			}
		}
	}
}

// noteElicitationsLocked notes the pages that an error demands to be visited.
func (p *passthrough) noteElicitationsLocked(c *call, data []byte) {
	at := locate(data, "elicitations")
	if !at.found() || data[at.start] != '[' {
		return
	}
	for elicitations := jsonwire.ArrayElements(at.slice(data)); elicitations.Next(); {
		elicitation := elicitations.Value()
		p.session.elicitations.put(stringOf(locate(elicitation, "elicitationId").slice(elicitation)), c.client)
	}
}

// removeTaskLocked forgets a task.
func (p *passthrough) removeTaskLocked(id string) {
	if c := p.session.tasks.remove(id); c != nil {
		delete(p.tokens, c.tokenKey)
	}
}

// detachLocked forgets a client that leaves the others, and returns what is to be done about it: what it was asked is refused.
func (p *passthrough) detachLocked(cl *client) (cleanup []func()) {
	s := p.session
	for key, a := range p.serverRequests {
		if a.client == cl {
			delete(p.serverRequests, key)
			refusal := jsonrpc.AppendError(nil, a.id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the client that was asked is gone"), false)
			cleanup = append(cleanup, func() { p.sendOwn(refusal) })
		}
	}
	for id, c := range s.tasks.byName {
		if c.client == cl {
			p.removeTaskLocked(id)
		}
	}
	for id, owner := range s.elicitations.byName {
		if owner == cl {
			s.elicitations.remove(id)
		}
	}
	if level := p.lowestLevelLocked(); p.resume.setLevel != nil && level != mcp.LevelNone && level != s.level {
		s.level = level
		frame := withLevel(p.resume.setLevel, level)
		p.resume.setLevel = frame
		cleanup = append(cleanup, func() { p.replay(frame) })
	}
	return cleanup
}

package mock

import (
	"context"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// accept decides what becomes of a request: it is called in the order of arrival. What it returns must be ended. m is not kept.
func (c *conn) accept(m *jsonrpc.Message) (*responder, error) {
	a := &responder{conn: c, id: m.ID.Clone(), method: string(m.Method), modern: isModern(m.Params)}
	a.ctx, a.cancel = context.WithCancel(c.ctx)
	if !c.register(a) {
		a.cancel()
		return nil, errBusy
	}
	if token := tokenOf(m); token != nil {
		a.token = append([]byte(nil), token...)
	}
	if a.modern {
		a.level, _ = mcp.ParseLoggingLevel(era.LookupString(m.Params, "_meta", mcp.MetaLogLevel))
	}
	c.applyEffects(m)
	if !c.answerBuiltin(a, m) {
		c.match(a, m)
	}
	a.faults = c.srv.matchFaults(a, m)
	return a, nil
}

var errBusy = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many requests are under way")

// match looks the request up.
func (c *conn) match(r *responder, m *jsonrpc.Message) {
	c.mu.Lock()
	if r.method == mcp.MethodInitialize {
		c.noteInitialize(m)
		r.exchange = nil
		if c.legacy != nil {
			r.exchange = c.legacy.initialize
		}
	} else {
		r.exchange = c.next(r.modern, m)
	}
	if r.exchange != nil && r.token != nil {
		c.tokens[r.exchange] = r.token
	}
	c.mu.Unlock()
	if r.exchange == nil && !c.answerDefault(r, m) {
		r.err = c.srv.reportMiss(c, r, m)
		r.unmatched = true
	}
}

// noteInitialize notes what the client says of itself in the handshake. mu is held.
func (c *conn) noteInitialize(m *jsonrpc.Message) {
	if c.legacy == nil {
		c.legacy = c.srv.assignLegacy(m.Params)
	}
	if c.legacy == nil {
		return
	}
	c.features = era.Of(c.legacy.revision)
	c.client = era.Client{}
	if era.IsObject(m.Params) {
		c.client.Capabilities = append([]byte(nil), era.Lookup(m.Params, "capabilities")...)
	}
}

// answerBuiltin answers what is wrong whatever was recorded. What it lets pass of a handshake counts.
func (c *conn) answerBuiltin(r *responder, m *jsonrpc.Message) bool {
	req := &jsonrpc.Request{Message: *m}
	if _, err := c.rules.Open(req); err != nil {
		r.err = jsonrpc.ErrorOf(err)
		return true
	}
	if r.method != mcp.MethodInitialize || r.modern {
		return false
	}
	if _, err := c.rules.Initialize(req); err != nil {
		r.err = jsonrpc.ErrorOf(err)
		return true
	}
	return false
}

// answerDefault answers what was not recorded, but what every server answers.
func (c *conn) answerDefault(r *responder, m *jsonrpc.Message) bool {
	switch {
	case r.modern && r.method == mcp.MethodSubscriptionsListen && c.srv.recording.methods[methodKey{true, r.method}] == nil:
		// Clients listen without being told to, and take it that there is nothing to listen to.
		r.err = jsonrpc.MethodNotFound(r.method)
		return true
	case r.modern:
		return false
	case r.method == mcp.MethodPing:
	case r.method == mcp.MethodSetLevel:
		level := ""
		if era.IsObject(m.Params) {
			level = era.LookupString(m.Params, "level")
		}
		if _, ok := mcp.ParseLoggingLevel(level); !ok {
			r.err = jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: params.level is none of the eight levels")
			return true
		}
	default:
		return false
	}
	r.emptyResult = true
	return true
}

// applyEffects acts on what a request says besides asking for an answer.
func (c *conn) applyEffects(m *jsonrpc.Message) {
	if string(m.Method) != mcp.MethodSetLevel || !era.IsObject(m.Params) {
		return
	}
	if level, ok := mcp.ParseLoggingLevel(era.LookupString(m.Params, "level")); ok {
		c.mu.Lock()
		c.level = level
		c.mu.Unlock()
	}
}

package mock

import (
	"context"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// accept decides what becomes of a request: it is called in the order of arrival. What it returns must be ended. m is not kept.
func (p *peer) accept(m *jsonrpc.Message) (*play, error) {
	a := &play{peer: p, id: m.ID.Clone(), method: string(m.Method), modern: isModern(m.Params)}
	a.ctx, a.cancel = context.WithCancel(p.ctx)
	if !p.enter(a) {
		a.cancel()
		return nil, errBusy
	}
	if token := tokenOf(m); token != nil {
		a.token = append([]byte(nil), token...)
	}
	if a.modern {
		a.level, _ = mcp.ParseLoggingLevel(era.LookupString(m.Params, "_meta", mcp.MetaLogLevel))
	}
	p.heed(m)
	if !p.builtin(a, m) {
		p.pick(a, m)
	}
	a.faults = p.srv.meet(a, m)
	return a, nil
}

var errBusy = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many requests are under way")

// pick looks the request up.
func (p *peer) pick(a *play, m *jsonrpc.Message) {
	p.mu.Lock()
	if a.method == mcp.MethodInitialize {
		p.shake(m)
		a.entry = nil
		if p.legacy != nil {
			a.entry = p.legacy.hello
		}
	} else {
		a.entry = p.next(a.modern, m)
	}
	if a.entry != nil && a.token != nil {
		p.tokens[a.entry] = a.token
	}
	p.mu.Unlock()
	if a.entry == nil && !p.courtesy(a, m) {
		a.err = p.srv.miss(p, a, m)
		a.missed = true
	}
}

// shake notes what the client says of itself in the handshake. mu is held.
func (p *peer) shake(m *jsonrpc.Message) {
	if p.legacy == nil {
		p.legacy = p.srv.bindLegacy(m.Params)
	}
	if p.legacy == nil {
		return
	}
	p.features = era.Of(p.legacy.revision)
	p.client = era.Client{}
	if era.IsObject(m.Params) {
		p.client.Capabilities = append([]byte(nil), era.Lookup(m.Params, "capabilities")...)
	}
}

// builtin answers what is wrong whatever was recorded. What it lets pass of a handshake counts.
func (p *peer) builtin(a *play, m *jsonrpc.Message) bool {
	r := &jsonrpc.Request{Message: *m}
	if _, err := p.rules.Open(r); err != nil {
		a.err = jsonrpc.ErrorOf(err)
		return true
	}
	if a.method != mcp.MethodInitialize || a.modern {
		return false
	}
	if _, err := p.rules.Initialize(r); err != nil {
		a.err = jsonrpc.ErrorOf(err)
		return true
	}
	return false
}

// courtesy answers what was not recorded, but what every server answers.
func (p *peer) courtesy(a *play, m *jsonrpc.Message) bool {
	switch {
	case a.modern && a.method == mcp.MethodSubscriptionsListen && p.srv.tape.methods[methodKey{true, a.method}] == nil:
		// Clients listen without being told to, and take it that there is nothing to listen to.
		a.err = jsonrpc.MethodNotFound(a.method)
		return true
	case a.modern:
		return false
	case a.method == mcp.MethodPing:
	case a.method == mcp.MethodSetLevel:
		level := ""
		if era.IsObject(m.Params) {
			level = era.LookupString(m.Params, "level")
		}
		if _, ok := mcp.ParseLoggingLevel(level); !ok {
			a.err = jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: params.level is none of the eight levels")
			return true
		}
	default:
		return false
	}
	a.empty = true
	return true
}

// heed acts on what a request says besides asking for an answer.
func (p *peer) heed(m *jsonrpc.Message) {
	if string(m.Method) != mcp.MethodSetLevel || !era.IsObject(m.Params) {
		return
	}
	if level, ok := mcp.ParseLoggingLevel(era.LookupString(m.Params, "level")); ok {
		p.mu.Lock()
		p.level = level
		p.mu.Unlock()
	}
}

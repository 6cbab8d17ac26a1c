package mock

import "mcpwire/mcp"

// follow sends what came behind an answer by itself, once for each client. What the server sent after the handshake waits until the client has said that it is there.
func (p *peer) follow(a *play) {
	if a.entry == nil || len(a.entry.later) == 0 || a.method == mcp.MethodInitialize {
		return
	}
	p.behind(a)
}

// greet is called when the handshake is complete.
func (p *peer) greet() {
	p.mu.Lock()
	of := p.legacy
	p.mu.Unlock()
	if of != nil && of.hello != nil && len(of.hello.later) > 0 {
		p.behind(&play{peer: p, entry: of.hello, method: mcp.MethodInitialize})
	}
}

// behind plays the messages behind an answer, on a goroutine unless they are only sent.
func (p *peer) behind(a *play) {
	p.mu.Lock()
	done := p.followed[a.entry]
	p.followed[a.entry] = true
	p.mu.Unlock()
	if done {
		return
	}
	b := &play{peer: p, entry: a.entry, method: a.method, modern: a.modern, token: a.token, level: a.level, ctx: p.ctx}
	if !b.waits() {
		b.later()
		return
	}
	b.ctx = p.quiet
	if !p.srv.crew.enter() {
		return
	}
	go func() {
		defer p.srv.crew.leave()
		b.later()
	}()
}

// waits reports whether anything behind the answer takes time.
func (a *play) waits() bool {
	if a.peer.srv.opts.Latency.Keep {
		return true
	}
	for i := range a.entry.later {
		if a.entry.later[i].ask {
			return true
		}
	}
	return false
}

func (a *play) later() {
	for i := range a.entry.later {
		s := &a.entry.later[i]
		if a.peer.srv.opts.Latency.Keep && a.wait(s.gap) != nil {
			return
		}
		if a.step(s, a.peer.out) != nil {
			return
		}
	}
}

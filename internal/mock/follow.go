package mock

import "mcpwire/mcp"

// sendTrailing sends what came behind an answer by itself, once for each client. What the server sent after the handshake waits until the client has said that it is there.
func (c *conn) sendTrailing(r *responder) {
	if r.exchange == nil || len(r.exchange.trailing) == 0 || r.method == mcp.MethodInitialize {
		return
	}
	c.playTrailing(r)
}

// onInitialized is called when the handshake is complete.
func (c *conn) onInitialized() {
	c.mu.Lock()
	of := c.legacy
	c.mu.Unlock()
	if of != nil && of.initialize != nil && len(of.initialize.trailing) > 0 {
		c.playTrailing(&responder{conn: c, exchange: of.initialize, method: mcp.MethodInitialize})
	}
}

// playTrailing plays the messages behind an answer, on a goroutine unless they are only sent.
func (c *conn) playTrailing(r *responder) {
	c.mu.Lock()
	done := c.sentTrailing[r.exchange]
	c.sentTrailing[r.exchange] = true
	c.mu.Unlock()
	if done {
		return
	}
	b := &responder{conn: c, exchange: r.exchange, method: r.method, modern: r.modern, token: r.token, level: r.level, ctx: c.ctx}
	if !b.hasDelay() {
		b.sendTrailing()
		return
	}
	b.ctx = c.waitCtx
	if !c.srv.activity.begin() {
		return
	}
	go func() {
		defer c.srv.activity.done()
		b.sendTrailing()
	}()
}

// hasDelay reports whether anything behind the answer takes time.
func (r *responder) hasDelay() bool {
	if r.conn.srv.opts.Latency.Keep {
		return true
	}
	for i := range r.exchange.trailing {
		if r.exchange.trailing[i].isRequest {
			return true
		}
	}
	return false
}

func (r *responder) sendTrailing() {
	for i := range r.exchange.trailing {
		s := &r.exchange.trailing[i]
		if r.conn.srv.opts.Latency.Keep && r.wait(s.delay) != nil {
			return
		}
		if r.runStep(s, r.conn.out) != nil {
			return
		}
	}
}

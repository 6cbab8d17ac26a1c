package client

import "time"

// beginHandler notes that a handler of the user's runs for the server, until done is called.
func (cn *connection) beginHandler() (done func()) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.runningHandlers++; cn.runningHandlers == 1 {
		cn.handlersSince = time.Now()
	}
	return func() {
		cn.mu.Lock()
		defer cn.mu.Unlock()
		if cn.runningHandlers--; cn.runningHandlers == 0 {
			cn.handlerTime += time.Since(cn.handlersSince)
		}
	}
}

// totalHandlerTime returns how long the server has waited for handlers so far, all in all, and whether it does so now.
func (cn *connection) totalHandlerTime() (total time.Duration, running bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.runningHandlers > 0 {
		return cn.handlerTime + time.Since(cn.handlersSince), true
	}
	return cn.handlerTime, false
}

// An excuse is what a server has for being late with an answer: it has had no time while it waited for a handler.
type handlerGrace struct {
	conn        *connection
	handlerTime time.Duration // of the link, when the wait began or was last prolonged
}

func (cn *connection) handlerGrace() handlerGrace {
	busy, _ := cn.totalHandlerTime()
	return handlerGrace{cn, busy}
}

// minHandlerGrace is for how long at least a wait is prolonged while a handler runs, so as not to look too often.
const minHandlerGrace = 100 * time.Millisecond

// extension returns how much longer the server may take, after a wait that is over.
func (g *handlerGrace) extension() time.Duration {
	busy, running := g.conn.totalHandlerTime()
	d := busy - g.handlerTime
	g.handlerTime = busy
	if running {
		d = max(d, minHandlerGrace)
	}
	return d
}

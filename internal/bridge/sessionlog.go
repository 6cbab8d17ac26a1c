package bridge

import (
	"strconv"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// defaultLogLevel is that of a client which has not chosen one, if others in its session have: the server cannot be left to choose any more.
const defaultLogLevel = mcp.LevelInfo

// setLogLevel has a client get log messages from a level on. The server, which knows one level, is told the lowest that any wants.
func (p *passthrough) setLogLevel(c *call, frame []byte, m *jsonrpc.Message) []byte {
	v, _ := m.Param("level")
	level, ok := mcp.ParseLoggingLevel(stringOf(v))
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.clients[c.client]
	if !ok || state == nil {
		return frame // the server says what is wrong
	}
	state.logLevel = level
	c.logLevel = p.lowestLevelLocked()
	if c.logLevel == p.session.level {
		defer c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridgeProvenance())
		return nil
	}
	return withLevel(frame, c.logLevel)
}

// withLevel returns a request for log messages with another level.
func withLevel(frame []byte, level mcp.LoggingLevel) []byte {
	return splice(frame, locate(frame, "params", "level"), jsonwire.AppendQuote(nil, level.String()))
}

// lowestLevelLocked returns the lowest level that a client of the session wants, LevelNone if none has chosen one.
func (p *passthrough) lowestLevelLocked() (lowest mcp.LoggingLevel) {
	undecided := false
	for _, state := range p.clients {
		undecided = undecided || state.logLevel == mcp.LevelNone
		if state.logLevel != mcp.LevelNone && (lowest == mcp.LevelNone || state.logLevel < lowest) {
			lowest = state.logLevel
		}
	}
	if undecided && lowest > defaultLogLevel {
		return defaultLogLevel
	}
	return lowest
}

// logLevelOf returns the level of a log message, and whether it is one.
func logLevelOf(m *jsonrpc.Message) (mcp.LoggingLevel, bool) {
	if string(m.Method) != mcp.NotificationMessage {
		return mcp.LevelNone, false
	}
	v, _ := m.Param("level")
	level, _ := mcp.ParseLoggingLevel(stringOf(v))
	return level, true
}

// forwardLog hands a log message to the client that it must be of, since it alone has something under way, or to all if none has. If several have, nothing says whose it is, and
// nobody gets it.
func (p *passthrough) forwardLog(frame []byte, m *jsonrpc.Message, event uint64) {
	level, _ := logLevelOf(m)
	p.mu.Lock()
	to := p.initializedClientsLocked()
	if cl := p.relatedTaskClientLocked(m); cl != nil {
		to = []*client{cl}
	} else if busy := p.activeClientsLocked(); len(busy) > 0 {
		to = busy
		if len(busy) > 1 {
			to = nil
		}
	}
	chosen := p.session.level != mcp.LevelNone
	var get []*client
	for _, cl := range to {
		from := p.clients[cl].logLevel
		if from == mcp.LevelNone && chosen {
			from = defaultLogLevel
		}
		if level >= from {
			get = append(get, cl)
		}
	}
	p.mu.Unlock()
	if len(to) == 0 {
		p.noteUnroutable(event)
	}
	p.sendToClients(get, frame, event)
}

// activeClientsLocked returns the clients that have a request open.
func (p *passthrough) activeClientsLocked() (list []*client) {
	seen := map[*client]bool{}
	for _, c := range p.calls {
		if !seen[c.client] && p.clients[c.client] != nil {
			seen[c.client] = true
			list = append(list, c.client)
		}
	}
	return list
}

// noteUnroutable notes that a message goes nowhere.
func (p *passthrough) noteUnroutable(event uint64) {
	p.upstream.rec.note("message " + strconv.FormatUint(event, 10) + " goes no further: nothing says which client it is for")
}

// candidateCalls returns the calls of modern clients that a message may belong to which does not say so: of a client that is one, only the last.
func (p *passthrough) candidateCalls(m *jsonrpc.Message) (open []*call) {
	level, isLog := logLevelOf(m)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if !c.modern || c.listenFrame != nil || isLog && (c.logLevel == mcp.LevelNone || level < c.logLevel) {
			continue
		}
		switch {
		case len(open) == 0 || open[0].client != c.client || c.client.aggregate:
			open = append(open, c)
		case c.seq > open[0].seq:
			open[0] = c
		}
	}
	return open
}

// requestedLogLevel returns the level from which a modern request wants log messages.
func requestedLogLevel(m *jsonrpc.Message) mcp.LoggingLevel {
	meta, _ := m.Param("_meta")
	level, _ := mcp.ParseLoggingLevel(stringOf(locate(meta, mcp.MetaLogLevel).slice(meta)))
	return level
}

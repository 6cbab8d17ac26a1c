package bridge

import (
	"strconv"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// usualLevel is that of a client which has not chosen one, if others in its session have: the server cannot be left to choose any more.
const usualLevel = mcp.LevelInfo

// levelFor has a client get log messages from a level on. The server, which knows one level, is told the lowest that any wants.
func (p *plain) levelFor(c *call, frame []byte, m *jsonrpc.Message) []byte {
	v, _ := m.Param("level")
	level, ok := mcp.ParseLoggingLevel(text(v))
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.members[c.client]
	if !ok || one == nil {
		return frame // the server says what is wrong
	}
	one.level = level
	c.hears = p.wantedLocked()
	if c.hears == p.session.level {
		defer c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridged())
		return nil
	}
	return withLevel(frame, c.hears)
}

// withLevel returns a request for log messages with another level.
func withLevel(frame []byte, level mcp.LoggingLevel) []byte {
	return splice(frame, locate(frame, "params", "level"), jsonwire.AppendQuote(nil, level.String()))
}

// wantedLocked returns the lowest level that a client of the session wants, LevelNone if none has chosen one.
func (p *plain) wantedLocked() (lowest mcp.LoggingLevel) {
	usual := false
	for _, one := range p.members {
		usual = usual || one.level == mcp.LevelNone
		if one.level != mcp.LevelNone && (lowest == mcp.LevelNone || one.level < lowest) {
			lowest = one.level
		}
	}
	if usual && lowest > usualLevel {
		return usualLevel
	}
	return lowest
}

// levelOf returns the level of a log message, and whether it is one.
func levelOf(m *jsonrpc.Message) (mcp.LoggingLevel, bool) {
	if string(m.Method) != mcp.NotificationMessage {
		return mcp.LevelNone, false
	}
	v, _ := m.Param("level")
	level, _ := mcp.ParseLoggingLevel(text(v))
	return level, true
}

// logged hands a log message to the client that it must be of, since it alone has something under way, or to all if none has. If several have, nothing says whose it is, and
// nobody gets it.
func (p *plain) logged(frame []byte, m *jsonrpc.Message, event uint64) {
	level, _ := levelOf(m)
	p.mu.Lock()
	to := p.toldLocked()
	if cl := p.relatedLocked(m); cl != nil {
		to = []*client{cl}
	} else if busy := p.busyLocked(); len(busy) > 0 {
		to = busy
		if len(busy) > 1 {
			to = nil
		}
	}
	chosen := p.session.level != mcp.LevelNone
	var get []*client
	for _, cl := range to {
		from := p.members[cl].level
		if from == mcp.LevelNone && chosen {
			from = usualLevel
		}
		if level >= from {
			get = append(get, cl)
		}
	}
	p.mu.Unlock()
	if len(to) == 0 {
		p.homeless(event)
	}
	p.sendTo(get, frame, event)
}

// busyLocked returns the clients that have a request open.
func (p *plain) busyLocked() (list []*client) {
	seen := map[*client]bool{}
	for _, c := range p.calls {
		if !seen[c.client] && p.members[c.client] != nil {
			seen[c.client] = true
			list = append(list, c.client)
		}
	}
	return list
}

// homeless notes that a message goes nowhere.
func (p *plain) homeless(event uint64) {
	p.line.lane.note("message " + strconv.FormatUint(event, 10) + " goes no further: nothing says which client it is for")
}

// talking returns the calls of modern clients that a message may belong to which does not say so: of a client that is one, only the last.
func (p *plain) talking(m *jsonrpc.Message) (open []*call) {
	level, isLog := levelOf(m)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if !c.modern || c.again != nil || isLog && (c.hears == mcp.LevelNone || level < c.hears) {
			continue
		}
		switch {
		case len(open) == 0 || open[0].client != c.client || c.client.many:
			open = append(open, c)
		case c.number > open[0].number:
			open[0] = c
		}
	}
	return open
}

// hearsOf returns the level from which a modern request wants log messages.
func hearsOf(m *jsonrpc.Message) mcp.LoggingLevel {
	meta, _ := m.Param("_meta")
	level, _ := mcp.ParseLoggingLevel(text(locate(meta, mcp.MetaLogLevel).of(meta)))
	return level
}

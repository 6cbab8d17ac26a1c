package bridge

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// newSharedTranslated returns what modern clients share that are told alike before a legacy server: one translator, to which each of their requests is on a stream of its own,
// so that their ids may be the same. l is the line, nil for a new one.
func (b *Bridge) newSharedTranslated(s *commons, l *line) *translated {
	o := b.crowd()
	p := prepareTranslated(b, translate.NewModernToLegacy(o))
	p.commons, p.ids, p.pings = s, o.IDs, map[int64]chan error{}
	p.on(l)
	return p
}

// crowd are the options of a translator that many clients use, who are strangers to each other.
func (b *Bridge) crowd() *translate.Options {
	return &translate.Options{
		Apart: true, IDs: new(atomic.Int64),
		Limits: translate.Limits{Requests: b.opts.MaxCalls, Listens: b.opts.MaxSessions, Held: max(b.opts.MaxSessions, 256), Tasks: max(b.opts.MaxSessions, 256)},
	}
}

// admit implements sharer.
func (p *translated) admit(cl *client, _ Era) party {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[cl] = struct{}{}
	return p
}

// end implements sharer.
func (p *translated) end() {
	p.finish()
	p.line.close()
}

// isUp implements sharer.
func (p *translated) isUp() bool { return p.line.isUp() }

// alive implements sharer. The translator does not hear of it.
func (p *translated) alive(ctx context.Context) error {
	n, answer := p.ids.Add(1), make(chan error, 1)
	p.mu.Lock()
	p.pings[n] = answer
	p.mu.Unlock()
	defer p.pinged(n, nil)
	id := jsonrpc.IntID(n)
	p.line.sendFirst(item{frame: jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil), id: id, quiet: true})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pinged ends a ping, and reports whether it was one.
func (p *translated) pinged(n int64, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, ok := p.pings[n]
	if ok {
		delete(p.pings, n)
		answer <- err // it has room
	}
	return ok
}

// forsake gives up what a client has under way that leaves the others.
func (p *translated) forsake(cl *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.members, cl)
	for n, c := range maps.Clone(p.streams) {
		if c.client == cl && !p.over {
			p.actLocked(cl.lane, 0, p.t.NearGone(time.Now(), n))
		}
	}
	maps.DeleteFunc(p.streams, func(_ uint64, c *call) bool { return c.client == cl })
}

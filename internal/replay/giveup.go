package replay

import (
	"context"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// hungUp notes that the client has ended an exchange. In the modern era that cancels the requests which it brought
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#cancellation). Subscriptions are left alone: what came by them has yet to be waited for.
func (g *builder) hungUp(e *capture.Event, x *exchange) {
	if x == nil || x.status >= 400 || !g.rec.Modern {
		return
	}
	for _, c := range x.calls {
		if c.answer != nil || c.seen.standing || c.index >= len(g.rec.calls) || g.rec.calls[c.index] != c { // captures may say that it is of another session
			continue
		}
		g.tracker.remove(&c.seen)
		g.rec.frames = append(g.rec.frames, &frame{n: e.N, t: e.T, since: g.last, after: slices.Clip(g.after), hungUp: c, told: len(c.seen.kinds)})
		g.last = e.T
	}
}

// toldOf returns how many notifications have come for the request that a cancellation is about.
func (g *builder) toldOf(m *jsonrpc.Message) int {
	id, _ := m.Param("requestId")
	for _, c := range g.calls {
		if id != nil && c.id == idKey(jsonrpc.ID(id)) {
			return len(c.seen.kinds)
		}
	}
	return 0
}

// awaitSome is await for the end of a request that the client gave up: who recorded it may have seen that when the server had already, and answered something because of it. So nobody waits
// for long.
func (p *player) awaitSome(ctx context.Context, calls []*call) error {
	answered := func() bool {
		return !slices.ContainsFunc(calls, func(c *call) bool { return p.calls[c.index].state == sent })
	}
	_, err := p.until(ctx, time.Now().Add(p.opts.Settle), answered)
	return err
}

// given returns the request that a frame gives up; nil if there is none, or it is not under way.
func (p *player) given(f *frame) *live {
	if f.hungUp != nil { // which means nothing if the session turned out to be a legacy one
		if l := &p.calls[f.hungUp.index]; p.rec.Modern && l.state == sent {
			return l
		}
		return nil
	}
	if len(f.elements) != 1 || string(f.elements[0].m.Method) != mcp.NotificationCancelled {
		return nil
	}
	id, _ := f.elements[0].m.Param("requestId")
	for _, l := range p.open {
		if id != nil && idKey(l.id) == idKey(jsonrpc.ID(id)) {
			return l
		}
	}
	return nil
}

// giveUp plays a frame that cancels a request, when as much has been told of that as when the client did it, which may have been why: modern clients end its HTTP request,
// others send a notification. It reports whether there is nothing left to send.
func (p *player) giveUp(ctx context.Context, f *frame, l *live) (bool, error) {
	told := func() bool { return l.state != sent || len(l.seen.kinds) >= f.told }
	if _, err := p.until(ctx, time.Now().Add(p.opts.Settle), told); err != nil || l.state != sent {
		return true, err
	}
	if p.rec.Modern && p.o.Transport == resend.HTTP {
		p.conn.HangUp(l.seen.exchange)
		_, err := p.until(ctx, time.Now().Add(p.opts.Timeout), func() bool { return l.state != sent })
		return true, err
	}
	if f.hungUp == nil {
		return false, nil
	}
	params := append([]byte(`{"requestId":`), l.id...)
	if _, err := p.deliver(ctx, jsonrpc.AppendNotification(nil, mcp.NotificationCancelled, append(params, '}'))); err != nil {
		return true, err
	}
	// There should be no answer, and what comes next may have the same id, as that of another client over HTTP.
	_, err := p.until(ctx, time.Now().Add(p.opts.Settle), func() bool { return l.state != sent })
	if err == nil && l.state == sent {
		p.close(l, &Result{Status: Open, OK: true})
	}
	return true, err
}

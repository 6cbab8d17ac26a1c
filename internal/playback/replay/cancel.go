package replay

import (
	"context"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/playback/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// exchangeAborted notes that the client has ended an exchange. In the modern era that cancels the requests which it brought
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#cancellation). Subscriptions are left alone: what came by them has yet to be waited for.
func (b *builder) exchangeAborted(e *capture.Event, x *httpExchange) {
	if x == nil || x.status >= 400 || !b.rec.Modern {
		return
	}
	for _, c := range x.calls {
		if c.response != nil || c.notifications.isSubscription || c.index >= len(b.rec.calls) || b.rec.calls[c.index] != c { // captures may say that it is of another session
			continue
		}
		b.tracker.remove(&c.notifications)
		b.rec.frames = append(b.rec.frames, &frame{n: e.N, t: e.T, since: b.last, after: slices.Clip(b.after), aborted: c, notified: len(c.notifications.kinds)})
		b.last = e.T
	}
}

// notificationCount returns how many notifications have come for the request that a cancellation is about.
func (b *builder) notificationCount(m *jsonrpc.Message) int {
	id, _ := m.Param("requestId")
	for _, c := range b.calls {
		if id != nil && c.id == idKey(jsonrpc.ID(id)) {
			return len(c.notifications.kinds)
		}
	}
	return 0
}

// awaitCanceled is await for the end of a request that the client gave up: who recorded it may have seen that when the server had already, and answered something because of it. So nobody waits
// for long.
func (p *player) awaitCanceled(ctx context.Context, calls []*call) error {
	answered := func() bool {
		return !slices.ContainsFunc(calls, func(c *call) bool { return p.calls[c.index].state == sent })
	}
	_, err := p.waitUntil(ctx, time.Now().Add(p.opts.IdleTimeout), answered)
	return err
}

// canceledCall returns the request that a frame gives up; nil if there is none, or it is not under way.
func (p *player) canceledCall(f *frame) *liveCall {
	if f.aborted != nil { // which means nothing if the session turned out to be a legacy one
		if l := &p.calls[f.aborted.index]; p.rec.Modern && l.state == sent {
			return l
		}
		return nil
	}
	if len(f.elements) != 1 || string(f.elements[0].m.Method) != mcp.NotificationCancelled {
		return nil
	}
	id, _ := f.elements[0].m.Param("requestId")
	for _, l := range p.pending {
		if id != nil && idKey(l.id) == idKey(jsonrpc.ID(id)) {
			return l
		}
	}
	return nil
}

// playCancellation plays a frame that cancels a request, when as much has been told of that as when the client did it, which may have been why: modern clients end its HTTP request,
// others send a notification. It reports whether there is nothing left to send.
func (p *player) playCancellation(ctx context.Context, f *frame, l *liveCall) (bool, error) {
	told := func() bool { return l.state != sent || len(l.notifications.kinds) >= f.notified }
	if _, err := p.waitUntil(ctx, time.Now().Add(p.opts.IdleTimeout), told); err != nil || l.state != sent {
		return true, err
	}
	if p.rec.Modern && p.origin.Transport == resend.HTTP {
		p.conn.Abort(l.notifications.exchange)
		_, err := p.waitUntil(ctx, time.Now().Add(p.opts.Timeout), func() bool { return l.state != sent })
		return true, err
	}
	if f.aborted == nil {
		return false, nil
	}
	params := append([]byte(`{"requestId":`), l.id...)
	if _, err := p.deliver(ctx, jsonrpc.AppendNotification(nil, mcp.NotificationCancelled, append(params, '}'))); err != nil {
		return true, err
	}
	// There should be no answer, and what comes next may have the same id, as that of another client over HTTP.
	_, err := p.waitUntil(ctx, time.Now().Add(p.opts.IdleTimeout), func() bool { return l.state != sent })
	if err == nil && l.state == sent {
		p.finishCall(l, &Result{Status: Open, OK: true})
	}
	return true, err
}

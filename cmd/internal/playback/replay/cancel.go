package replay

import (
	"context"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// exchangeAborted notes that the client ended an HTTP exchange. In the modern era that cancels its
// requests
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#cancellation).
// Subscriptions are an exception: their messages are still to be awaited.
func (b *builder) exchangeAborted(e *capture.Event, x *httpExchange) {
	if x == nil || x.status >= 400 || !b.rec.Modern {
		return
	}
	for _, c := range x.calls {
		// A capture may assign the call to another session.
		if c.response != nil || c.notifications.isSubscription || c.index >= len(b.rec.calls) || b.rec.calls[c.index] != c {
			continue
		}
		b.tracker.remove(&c.notifications)
		b.rec.frames = append(b.rec.frames, &frame{n: e.N, t: e.T, since: b.last, after: slices.Clip(b.after), aborted: c, notified: len(c.notifications.kinds)})
		b.last = e.T
	}
}

// notificationCount returns the number of notifications for the request that a cancellation names.
func (b *builder) notificationCount(m *jsonrpc.Message) int {
	id, _ := m.Param("requestId")
	for _, c := range b.calls {
		if id != nil && c.id == jsonrpc.ID(id).Key() {
			return len(c.notifications.kinds)
		}
	}
	return 0
}

// awaitCanceled is await for requests that the client canceled. It waits only briefly: the recorder
// may have seen the cancellation after the server did, and the server's messages in between may
// depend on it.
func (p *player) awaitCanceled(ctx context.Context, calls []*call) error {
	answered := func() bool {
		return !slices.ContainsFunc(calls, func(c *call) bool { return p.calls[c.index].state == sent })
	}
	_, err := p.waitUntil(ctx, time.Now().Add(idleTimeout), answered)
	return err
}

// canceledCall returns the pending request that a frame cancels, or nil.
func (p *player) canceledCall(f *frame) *liveCall {
	if f.aborted != nil { // has no effect in a legacy session
		if l := &p.calls[f.aborted.index]; p.rec.Modern && l.state == sent {
			return l
		}
		return nil
	}
	if len(f.elements) != 1 {
		return nil
	}
	return p.pending.canceledBy(&f.elements[0].m)
}

// playCancellation plays a frame that cancels a request. It first waits for as many notifications
// as the client had received, as long as for a response, since they may have been the reason.
// Modern clients end the HTTP request; others send a notification. It reports whether nothing is
// left to send.
func (p *player) playCancellation(ctx context.Context, f *frame, l *liveCall) (bool, error) {
	ready := func() bool { return l.state != sent || len(l.notifications.kinds) >= f.notified }
	if _, err := p.waitUntil(ctx, time.Now().Add(p.opts.Timeout), ready); err != nil || l.state != sent {
		return true, err
	}
	if p.rec.Modern && p.origin.Transport == capture.TransportHTTP {
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
	// No response should come, and the next request may have the same id, from another HTTP client.
	_, err := p.waitUntil(ctx, time.Now().Add(idleTimeout), func() bool { return l.state != sent })
	if err == nil && l.state == sent {
		p.finishCall(l, &Result{Status: Open, OK: true})
	}
	return true, err
}

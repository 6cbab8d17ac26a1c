package replay

import (
	"bytes"
	"context"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A liveRequest is the state of a request of the server in the replay.
type liveRequest struct {
	recorded *serverRequest
	received bool
	// waiting reports that the response is to be sent in its recorded place.
	waiting bool
	id      jsonrpc.ID
	at      time.Time
}

// handleRequest handles a request of the server.
func (p *player) handleRequest(ctx context.Context, el *element, x arrival) error {
	m := &el.m
	if p.origin.Modern && p.origin.Transport != capture.TransportStdio { // no response is possible
		p.results.summary.Stray++
		return nil
	}
	if string(m.Method) == mcp.MethodPing {
		return p.decline(ctx, m)
	}
	a := p.matchRequest(m)
	if a == nil {
		r := &Result{Method: string(m.Method), Asked: true, Status: Different, Why: "the server did not send this request when recorded: declined", LiveN: x.N}
		p.results.report(r)
		return p.decline(ctx, m)
	}
	a.received, a.id, a.at = true, m.ID.Clone(), x.at
	r := &Result{Status: Same, OK: true, LiveN: x.N}
	was := side{raw: a.recorded.request.raw, at: a.recorded.at, redacted: a.recorded.request.redacted}
	r.Differences = p.comparer.compare(was, side{raw: el.raw, at: x.at})
	r.judge()
	if a.recorded.reply == nil { // no recorded response
		p.resolveRequest(a, r)
		return nil
	}
	if hidden := p.substitutes.hidden(a.recorded.reply.raw, a.recorded.reply.redacted); len(hidden) > 0 {
		r.Status, r.OK, r.Redacted, r.Why = Redacted, false, hidden, "the client's recorded response has redacted values: declined"
		p.resolveRequest(a, r)
		return p.decline(ctx, m)
	}
	a.waiting = true
	p.resolveRequest(a, r)
	return nil
}

func (p *player) decline(ctx context.Context, m *jsonrpc.Message) error {
	_, err := p.deliver(ctx, resend.Decline(m))
	return err
}

// matchRequest returns the recorded request for one of the server: one with the same method and
// params, or the first with the method.
func (p *player) matchRequest(m *jsonrpc.Message) (first *liveRequest) {
	for i := range p.serverRequests {
		a := &p.serverRequests[i]
		if a.received || a.recorded.method != string(m.Method) {
			continue
		}
		if bytes.Equal(a.recorded.request.m.Params, m.Params) {
			return a
		}
		if first == nil {
			first = a
		}
	}
	return first
}

func (p *player) resolveRequest(a *liveRequest, r *Result) {
	if p.results.serverRequests[a.recorded.index] != nil { // it was reported missing
		return
	}
	r.N, r.Method, r.Asked = a.recorded.n, a.recorded.method, true
	p.results.add(&p.results.serverRequests[a.recorded.index], r)
}

// respond sends the server the recorded response.
func (p *player) respond(ctx context.Context, a *liveRequest) error {
	a.waiting = false
	raw := p.substitutes.fill(a.recorded.reply.raw, a.recorded.reply.redacted)
	_, err := p.deliver(ctx, edit(raw, []string{"id"}, func([]byte) []byte { return a.id }))
	return err
}

// playResponse plays a response to the server: it waits until the server sends the request, or will
// not send it anymore.
func (p *player) playResponse(ctx context.Context, f *frame) error {
	i := f.reply.index
	a := &p.serverRequests[i]
	deadline := time.Now().Add(idleTimeout)
	waiting := p.pendingFor(f.reply)
	if len(waiting) > 0 {
		deadline = time.Now().Add(p.opts.Timeout)
	}
	_, err := p.waitUntil(ctx, deadline, func() bool {
		return a.received || len(waiting) > 0 && !slices.ContainsFunc(waiting, func(l *liveCall) bool { return l.state == sent })
	})
	if err != nil {
		return err
	}
	if !a.received {
		p.noteMissing(a)
	}
	if a.waiting {
		if err := p.waitRecorded(ctx, f); err != nil {
			return err
		}
	}
	if a.waiting { // still
		if err := p.respond(ctx, a); err != nil {
			return err
		}
	}
	return p.await(ctx, f.after)
}

// pendingFor returns the pending requests that may cause a request of the server.
func (p *player) pendingFor(a *serverRequest) (list []*liveCall) {
	for _, c := range a.pendingCalls {
		if l := &p.calls[c.index]; l.state == sent {
			list = append(list, l)
		}
	}
	return list
}

// noteMissing notes that a request of the server did not come.
func (p *player) noteMissing(a *liveRequest) {
	if p.results.serverRequests[a.recorded.index] != nil {
		return
	}
	played := func(c *call) bool { return p.rec.isSelected(c, p.opts) }
	if len(a.recorded.pendingCalls) > 0 && !slices.ContainsFunc(a.recorded.pendingCalls, played) {
		// Its cause was not selected.
		p.results.add(&p.results.serverRequests[a.recorded.index], &Result{})
		return
	}
	p.resolveRequest(a, &Result{Status: Different, Why: "the server did not send this request"})
}

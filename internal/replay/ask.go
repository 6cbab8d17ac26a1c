package replay

import (
	"bytes"
	"context"
	"slices"
	"time"

	"mcpwire/internal/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A liveAsk is what became of a request of the server's.
type liveAsk struct {
	ask   *ask
	asked bool
	held  bool // it waits for its answer, which has its place
	id    jsonrpc.ID
	at    time.Time
}

// asked takes a request of the server's.
func (p *player) asked(ctx context.Context, el *element, x arrival) error {
	m := &el.m
	if p.o.Modern && p.o.Transport != resend.Stdio { // there is no way to answer
		p.sum.Stray++
		return nil
	}
	if string(m.Method) == mcp.MethodPing {
		_, err := p.deliver(ctx, resend.Decline(m))
		return err
	}
	a := p.match(m)
	if a == nil {
		r := &Result{Method: string(m.Method), Asked: true, Status: Different, Why: "the server did not ask this when it was recorded: declined", LiveN: x.N}
		p.tell(r)
		_, err := p.deliver(ctx, resend.Decline(m))
		return err
	}
	a.asked, a.id, a.at = true, m.ID.Clone(), x.at
	r := &Result{Status: Same, OK: true, LiveN: x.N}
	was := side{raw: a.ask.raw.raw, at: a.ask.at, hidden: a.ask.raw.hidden}
	r.Differences = p.cmp.compare(was, side{raw: el.raw, at: x.at})
	if slices.ContainsFunc(r.Differences, func(d Difference) bool { return !d.Note }) {
		r.Status, r.OK = Different, false
	}
	if a.ask.reply == nil { // the client did not answer, so we do not
		p.resolveAsk(a, r)
		return nil
	}
	if hidden := p.hidden(a.ask.reply.raw, a.ask.reply.hidden); len(hidden) > 0 {
		r.Status, r.OK, r.Hidden, r.Why = Hidden, false, hidden, "something in the client's answer was hidden: declined"
		p.resolveAsk(a, r)
		_, err := p.deliver(ctx, resend.Decline(m))
		return err
	}
	a.held = true
	p.resolveAsk(a, r)
	return nil
}

// match returns the recorded request that one of the server's is: of the same method, with the same parameters if there is such, else the first.
func (p *player) match(m *jsonrpc.Message) (first *liveAsk) {
	for i := range p.asks {
		a := &p.asks[i]
		if a.asked || a.ask.method != string(m.Method) {
			continue
		}
		if bytes.Equal(a.ask.raw.m.Params, m.Params) {
			return a
		}
		if first == nil {
			first = a
		}
	}
	return first
}

func (p *player) resolveAsk(a *liveAsk, r *Result) {
	if p.results[len(p.calls)+a.ask.index] != nil { // it was missed before
		return
	}
	r.N, r.Method, r.Asked = a.ask.n, a.ask.method, true
	p.put(len(p.calls)+a.ask.index, r)
}

// answer answers the server as the client has.
func (p *player) answer(ctx context.Context, a *liveAsk) error {
	a.held = false
	raw := edit(p.fill(a.ask.reply.raw, a.ask.reply.hidden), []string{"id"}, func([]byte) []byte { return a.id })
	_, err := p.deliver(ctx, p.tasksIn(raw))
	return err
}

// reply takes the step of answering the server: it waits until the server has asked, or will not any more.
func (p *player) reply(ctx context.Context, f *frame) error {
	i := f.reply.index
	a := &p.asks[i]
	deadline := time.Now().Add(p.opts.Settle)
	waiting := p.waiting(f.reply)
	if len(waiting) > 0 {
		deadline = time.Now().Add(p.opts.Timeout)
	}
	_, err := p.until(ctx, deadline, func() bool {
		return a.asked || len(waiting) > 0 && !slices.ContainsFunc(waiting, func(l *live) bool { return l.state == sent })
	})
	if err != nil {
		return err
	}
	if !a.asked {
		p.missed(a)
	}
	if a.held {
		if err := p.pace(ctx, f); err != nil {
			return err
		}
	}
	if a.held { // still
		if err := p.answer(ctx, a); err != nil {
			return err
		}
	}
	return p.await(ctx, f.after)
}

// waiting are the requests under way for one of which the server asks.
func (p *player) waiting(a *ask) (list []*live) {
	for _, c := range a.during {
		if l := &p.calls[c.index]; l.state == sent {
			list = append(list, l)
		}
	}
	return list
}

// missed notes that the server has not asked.
func (p *player) missed(a *liveAsk) {
	if p.results[len(p.calls)+a.ask.index] != nil {
		return
	}
	played := func(c *call) bool { return p.rec.plays(c, p.opts) }
	if len(a.ask.during) > 0 && !slices.ContainsFunc(a.ask.during, played) {
		p.put(len(p.calls)+a.ask.index, &Result{}) // there was nothing to ask for
		return
	}
	p.resolveAsk(a, &Result{Status: Different, Why: "the server did not ask this time"})
}

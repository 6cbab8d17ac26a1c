package replay

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"mcpwire/internal/resend"
)

// finish waits for what is still due when everything was sent.
func (p *player) finish(ctx context.Context) error {
	for _, l := range slices.Clone(p.open) {
		if l.call.answer == nil {
			continue
		}
		if err := p.awaitOne(ctx, l); err != nil {
			return err
		}
	}
	quiet := func() bool { return len(p.missingKinds()) == 0 && !p.isAsked() }
	_, err := p.until(ctx, time.Now().Add(p.opts.Settle), quiet)
	if _, ok := errors.AsType[*resend.EndedError](err); ok {
		return nil // there is nothing that it is still needed for
	}
	return err
}

// isAsked reports whether a request of the server's waits for its answer, or is to come still.
func (p *player) isAsked() bool {
	for i := range p.asks {
		if p.asks[i].held || p.results[len(p.calls)+i] == nil {
			return true
		}
	}
	return false
}

// missingKinds are the notifications that belong to no request and have not come this time.
func (p *player) missingKinds() (list []string) {
	for _, k := range p.rec.kinds {
		if !slices.Contains(p.kinds, k) {
			list = append(list, k)
		}
	}
	return list
}

// conclude tells of everything that was not told of. err is why it ended; nil if it came to its end.
func (p *player) conclude(err error) {
	for i := range p.calls {
		l := &p.calls[i]
		switch {
		case l.state == done && p.results[i] != nil:
		case l.state == sent && l.call.answer == nil:
			p.close(l, &Result{Status: Open, OK: true})
		case l.state == sent && err != nil:
			p.close(l, &Result{Status: Lost, Why: err.Error()})
		case l.state == sent: // it cannot be: everything with an answer was waited for
			p.close(l, &Result{Status: Lost})
		default:
			if p.rec.plays(l.call, p.opts) {
				p.sum.Unsent++
			}
			p.put(i, &Result{})
		}
	}
	for i := range p.asks {
		a := &p.asks[i]
		switch {
		case p.results[len(p.calls)+i] != nil:
		case err != nil:
			p.put(len(p.calls)+i, &Result{})
		default:
			p.missed(a)
		}
	}
	missing := p.missingKinds()
	if err != nil || len(missing) == 0 {
		return
	}
	r := &Result{Method: "notifications", Status: Same, OK: true, Differences: []Difference{{Op: "notifications", Old: strings.Join(missing, " "), Note: true}}}
	if p.opts.Strict {
		r.Status, r.OK, r.Differences[0].Note = Different, false, false
	}
	p.tell(r)
}

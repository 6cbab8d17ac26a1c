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
	for _, l := range slices.Clone(p.pending) {
		if l.call.response == nil {
			continue
		}
		if err := p.awaitOne(ctx, l); err != nil {
			return err
		}
	}
	quiet := func() bool { return len(p.missingMethods()) == 0 && !p.hasPendingRequest() }
	_, err := p.waitUntil(ctx, time.Now().Add(p.opts.IdleTimeout), quiet)
	if _, ok := errors.AsType[*resend.EndedError](err); ok {
		return nil // there is nothing that it is still needed for
	}
	return err
}

// hasPendingRequest reports whether a request of the server's waits for its answer, or is to come still.
func (p *player) hasPendingRequest() bool {
	for i := range p.serverRequests {
		if p.serverRequests[i].waiting || p.results[len(p.calls)+i] == nil {
			return true
		}
	}
	return false
}

// missingMethods are the notifications that belong to no request and have not come this time.
func (p *player) missingMethods() (list []string) {
	for _, k := range p.rec.unownedMethods {
		if !slices.Contains(p.unownedMethods, k) {
			list = append(list, k)
		}
	}
	return list
}

// reportRest tells of everything that was not told of. err is why it ended; nil if it came to its end.
func (p *player) reportRest(err error) {
	for i := range p.calls {
		l := &p.calls[i]
		switch {
		case l.state == done && p.results[i] != nil:
		case l.state == sent && l.call.response == nil:
			p.finishCall(l, &Result{Status: Open, OK: true})
		case l.state == sent && err != nil:
			p.finishCall(l, &Result{Status: Lost, Why: err.Error()})
		case l.state == sent: // it cannot be: everything with an answer was waited for
			p.finishCall(l, &Result{Status: Lost})
		default:
			if p.rec.isSelected(l.call, p.opts) {
				p.summary.Unsent++
			}
			p.addResult(i, &Result{})
		}
	}
	for i := range p.serverRequests {
		a := &p.serverRequests[i]
		switch {
		case p.results[len(p.calls)+i] != nil:
		case err != nil:
			p.addResult(len(p.calls)+i, &Result{})
		default:
			p.noteMissing(a)
		}
	}
	missing := p.missingMethods()
	if err != nil || len(missing) == 0 {
		return
	}
	r := &Result{Method: "notifications", Status: Same, OK: true, Differences: []Difference{{Op: "notifications", Old: strings.Join(missing, " "), Note: true}}}
	if p.opts.Strict {
		r.Status, r.OK, r.Differences[0].Note = Different, false, false
	}
	p.report(r)
}

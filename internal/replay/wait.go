package replay

import (
	"context"
	"slices"
	"time"
)

// waitUntil waits until done, or until the deadline, and reports whether it is done. What comes meanwhile is taken. The error says why the replay cannot go on.
func (p *player) waitUntil(ctx context.Context, deadline time.Time, done func() bool) (bool, error) {
	for {
		list, ended := p.inbox.take()
		for _, x := range list {
			if err := p.handleArrival(ctx, x); err != nil {
				return false, err
			}
		}
		switch {
		case p.fatal != nil:
			return false, p.fatal
		case done():
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case ended != nil:
			return false, ended
		case !time.Now().Before(deadline):
			return false, nil
		}
		next, err := p.runDue(ctx, deadline)
		if err != nil {
			return false, err
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-p.inbox.ready:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// runDue does what is due by now, and returns when something is next, at the latest at the deadline.
func (p *player) runDue(ctx context.Context, deadline time.Time) (time.Time, error) {
	now := time.Now()
	next := deadline
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for i := range p.serverRequests {
		a := &p.serverRequests[i]
		if !a.waiting {
			continue
		}
		if t := a.at.Add(p.replyDelay(a.recorded)); !now.Before(t) {
			if err := p.respond(ctx, a); err != nil {
				return next, err
			}
		} else {
			sooner(t)
		}
	}
	for _, l := range slices.Clone(p.pending) {
		if l.pollAt.IsZero() {
			continue
		}
		if !now.Before(l.pollAt) {
			if err := p.poll(ctx, l); err != nil {
				return next, err
			}
		} else {
			sooner(l.pollAt)
		}
	}
	return next, nil
}

// replyDelay is how long an answer to the server is held back.
func (p *player) replyDelay(a *serverRequest) time.Duration {
	if p.opts.Timing == Keep {
		return max(p.opts.ReplyDelay, a.replyT-a.t)
	}
	return p.opts.ReplyDelay
}

// await waits for the answers to requests, those that were sent.
func (p *player) await(ctx context.Context, calls []*call) error {
	for _, c := range calls {
		if err := p.awaitOne(ctx, &p.calls[c.index]); err != nil {
			return err
		}
	}
	return nil
}

// awaitOne waits for the answer to a request, for as long as there is progress.
func (p *player) awaitOne(ctx context.Context, l *liveCall) error {
	for l.state == sent {
		_, err := p.waitUntil(ctx, l.lastActivity.Add(p.opts.Timeout), func() bool { return l.state == done })
		if err != nil {
			return err
		}
		if l.state == sent && !time.Now().Before(l.lastActivity.Add(p.opts.Timeout)) {
			if err := p.markTimeout(l); err != nil {
				return err
			}
		}
	}
	return p.fatal
}

// waitRecorded waits as long as the client has.
func (p *player) waitRecorded(ctx context.Context, f *frame) error {
	if p.opts.Timing != Keep {
		return nil
	}
	_, err := p.waitUntil(ctx, time.Now().Add(f.t-f.since), func() bool { return false })
	return err
}

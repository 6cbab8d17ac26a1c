package replay

import (
	"context"
	"fmt"

	"mcpwire/capture"
	"mcpwire/internal/resend"
)

// Run plays a recording against a server, and records that with w, which stays the caller's to close. to says how the server is reached: its transport with the command or the URL;
// how the session begins is taken from the recording. opts may be nil.
//
// It returns when everything was sent and answered, or cannot be; the summary is of what there was until then, whatever the error. See the package comment for errors. Differences are
// in the summary and in what is reported.
func Run(ctx context.Context, rec *Recording, to *resend.Origin, w *capture.Writer, opts *Options) (*Summary, error) {
	all := opts.withDefaults()
	o := *to
	o.Modern, o.Revision, o.StandingStream, o.Params = rec.Modern, rec.Revision, rec.standingStream, rec.paramsOf()
	var how resend.Options
	if all.Resend != nil {
		how = *all.Resend
	}
	how.Timeout = all.Timeout
	if rec.Capture != "" {
		w.Record(&capture.Event{Kind: capture.KindNote, Session: 1, Data: fmt.Appendf(nil, "replayed: what the client has sent in session %d of capture %s", rec.Session, rec.Capture)})
	}
	opening, cancel := context.WithTimeoutCause(ctx, all.Timeout, fmt.Errorf("replay: %w: connecting took longer than %v", resend.ErrTimeout, all.Timeout))
	s, err := resend.Open(opening, &o, w, &how)
	cancel()
	if err != nil {
		return &Summary{Requests: rec.selectedCount(&all), Unsent: rec.selectedCount(&all)}, err
	}
	return play(ctx, rec, &o, s, &all)
}

// selectedCount counts the requests that are played.
func (r *Recording) selectedCount(opts *Options) (n int) {
	for _, c := range r.calls {
		if r.isSelected(c, opts) {
			n++
		}
	}
	return n
}

// play plays a recording over a connection, which it closes.
func play(ctx context.Context, rec *Recording, o *resend.Origin, c conn, opts *Options) (*Summary, error) {
	p := newPlayer(rec, o, c, opts)
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.inbox.fill(reading, c)
	}()
	err := p.run(ctx)
	p.reportRest(err)
	c.Close() // what comes meanwhile is recorded
	stop()
	<-done
	return &p.summary, err
}

func (p *player) run(ctx context.Context) error {
	if p.rec.Synthetic {
		if err := p.handshake(ctx); err != nil {
			return err
		}
	}
	for _, f := range p.rec.frames {
		var err error
		if f.reply != nil {
			err = p.playResponse(ctx, f)
		} else {
			err = p.playFrame(ctx, f)
		}
		if err != nil {
			return err
		}
	}
	return p.finish(ctx)
}

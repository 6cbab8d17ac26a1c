package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/base/defaults"
	"mcpwire/internal/text/printable"
)

// A Timing is the pace of a replay.
type Timing string

// The timings.
const (
	// Fast sends each message as soon as its dependencies are complete.
	Fast Timing = "fast"
	// Keep keeps the pauses of the client.
	Keep Timing = "keep"
)

// Defaults of the options.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultMaxBytes = 256 << 20
)

const (
	// idleTimeout limits the final wait for notifications without a request.
	idleTimeout = 300 * time.Millisecond
	// replyDelay is the time for which a response to the server is delayed, to keep its recorded
	// place, while nothing else happens.
	replyDelay = 500 * time.Millisecond
)

// ReadOptions are the options of [Read]. nil means defaults.
type ReadOptions struct {
	// Session selects the session with this number in the capture. nil selects all.
	Session *uint64
	// MaxBytes limits the stored bytes of messages, each of which counts 256 more. Zero means
	// [DefaultMaxBytes].
	MaxBytes int64
}

func (o *ReadOptions) withDefaults() ReadOptions {
	var opts ReadOptions
	if o != nil {
		opts = *o
	}
	defaults.IfNotPositive(&opts.MaxBytes, DefaultMaxBytes)
	return opts
}

// Options are the options of [Run]. nil means defaults.
type Options struct {
	// Resend has the credentials, environment and limits of the connection. nil means defaults.
	Resend *resend.Options
	// Timing is the pace. Empty means Fast.
	Timing Timing

	// Timeout limits the wait for the connection, and for a response or progress. Zero means 30 s.
	Timeout time.Duration

	// Select decides whether to play the request in an event. nil plays all. The handshake is
	// always played.
	Select func(captureID string, n uint64) bool
	// Ignore has the places that are not compared: JSON pointers into responses, such as
	// /result/content/*/text, see jsondiff.Options.Ignore.
	Ignore []string
	// Strict compares everything, including the number of notifications.
	Strict bool
	// Set has the JSON text of hidden values, by JSON pointer into the client's messages.
	Set map[string][]byte
	// Report is called with each result; those of requests come in recorded order. It must not keep
	// the result. nil means no call.
	Report func(*Result)
}

// withDefaults returns a copy with all defaults set.
func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	defaults.IfNotPositive(&opts.Timeout, DefaultTimeout)
	opts.Timing = cmp.Or(opts.Timing, Fast)
	opts.Resend = cmp.Or(opts.Resend, new(resend.Options))
	if opts.Select == nil {
		opts.Select = func(string, uint64) bool { return true }
	}
	if opts.Report == nil {
		opts.Report = func(*Result) {}
	}
	return opts
}

var (
	// ErrNoSession is wrapped by the error of [Read] for a capture without messages of a client.
	ErrNoSession = errors.New("no messages of a client")
	// ErrTooLarge is wrapped by the error of [Read] for a capture above [ReadOptions.MaxBytes].
	ErrTooLarge = errors.New("too large")
)

// An EraError reports that the server does not support the era of the recording
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning).
type EraError struct {
	// Modern reports that the recording is modern.
	Modern bool
	// Revision is that of the recording. It may be empty.
	Revision string
	// Err is the server's error.
	Err error
}

// Error returns a message with the printable text of the server's error.
func (e *EraError) Error() string {
	name, what := "legacy", "its handshake"
	if e.Modern {
		name, what = "modern", "requests without a handshake"
	}
	if e.Revision != "" {
		name += " (" + printable.Line(e.Revision) + ")"
	}
	return fmt.Sprintf("the recording is of another era than the server: it is %s, but the server rejects %s: %s", name, what, printable.Line(e.Err.Error()))
}

// Unwrap returns Err.
func (e *EraError) Unwrap() error { return e.Err }

// Run plays a recording against a server and records the replay with w, which the caller closes. to
// has the transport with the command or URL; the recording decides how the session begins. opts may
// be nil.
//
// It returns when everything was sent and answered, or an error ends the replay. The summary covers
// everything up to then, even with an error. See the package comment for errors. Differences are in
// the summary and in the reported results.
func Run(ctx context.Context, rec *Recording, to *resend.Origin, w *capture.Writer, opts *Options) (*Summary, error) {
	all := opts.withDefaults()
	o := *to
	o.Modern, o.Revision, o.StandingStream, o.Params = rec.Modern, rec.Revision, rec.standingStream, rec.paramsOf()
	how := *all.Resend
	how.Timeout = all.Timeout
	if rec.Capture != "" {
		w.Record(&capture.Event{Kind: capture.KindNote, Session: 1, Data: fmt.Appendf(nil, "replay of the client's messages in session %d of capture %s", rec.Session, rec.Capture)})
	}
	opening, cancel := context.WithTimeoutCause(ctx, all.Timeout, fmt.Errorf("replay: %w: connecting took longer than %v", resend.ErrTimeout, all.Timeout))
	s, err := resend.Open(opening, &o, w, &how)
	cancel()
	if err != nil {
		return &Summary{Requests: rec.selectedCount(&all), Unsent: rec.selectedCount(&all)}, err
	}
	return play(ctx, rec, &o, s, &all)
}

// selectedCount counts the selected requests.
func (r *Recording) selectedCount(opts *Options) (n int) {
	for _, c := range r.calls {
		if r.isSelected(c, opts) {
			n++
		}
	}
	return n
}

// play plays a recording over a connection, and closes it.
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
	c.Close() // late messages are still recorded
	stop()
	<-done
	return &p.results.summary, err
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

// A conn is a connection to the server: a [wireclient.Session].
type conn interface {
	Send(ctx context.Context, message []byte) (wireclient.Sent, error)
	Next(ctx context.Context) (*wireclient.Incoming, error)
	OpenStream(ctx context.Context)
	Abort(exchange uint64)
	Close()
}

// An arrival is an incoming item with its time.
type arrival struct {
	*wireclient.Incoming
	at time.Time
}

// An inbox takes incoming items at once, so that their times are right and sending never waits. The
// session limits their size, see [resend.Options.MaxCapture].
type inbox struct {
	mu       sync.Mutex
	arrivals []arrival
	// err is the reason why no more items come.
	err error
	// ready has a token if there are new items.
	ready chan struct{}
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

// fill takes items until an error.
func (b *inbox) fill(ctx context.Context, c conn) {
	for {
		in, err := c.Next(ctx)
		b.mu.Lock()
		if err != nil {
			b.err = err
		} else {
			b.arrivals = append(b.arrivals, arrival{in, time.Now()})
		}
		b.mu.Unlock()
		select {
		case b.ready <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// take returns the new items, and the reason why no more come.
func (b *inbox) take() ([]arrival, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.arrivals
	b.arrivals = nil
	return list, b.err
}

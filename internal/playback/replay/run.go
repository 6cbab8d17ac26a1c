package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/playback/resend"
	"mcpwire/internal/text/printable"
)

// A Timing says how fast a recording is played.
type Timing string

// The timings.
const (
	Fast Timing = "fast" // everything as soon as what it waited for is there
	Keep Timing = "keep" // with the pauses that the client made
)

// Limits that hold unless options say otherwise.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultIdleTimeout = 300 * time.Millisecond
	DefaultReplyDelay  = 500 * time.Millisecond
	DefaultMaxBytes    = 256 << 20
	DefaultMaxSteps    = 100_000
)

// ReadOptions are the options of [Read]. nil means defaults.
type ReadOptions struct {
	// Session takes only the session with this number in the capture; nil takes all.
	Session *uint64
	// MaxBytes is how much of messages is kept of a capture, and MaxSteps how many messages. 0 are the defaults.
	MaxBytes int64
	MaxSteps int
}

func (o *ReadOptions) withDefaults() ReadOptions {
	var opts ReadOptions
	if o != nil {
		opts = *o
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	if opts.MaxSteps <= 0 {
		opts.MaxSteps = DefaultMaxSteps
	}
	return opts
}

// Options are the options of [Run]. nil means defaults.
type Options struct {
	// Resend says how the server is reached: credentials, environment, limits.
	Resend *resend.Options
	Timing Timing // "" is Fast

	Timeout     time.Duration // for the connection, and for an answer or progress; 0 is 30 s
	IdleTimeout time.Duration // for notifications that belong to no request, in the end; 0 is 300 ms
	// ReplyDelay is how long the answer to a request of the server's is held back so that it comes in its recorded place, while nothing else happens; 0 is 500 ms.
	ReplyDelay time.Duration

	// Select says of the event with a request whether it is played; nil plays all. The handshake always is.
	Select func(captureID string, n uint64) bool
	// Ignore are places that are not compared: JSON pointers into answers, such as /result/content/*/text, see jsondiff.Options.Ignore.
	Ignore []string
	// Strict compares everything, the number of notifications too.
	Strict bool
	// Set is what stood in places that were hidden, by JSON pointer into messages of the client's: JSON text.
	Set map[string][]byte
	// Report is told each result, those of requests in the recorded order. It must not keep it. nil tells nobody.
	Report func(*Result)
}

func setDefault(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// withDefaults returns a copy that is complete.
func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	setDefault(&opts.Timeout, DefaultTimeout)
	setDefault(&opts.IdleTimeout, DefaultIdleTimeout)
	setDefault(&opts.ReplyDelay, DefaultReplyDelay)
	if opts.Timing == "" {
		opts.Timing = Fast
	}
	if opts.Select == nil {
		opts.Select = func(string, uint64) bool { return true }
	}
	if opts.Report == nil {
		opts.Report = func(*Result) {}
	}
	return opts
}

var (
	// ErrNoSession is wrapped by the error of [Read] for a capture in which no client says anything.
	ErrNoSession = errors.New("nothing that a client has sent")
	// ErrTooLarge is wrapped by the error of [Read] for what is above the limits of [ReadOptions].
	ErrTooLarge = errors.New("more than is taken")
)

// An EraError says that the server does not speak the era of the recording
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning).
type EraError struct {
	Modern   bool   // the recording's era
	Revision string // the recording's; may be empty
	Err      error  // how the server refuses it
}

// Error says so, with the server's words as far as they can be shown.
func (e *EraError) Error() string {
	name, what := "legacy", "its handshake"
	if e.Modern {
		name, what = "modern", "requests without a handshake"
	}
	if e.Revision != "" {
		name += " (" + printable.Line(e.Revision) + ")"
	}
	return fmt.Sprintf("the recording is of another era than the server: it is %s, and the server refuses %s: %s", name, what, printable.Line(e.Err.Error()))
}

// Unwrap returns Err.
func (e *EraError) Unwrap() error { return e.Err }

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

// A conn is a connection to the server: a [resend.Session].
type conn interface {
	Send(ctx context.Context, message []byte) (resend.Sent, error)
	Next(ctx context.Context) (*resend.Incoming, error)
	OpenStream(ctx context.Context)
	Abort(exchange uint64)
	Close()
}

// An arrival is something that has come.
type arrival struct {
	*resend.Incoming
	at time.Time
}

// An inbox takes what comes at once, so that its time is right and sending never waits for it. The session bounds how much that can be, see [resend.Options.MaxCapture].
type inbox struct {
	mu       sync.Mutex
	arrivals []arrival
	err      error         // why nothing more comes
	ready    chan struct{} // holds a token if there is something that was not taken
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

// fill takes what comes, until nothing more can.
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

// take returns what has come, and then why nothing more does.
func (b *inbox) take() ([]arrival, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.arrivals
	b.arrivals = nil
	return list, b.err
}

// A Status says what became of a request that is played.
type Status string

// The statuses.
const (
	Same      Status = "same"      // the answer is the recorded one, as far as it is compared
	Different Status = "different" // it is not
	Open      Status = "open"      // the recording has no answer to compare with
	Skipped   Status = "skipped"   // it was not sent, since there was nothing to send it for: see Result.Why
	Redacted  Status = "hidden"    // it was not sent, since something in it was hidden: see Result.Why
	Timeout   Status = "timeout"   // no answer came in time
	Lost      Status = "lost"      // no answer came, for another reason: see Result.Why
)

// A Result is what became of a request of the recording, or of something else that was compared. Texts are as the peers wrote them.
type Result struct {
	N      uint64 `json:"n"` // of the event in the recording; 0 for what is not in it
	Method string `json:"method"`
	Target string `json:"target,omitempty"` // the tool, prompt, URI or task
	// Asked tells that it is a request of the server's.
	Asked  bool   `json:"asked,omitempty"`
	OK     bool   `json:"ok"` // there is nothing that makes a replay fail
	Status Status `json:"status"`
	Why    string `json:"why,omitempty"`
	// Differences are the first ones, notes included; the last may say that there are more.
	Differences []Difference `json:"differences"`
	// Redacted are the places that were hidden, as JSON pointers into the message.
	Redacted []string `json:"hidden,omitempty"`
	Recorded *float64 `json:"recordedMs,omitempty"` // the latency, in milliseconds; nil if there was no answer
	Live     *float64 `json:"liveMs,omitempty"`
	LiveN    uint64   `json:"liveN,omitempty"` // of the event with the answer in the new capture
}

// A Difference is something that is not as it was recorded.
type Difference struct {
	Op      string `json:"op"`      // of package jsondiff: add, remove, replace, more; or "notifications", "answer"
	Pointer string `json:"pointer"` // into the live message, a JSON pointer; that of what was removed, into the recorded one
	// Name is that of the tool or prompt, or the URI of the resource or template, in whose
	// definition it is; "" elsewhere.
	Name string `json:"name,omitempty"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
	// Note tells that it is worth to be known, but no failure.
	Note bool `json:"note,omitempty"`
}

// A Summary counts results by what they were.
type Summary struct {
	Requests  int `json:"requests"` // that the recording has, and that were chosen
	Same      int `json:"same"`
	Different int `json:"different"` // those of the server's included
	Open      int `json:"open"`
	Skipped   int `json:"skipped"`
	Redacted  int `json:"hidden"`
	Timeout   int `json:"timeout"`
	Lost      int `json:"lost"`
	Unsent    int `json:"unsent"` // because it ended before
	Notes     int `json:"notes"`
	Stray     int `json:"stray"` // what came from the server and was no message, or answered nothing
}

// Add adds the counts of another replay.
func (s *Summary) Add(o *Summary) {
	s.Requests += o.Requests
	s.Same += o.Same
	s.Different += o.Different
	s.Open += o.Open
	s.Skipped += o.Skipped
	s.Redacted += o.Redacted
	s.Timeout += o.Timeout
	s.Lost += o.Lost
	s.Unsent += o.Unsent
	s.Notes += o.Notes
	s.Stray += o.Stray
}

// Completed reports whether everything was sent that there was something to send for, and answered.
func (s *Summary) Completed() bool { return s.Redacted+s.Timeout+s.Lost+s.Unsent == 0 }

// OK reports whether nothing was different.
func (s *Summary) OK() bool { return s.Completed() && s.Different == 0 }

// count counts a result.
func (s *Summary) count(r *Result) {
	switch r.Status {
	case Same:
		s.Same++
	case Different:
		s.Different++
	case Open:
		s.Open++
	case Skipped:
		s.Skipped++
	case Redacted:
		s.Redacted++
	case Timeout:
		s.Timeout++
	case Lost:
		s.Lost++
	}
	for _, d := range r.Differences {
		if d.Note {
			s.Notes++
		}
	}
}

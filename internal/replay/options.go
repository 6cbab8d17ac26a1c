package replay

import (
	"time"

	"mcpwire/internal/resend"
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

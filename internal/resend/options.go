package resend

import (
	"crypto/tls"
	"net/http"
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
)

// Limits that hold unless [Options] say otherwise.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultIdleTimeout = 300 * time.Millisecond
	DefaultMaxMessage  = jsonrpc.DefaultMaxFrame // bytes
	DefaultMaxCapture  = 256 << 20               // bytes
)

// Options are the options of [Run] and [Open]. nil means defaults.
type Options struct {
	// Dir is the folder for the capture; "" is the usual one, see captures.Dir. Tool is the name and the version of the program, for its head. Open does not look at either.
	Dir, Tool string

	// Command and URL take the place of the recorded ones, of which a secret may have been hidden.
	Command []string
	URL     string
	// Env are variables that the copy gets besides ours, as "NAME=value"; later ones win.
	Env []string
	// Headers are sent with each request, and replace ours of the same name: recorded credentials are hidden. They go to the origin of the URL alone.
	Headers http.Header
	// TLS configures TLS to the server; nil is crypto/tls's default. Transport takes the place of the connections that are made for the session; it must neither
	// follow redirects nor add credentials.
	TLS       *tls.Config
	Transport http.RoundTripper

	Timeout     time.Duration // for the handshake, and for the answer; 0 is 30 s
	IdleTimeout time.Duration // without a word of the server, after which nothing more is waited for where no answer is due; 0 is 300 ms
	// GracePeriod is how long a process has to end by itself when its input has ended; then come SIGTERM, and SIGKILL after a second. 0 is 1 s.
	GracePeriod time.Duration

	MaxMessage int   // bytes of a message, either way; 0 is 64 MiB
	MaxCapture int64 // bytes that are recorded, after which the session ends; 0 is 256 MiB

	// AllowRedacted sends what was hidden as it stands in the capture: placeholders, and 0 for numbers.
	AllowRedacted bool
	// Redact says what the new capture hides besides the usual.
	Redact *capture.Redaction
}

func setDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
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
	setDefault(&opts.GracePeriod, time.Second)
	setDefault(&opts.MaxMessage, DefaultMaxMessage)
	setDefault(&opts.MaxCapture, DefaultMaxCapture)
	if opts.Tool == "" {
		opts.Tool = "mcpwire"
	}
	return opts
}

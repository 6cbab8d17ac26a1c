package targets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"mcpwire/client"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A Dialer connects to a target. NewDialer makes one and reports errors of the command line before
// anything starts.
type Dialer struct {
	Env    *kit.Env
	Target Spec
	Flags  *Flags
	// HTTP is nil for a stdio server.
	HTTP  *HTTPSide
	Tail  *kit.TailWriter
	Trace *Trace
	Notes *kit.Notes
	// Ask asks the user. It is nil without a user to ask.
	Ask  AskFunc
	opts client.Options
	// Start starts the server in place of the target's command, in tests.
	Start wireclient.Starter

	// Took is the time to connect.
	Took time.Duration
	// DescribeTime is how long the server took to describe itself.
	DescribeTime time.Duration
	// Description is the server's description of itself, as received.
	Description json.RawMessage
}

// restartWait limits how long a command waits for a server on HTTP that refuses connections after
// it has responded.
const restartWait = 3 * time.Second

// NewDialer returns a dialer. It reads the files that the flags name and starts nothing.
func NewDialer(e *kit.Env, t Spec, f *Flags) (*Dialer, error) {
	d := &Dialer{Env: e, Target: t, Flags: f, Trace: newTrace(), Notes: kit.NewNotes(e)}
	if err := f.Merge(&d.Target); err != nil {
		return nil, err
	}
	var show io.Writer
	if f.Verbose {
		show = e.Stderr
		d.Notes.Show(mcp.LevelNone)
		d.Notes.Status = nil // the lines of -v tell more
	}
	d.Trace.Sent = d.waiting
	d.Tail = kit.NewTailWriter(show)
	revisions, err := f.Revisions()
	if err != nil {
		return nil, err
	}
	d.opts = client.Options{
		Info:      mcp.Implementation{Name: "mcpwire", Version: build.Version()},
		Revisions: revisions,
		Timeouts: client.Timeouts{
			Handshake: OrForever(f.ConnectTimeout),
			Probe:     probeTimeout(f.ConnectTimeout),
			Call:      OrForever(f.Timeout),
		},
		// The output must come from the server.
		Cache: client.CacheOptions{MaxBytes: -1},
		// An HTTP server may have forgotten the session, which is no failure.
		Reconnect: client.ReconnectPolicy{Disabled: t.IsStdio(), MaxFailures: 2, MaxWait: restartWait},
		Trace:     d.Trace.observe,
		Logger:    slog.New(kit.Warner{Notes: d.Notes}),
	}
	if f.Verbose {
		d.opts.Logger = verboseLogger(e)
	}
	if d.canAsk() {
		d.Ask = func(ctx context.Context, prompt string) (string, error) {
			d.Notes.Clear()
			return e.Prompter.Ask(ctx, prompt)
		}
	}
	if err := d.answers(); err != nil {
		return nil, err
	}
	if !d.Target.IsStdio() {
		if d.HTTP, err = newHTTPSide(e, &d.Target, f, d.Notes.Status, func(ctx context.Context, prompt string) (string, error) { return d.Ask(ctx, prompt) }); err != nil {
			return nil, err
		}
		// A login takes time, and an HTTP server that does not respond may be of either era.
		if d.HTTP.Interactive {
			d.opts.Timeouts.Handshake, d.opts.Timeouts.Probe = forever, forever
		}
	}
	return d, nil
}

// forever stands for no limit.
const forever = 365 * 24 * time.Hour

// OrForever returns d, or a time without end if d is zero.
func OrForever(d time.Duration) time.Duration {
	if d == 0 {
		return forever
	}
	return d
}

// HandshakeWait returns the timeout for a connection, including the start of a process and the
// handshake. If only --timeout is longer, it applies to the handshake too, whose response is one
// like others.
func (d *Dialer) HandshakeWait() time.Duration {
	wait := OrForever(d.Flags.ConnectTimeout)
	if !d.Flags.Given("connect-timeout") {
		wait = max(wait, OrForever(d.Flags.Timeout))
	}
	return wait
}

// probeTimeout returns how long to wait for the server's era, given the timeout of the whole
// connection. Programs that are installed at startup are slow.
func probeTimeout(whole time.Duration) time.Duration {
	const least = 5 * time.Second
	if whole == 0 {
		return least
	}
	return min(max(least, whole/3), whole)
}

// verboseLogger returns a logger that writes everything to standard error.
func verboseLogger(e *kit.Env) *slog.Logger {
	return slog.New(slog.NewTextHandler(safe.Writer{W: e.Stderr}, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: noTime}))
}

func noTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// transport returns the transport to the server.
func (d *Dialer) transport() client.Transport {
	if d.Target.IsStdio() {
		return d.Flags.Process(&d.Target, d.Tail)
	}
	opts := &streamable.TransportOptions{
		HTTPClient: &http.Client{Transport: d.HTTP},
		Header:     d.Target.Header,
		NoSSE:      d.Target.Transport == TransportHTTP,
		Logger:     d.opts.Logger,
	}
	return streamable.NewTransport(d.Target.URL, opts)
}

// Dial connects to the target. Each call makes an independent connection.
func (d *Dialer) Dial(ctx context.Context, tweaks ...func(*client.Options)) (*client.Client, error) {
	opts := d.opts
	for _, tweak := range tweaks {
		tweak(&opts)
	}
	if d.Flags.ConnectTimeout > 0 {
		late := &lateError{after: d.Flags.ConnectTimeout}
		limited, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := time.AfterFunc(d.Flags.ConnectTimeout, func() { cancel(late) })
		defer timer.Stop()
		if d.HTTP != nil {
			d.HTTP.clock.set(timer, d.Flags.ConnectTimeout)
			defer d.HTTP.clock.set(nil, 0)
		}
		ctx = limited
	}
	if d.Target.IsStdio() {
		d.Notes.Status.Step("starting %s", d.Target.Name)
	} else {
		d.Notes.Status.Step("connecting to %s", d.Target.Name)
	}
	start := time.Now()
	c, err := client.Dial(ctx, d.transport(), &opts)
	if err != nil {
		d.Notes.Clear()
	}
	d.Took = time.Since(start)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && isLate(cause) {
			err = cause
		}
		return nil, d.Failure(err)
	}
	d.Description, d.DescribeTime = d.Trace.Result(HandshakeMethod(c.Revision()))
	if d.Flags.Verbose {
		fmt.Fprintf(d.Env.Stderr, "mcpwire: connected to %s, revision %v (%s)\n", d.Target.Name, c.Revision(), EraName(c.Revision()))
	}
	return c, nil
}

// waiting shows the request that was just sent as the current step.
func (d *Dialer) waiting(method string, params []byte) {
	what := safe.Clip(method, 100)
	if name := jsonwire.Text(jsonwire.Lookup(params, "name")); name != "" {
		what += " " + safe.Clip(name, 100)
	}
	d.Notes.Status.Step("waiting for the response to %s", what)
}

// HandshakeMethod returns the method of the request that a server answers with its description.
func HandshakeMethod(r mcp.Revision) string {
	if r.Modern() {
		return mcp.MethodDiscover
	}
	return mcp.MethodInitialize
}

// EraName returns the name of a revision's era.
func EraName(r mcp.Revision) string {
	if r.Modern() {
		return "modern"
	}
	return "legacy"
}

// A lateError reports that connecting timed out.
type lateError struct{ after time.Duration }

func (e *lateError) Error() string { return fmt.Sprintf("no connection within %v", e.after) }

// Unwrap makes errors.Is(err, context.DeadlineExceeded) true.
func (e *lateError) Unwrap() error { return context.DeadlineExceeded }

func isLate(err error) bool {
	_, ok := errors.AsType[*lateError](err)
	return ok
}

// IsInterrupt reports whether err means that the user stopped waiting.
func IsInterrupt(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, jsonrpc.ErrClosed))
}

package cli

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
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A dialer connects to a target. newDialer makes one and reports errors of the command line before
// anything starts.
type dialer struct {
	e      *env
	target targetSpec
	flags  *targetFlags
	// http is nil for a stdio server.
	http  *httpSide
	tail  *tailWriter
	trace *wireTrace
	notes *notes
	// ask asks the user. It is nil without a user to ask.
	ask  askFunc
	opts client.Options
	// start starts the server in place of the target's command, in tests.
	start wireclient.Starter

	// took is the time to connect.
	took time.Duration
	// describeTime is how long the server took to describe itself.
	describeTime time.Duration
	// greeting is that description, as received.
	greeting json.RawMessage
}

// restartWait limits how long a command waits for a server on HTTP that refuses connections after
// it has responded.
const restartWait = 3 * time.Second

// newDialer returns a dialer. It reads the files that the flags name and starts nothing.
func newDialer(e *env, t targetSpec, f *targetFlags) (*dialer, error) {
	d := &dialer{e: e, target: t, flags: f, trace: newWireTrace(), notes: newNotes(e)}
	if err := f.merge(&d.target); err != nil {
		return nil, err
	}
	var show io.Writer
	if f.verbose {
		show = e.stderr
		d.notes.show(mcp.LevelNone)
		d.notes.status = nil // the lines of -v tell more
	}
	d.trace.sent = d.waiting
	d.tail = newTailWriter(show)
	revisions, err := f.revisions()
	if err != nil {
		return nil, err
	}
	d.opts = client.Options{
		Info:      mcp.Implementation{Name: "mcpwire", Version: build.Version},
		Revisions: revisions,
		Timeouts: client.Timeouts{
			Handshake: orForever(f.connectTimeout),
			Probe:     probeTimeout(f.connectTimeout),
			Call:      orForever(f.timeout),
		},
		// The output must come from the server.
		Cache: client.CacheOptions{MaxBytes: -1},
		// An HTTP server may have forgotten the session, which is no failure.
		Reconnect: client.ReconnectPolicy{Disabled: t.isStdio(), MaxFailures: 2, MaxWait: restartWait},
		Trace:     d.trace.observe,
		Logger:    slog.New(warner{d.notes}),
	}
	if f.verbose {
		d.opts.Logger = verboseLogger(e)
	}
	if d.canAsk() {
		d.ask = func(ctx context.Context, prompt string) (string, error) {
			d.notes.clear()
			return e.prompter.ask(ctx, prompt)
		}
	}
	if err := d.answers(); err != nil {
		return nil, err
	}
	if !d.target.isStdio() {
		if d.http, err = newHTTPSide(e, &d.target, f, d.notes.status, func(ctx context.Context, prompt string) (string, error) { return d.ask(ctx, prompt) }); err != nil {
			return nil, err
		}
		// A login takes time, and an HTTP server that does not respond may be of either era.
		if d.http.interactive {
			d.opts.Timeouts.Handshake, d.opts.Timeouts.Probe = forever, forever
		}
	}
	return d, nil
}

// forever stands for no limit.
const forever = 365 * 24 * time.Hour

func orForever(d time.Duration) time.Duration {
	if d == 0 {
		return forever
	}
	return d
}

// handshakeWait returns the timeout for a connection, including the start of a process and the
// handshake. If only --timeout is longer, it applies to the handshake too, whose response is one
// like others.
func (d *dialer) handshakeWait() time.Duration {
	wait := orForever(d.flags.connectTimeout)
	if !d.flags.given("connect-timeout") {
		wait = max(wait, orForever(d.flags.timeout))
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
func verboseLogger(e *env) *slog.Logger {
	return slog.New(slog.NewTextHandler(safe.Writer{W: e.stderr}, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: noTime}))
}

func noTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// transport returns the transport to the server.
func (d *dialer) transport() client.Transport {
	if d.target.isStdio() {
		return d.flags.process(&d.target, d.tail)
	}
	opts := &streamable.TransportOptions{
		HTTPClient: &http.Client{Transport: d.http},
		Header:     d.target.header,
		NoSSE:      d.target.transport == transportHTTP,
		Logger:     d.opts.Logger,
	}
	return streamable.NewTransport(d.target.url, opts)
}

// dial connects to the target. Each call makes an independent connection.
func (d *dialer) dial(ctx context.Context, tweaks ...func(*client.Options)) (*client.Client, error) {
	opts := d.opts
	for _, tweak := range tweaks {
		tweak(&opts)
	}
	if d.flags.connectTimeout > 0 {
		late := &lateError{after: d.flags.connectTimeout}
		limited, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := time.AfterFunc(d.flags.connectTimeout, func() { cancel(late) })
		defer timer.Stop()
		if d.http != nil {
			d.http.clock.set(timer, d.flags.connectTimeout)
			defer d.http.clock.set(nil, 0)
		}
		ctx = limited
	}
	if d.target.isStdio() {
		d.notes.status.step("starting %s", d.target.name)
	} else {
		d.notes.status.step("connecting to %s", d.target.name)
	}
	start := time.Now()
	c, err := client.Dial(ctx, d.transport(), &opts)
	if err != nil {
		d.notes.clear()
	}
	d.took = time.Since(start)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && isLate(cause) {
			err = cause
		}
		return nil, d.failure(err)
	}
	method := mcp.MethodInitialize
	if c.Revision().Modern() {
		method = mcp.MethodDiscover
	}
	d.greeting, d.describeTime = d.trace.result(method)
	if d.flags.verbose {
		fmt.Fprintf(d.e.stderr, "mcpwire: connected to %s, revision %v (%s)\n", d.target.name, c.Revision(), eraName(c.Revision()))
	}
	return c, nil
}

// waiting shows the request that was just sent as the current step.
func (d *dialer) waiting(method string, params []byte) {
	what := safe.Clip(method, 100)
	if name := jsonwire.Text(jsonwire.Lookup(params, "name")); name != "" {
		what += " " + safe.Clip(name, 100)
	}
	d.notes.status.step("waiting for the response to %s", what)
}

func eraName(r mcp.Revision) string {
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

// isInterrupt reports whether err means that the user stopped waiting.
func isInterrupt(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, jsonrpc.ErrClosed))
}

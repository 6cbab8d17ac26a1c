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
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A dialer connects to a target. Make one with newDialer, which complains of the command line before anything is started.
type dialer struct {
	e      *env
	target targetSpec
	flags  *targetFlags
	http   *httpSide // nil for a stdio server
	tail   *tailWriter
	trace  *wireTrace
	notes  *notes
	ask    askFunc // how to ask the user; nil if there is nobody
	opts   client.Options

	took     time.Duration   // to connect
	asked    time.Duration   // for what the server says of itself
	greeting json.RawMessage // that, as it came
}

// newDialer reads the files that the flags name, and starts nothing.
func newDialer(e *env, t targetSpec, f *targetFlags) (*dialer, error) {
	d := &dialer{e: e, target: t, flags: f, trace: newWireTrace(), notes: newNotes(e.stderr)}
	if err := f.merge(&d.target); err != nil {
		return nil, err
	}
	var show io.Writer
	if f.verbose {
		show = e.stderr
		d.notes.show(mcp.LevelNone)
	}
	d.tail = newTailWriter(show)
	revisions, err := f.revisions()
	if err != nil {
		return nil, err
	}
	d.opts = client.Options{
		Name: "mcpwire", Version: Version,
		Revisions:        revisions,
		HandshakeTimeout: orForever(f.connectTimeout),
		ProbeTimeout:     probeTimeout(f.connectTimeout),
		CallTimeout:      orForever(f.timeout),
		CacheBytes:       -1, // what is printed is to come from the server
		Reconnect:        client.ReconnectPolicy{Disabled: true},
		Trace:            d.trace.observe,
	}
	if f.verbose {
		d.opts.Logger = verboseLogger(e)
	}
	if d.canAsk() {
		d.ask = e.asker.ask
	}
	if err := d.answers(); err != nil {
		return nil, err
	}
	if !d.target.isStdio() {
		if d.http, err = newHTTPSide(e, &d.target, f, func(ctx context.Context, prompt string) (string, error) { return d.ask(ctx, prompt) }); err != nil {
			return nil, err
		}
		if d.http.interactive { // a login takes its time, and an HTTP server that does not answer is none of the other era
			d.opts.HandshakeTimeout, d.opts.ProbeTimeout = forever, forever
		}
	}
	return d, nil
}

// forever is longer than anybody waits.
const forever = 365 * 24 * time.Hour

func orForever(d time.Duration) time.Duration {
	if d == 0 {
		return forever
	}
	return d
}

// handshakeWait is how long a connection may take, with the start of a process and the handshake. A
// longer --timeout alone allows the handshake more time, too: its answer is one like others.
func (d *dialer) handshakeWait() time.Duration {
	wait := orForever(d.flags.connectTimeout)
	if !d.flags.given("connect-timeout") {
		wait = max(wait, orForever(d.flags.timeout))
	}
	return wait
}

// probeTimeout is how long a server may take to say whether it is modern, out of the time for the connection as a whole. Programs that are installed on
// the way take long to start.
func probeTimeout(whole time.Duration) time.Duration {
	const least = 5 * time.Second
	if whole == 0 {
		return least
	}
	return min(max(least, whole/3), whole)
}

// verboseLogger returns a logger that writes everything to standard error.
func verboseLogger(e *env) *slog.Logger {
	return slog.New(slog.NewTextHandler(safeWriter{e.stderr}, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: noTime}))
}

func noTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// transport is how the server is reached.
func (d *dialer) transport() client.Transport {
	if d.target.isStdio() {
		return d.flags.process(&d.target, d.tail)
	}
	opts := &streamable.DialOptions{
		HTTPClient: &http.Client{Transport: d.http},
		Header:     d.target.header,
		NoSSE:      d.target.transport == transportHTTP,
		Logger:     d.opts.Logger,
	}
	return streamable.Dial(d.target.url, opts)
}

// dial connects. It may be called several times, for connections that have nothing to do with each other.
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
	start := time.Now()
	c, err := client.Dial(ctx, d.transport(), &opts)
	d.took = time.Since(start)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && isLate(cause) {
			err = cause
		}
		return nil, d.failure(err)
	}
	method := mcp.MethodInitialize
	if c.Modern() {
		method = mcp.MethodDiscover
	}
	d.greeting, d.asked = d.trace.result(method)
	if d.flags.verbose {
		fmt.Fprintf(d.e.stderr, "mcpwire: connected to %s, revision %v (%s)\n", d.target.name, c.Revision(), eraName(c.Revision()))
	}
	return c, nil
}

func eraName(r mcp.Revision) string {
	if r.Modern() {
		return "modern"
	}
	return "legacy"
}

// A lateError says that there was no connection in time.
type lateError struct{ after time.Duration }

func (e *lateError) Error() string { return fmt.Sprintf("no connection within %v", e.after) }

// Unwrap makes errors.Is(err, context.DeadlineExceeded) true.
func (e *lateError) Unwrap() error { return context.DeadlineExceeded }

func isLate(err error) bool {
	_, ok := errors.AsType[*lateError](err)
	return ok
}

// isInterrupt reports whether err says that the user does not want to wait any longer.
func isInterrupt(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, jsonrpc.ErrClosed))
}

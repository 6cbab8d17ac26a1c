package resend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/base/defaults"
	"mcpwire/internal/text/printable"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Defaults of [Options].
const (
	DefaultTimeout     = 30 * time.Second
	DefaultIdleTimeout = 300 * time.Millisecond
	DefaultMaxMessage  = jsonrpc.DefaultMaxFrame // bytes
	DefaultMaxCapture  = 256 << 20               // bytes
)

// Options are the options of [Run] and [Open]. nil means defaults.
type Options struct {
	// Dir is the folder for the capture. Empty means the default, see captures.Dir. Tool is the
	// name and version of the program, for the head. Open uses only Tool's name, in the User-Agent.
	Dir, Tool string

	// Command and URL replace the recorded ones, parts of which may be hidden.
	Command []string
	URL     string
	// Env has additional variables of the process, as "NAME=value"; later ones win.
	Env []string
	// Headers are sent with each request and replace default ones, since recorded credentials are
	// hidden. They are sent only to the origin of the URL.
	Headers http.Header
	// Transport replaces the session's HTTP transport. It must neither follow redirects nor add
	// credentials.
	Transport http.RoundTripper

	// Timeout limits the handshake, and the wait for the response. Zero means 30 s.
	Timeout time.Duration
	// IdleTimeout is the time without a message of the server after which a message without an
	// response is complete. Zero means 300 ms.
	IdleTimeout time.Duration
	// GracePeriod is the time for a process to end after its input was closed. SIGTERM follows, and
	// SIGKILL a second later. Zero means 1 s.
	GracePeriod time.Duration

	// MaxMessage limits a message in either direction, in bytes. Zero means 64 MiB.
	MaxMessage int
	// MaxCapture limits the recorded bytes; the session ends beyond it. Zero means 256 MiB.
	MaxCapture int64

	// Redact adds to the default redaction of the new capture. nil adds nothing.
	Redact *capture.Redaction
}

// withDefaults returns a copy with all defaults set.
func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	defaults.IfNotPositive(&opts.Timeout, DefaultTimeout)
	defaults.IfNotPositive(&opts.IdleTimeout, DefaultIdleTimeout)
	defaults.IfNotPositive(&opts.GracePeriod, time.Second)
	defaults.IfNotPositive(&opts.MaxMessage, DefaultMaxMessage)
	defaults.IfNotPositive(&opts.MaxCapture, DefaultMaxCapture)
	opts.Tool = cmp.Or(opts.Tool, "mcpwire")
	return opts
}

var (
	// ErrNotFound is wrapped by the error of [Find] for an event that the capture or session does
	// not have.
	ErrNotFound = errors.New("the capture has no such event")
	// ErrNotMessage is wrapped by the error of [Find] for an event that is not a message of a
	// client.
	ErrNotMessage = errors.New("the event is not a message of the client")
	// ErrGateway is the error of [Run] for a message to a gateway, whose server is unknown.
	ErrGateway = errors.New("the message went to a gateway: send the one on its other side again, which went to a server")
	// ErrTruncated is wrapped by the error of [Find] for an incomplete message.
	ErrTruncated = errors.New("the capture has only the beginning of the message")
	// ErrNoServer is wrapped if neither the capture nor the options have a command or URL.
	ErrNoServer = errors.New("the capture does not say how to reach the server")
	// ErrTimeout is wrapped if [Options.Timeout] was exceeded.
	ErrTimeout = errors.New("no answer in time")
	// ErrNoAnswer is wrapped if the server ended the HTTP exchange of a request without a response.
	ErrNoAnswer = errors.New("the server ended the exchange without a response")
)

// A RedactedError reports that a required value was hidden in the recording.
type RedactedError struct {
	// What is "message", "handshake", "command" or "URL".
	What string
	// Pointers are JSON pointers into it, at least one. "" means all of it.
	Pointers []string
	// More counts places that the capture does not list.
	More int
}

// Error names the places.
func (e *RedactedError) Error() string {
	const most = 5
	var b strings.Builder
	fmt.Fprintf(&b, "the %s has a secret that was redacted when recorded", e.What)
	for i, p := range e.Pointers[:min(len(e.Pointers), most)] {
		if p == "" {
			continue
		}
		b.WriteString(map[bool]string{true: ", at ", false: ", "}[i == 0] + printable.Line(p))
	}
	if n := len(e.Pointers) - most + e.More; n > 0 {
		b.WriteString(" and " + strconv.Itoa(n) + " other places")
	}
	return b.String()
}

// A HandshakeError reports that the server refused the handshake.
type HandshakeError struct {
	// N is the number of the event with the response.
	N uint64
	// Err is the server's error.
	Err *jsonrpc.Error
}

// Error includes the unescaped text of the server.
func (e *HandshakeError) Error() string { return "initialize was rejected: " + e.Err.Error() }

// Unwrap returns the server's error.
func (e *HandshakeError) Unwrap() error { return e.Err }

// A Result is the result of sending a message again. The numbers are those of events in the new
// capture; zero means none.
type Result struct {
	CaptureID string
	// Path is the file of the capture.
	Path string
	// Session is the session of the message.
	Session uint64

	// N is the number of the message's event.
	N uint64
	// Response is the frame with the response, or the last response to a batch. nil means none.
	Response []byte
	// ResponseN is the number of its event.
	ResponseN uint64
	// Latency is the time from the message to Response.
	Latency time.Duration
	// Status is that of the HTTP response, which may have no message. Zero means stdio.
	Status int
	// Asked counts the declined requests of the server.
	Asked int
}

// Open starts or prepares to reach the server, and records the traffic with rec, which the caller
// closes after the session. The options must not change afterwards; nil means defaults. ctx only
// limits Open itself.
//
// The error is a [*RedactedError], wraps [ErrNoServer], or comes from starting or connecting.
func Open(ctx context.Context, o *Origin, rec *capture.Writer, opts *Options) (*wireclient.Session, error) {
	all := opts.withDefaults()
	command, address, err := o.server(&all)
	if err != nil {
		return nil, err
	}
	t := &wireclient.Target{
		Transport: o.Transport, Command: command, Dir: o.Dir, Env: all.Env, HeaderFraming: o.HeaderFraming, URL: address, Modern: o.Modern,
	}
	headers := &wireclient.HeaderMirror{Params: o.Params}
	if o.Modern { // notifications need not name it
		headers.Version = o.Revision
	}
	name, _, _ := strings.Cut(all.Tool, " ")
	return wireclient.Open(ctx, t, rec.Record, &wireclient.Options{
		Header: all.Headers, UserAgent: name, HeaderMirror: headers, RoundTripper: all.Transport,
		GracePeriod: all.GracePeriod, MaxMessage: all.MaxMessage, MaxCapture: all.MaxCapture,
	})
}

// withTimeout calls f with a context that ends after d with an error that names what.
func withTimeout(ctx context.Context, d time.Duration, what string, f func(context.Context) error) error {
	inner, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("resend: %w: %s took longer than %v", ErrTimeout, what, d))
	defer cancel()
	return f(inner)
}

// Run starts a new instance of the server, sends the message, after a handshake if it needs one,
// waits for the response, and ends the instance. It records all of it in a capture named after the
// server with " resent". It reads message until it returns. opts may be nil.
//
// Run ends when the response or its substitute has come; after an idle time if the message has no
// response; at a timeout; or when ctx ends, with an error that wraps its cause. The result is nil
// without a capture; otherwise it has everything known, even with an error. See the package
// comment for errors.
func Run(ctx context.Context, o *Origin, message []byte, opts *Options) (*Result, error) {
	all := opts.withDefaults()
	if _, _, err := o.server(&all); err != nil {
		return nil, err
	}
	if err := o.refuseMessage(message); err != nil {
		return nil, err
	}
	if len(message) > all.MaxMessage {
		return nil, fmt.Errorf("resend: a message of %d bytes: %w", len(message), wireclient.ErrTooLarge)
	}
	file, err := create(o, &all)
	if err != nil {
		return nil, err
	}
	r := &runner{o: o, opts: &all, res: &Result{CaptureID: file.ID(), Path: file.Name(), Session: 1}}
	err = r.run(ctx, file.Writer, message)
	if cerr := file.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("resend: the capture: %w", cerr)
	}
	return r.res, err
}

// create creates the capture.
func create(o *Origin, opts *Options) (*capture.File, error) {
	dir := opts.Dir
	if dir == "" {
		var err error
		if dir, err = captures.Dir(); err != nil {
			return nil, fmt.Errorf("resend: the folder for captures: %w", err)
		}
	}
	c := &capture.Options{Tool: opts.Tool, Transport: o.Transport, Name: cmp.Or(o.Name, "server") + captures.ResentSuffix, Redact: opts.Redact}
	if o.Transport != capture.TransportStdio {
		c.URL = cmp.Or(opts.URL, o.URL)
	}
	return captures.Create(dir, c.Name, c)
}

// A runner drives a session for one message.
type runner struct {
	o    *Origin
	opts *Options
	s    *wireclient.Session
	res  *Result
}

func (r *runner) run(ctx context.Context, rec *capture.Writer, message []byte) error {
	note := "sent again: event " + strconv.FormatUint(r.o.Event, 10) + " of capture " + r.o.Capture + ", possibly edited"
	if r.o.Capture != "" {
		rec.Record(&capture.Event{Kind: capture.KindNote, Session: 1, Data: []byte(note)})
	}
	err := withTimeout(ctx, r.opts.Timeout, "connecting", func(ctx context.Context) (err error) {
		r.s, err = Open(ctx, r.o, rec, r.opts)
		return err
	})
	if err != nil {
		return err
	}
	defer r.s.Close()
	if !r.o.Modern && !isSingle(message, mcp.MethodInitialize) && RevisionOf(message) == "" {
		err := withTimeout(ctx, r.opts.Timeout, "the handshake", func(ctx context.Context) (err error) {
			message, err = r.handshake(ctx, message)
			return err
		})
		if err != nil {
			return err
		}
	}
	return withTimeout(ctx, r.opts.Timeout, "the answer", func(ctx context.Context) error { return r.send(ctx, message) })
}

// handshake begins a legacy session and returns the message with an unused id. If the message
// itself ends the handshake, it is returned unchanged.
func (r *runner) handshake(ctx context.Context, message []byte) ([]byte, error) {
	initialize := r.o.Initialize
	if len(initialize) == 0 {
		initialize = SyntheticInitialize(r.o.Revision, r.opts.Tool, jsonrpc.StringID("mcpwire-resend"), false)
	}
	if placeholder().Match(initialize) {
		r.s.Note("the recorded initialize has redacted values, and is sent with placeholders")
	}
	list := wireclient.Messages(initialize)
	if len(list) != 1 || list[0].Kind != jsonrpc.KindRequest {
		return nil, errors.New("resend: the recorded initialize is not a request")
	}
	_, in, err := r.roundTrip(ctx, initialize)
	if err != nil {
		return nil, err
	}
	for _, m := range wireclient.Messages(in.Data) {
		if m.Kind == jsonrpc.KindError {
			return nil, &HandshakeError{N: in.N, Err: m.Clone().Err()}
		}
	}
	if isSingle(message, mcp.NotificationInitialized) {
		return message, nil
	}
	sent, err := r.s.Send(ctx, jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil))
	if err != nil {
		return nil, err
	}
	// Over HTTP, the next message might overtake this one otherwise.
	for over := sent.Exchange == 0; !over; {
		in, err := r.next(ctx)
		if err != nil {
			return nil, err
		}
		over = in.Ended && in.Exchange == sent.Exchange
	}
	if r.o.StandingStream {
		r.s.OpenStream(ctx)
	}
	return freshID(message, list[0].ID), nil
}

// send sends the message and waits for the responses.
func (r *runner) send(ctx context.Context, message []byte) error {
	if len(wireclient.PendingOf(message)) == 0 {
		return r.sendOneWay(ctx, message)
	}
	began := time.Now()
	sent, in, err := r.roundTrip(ctx, message)
	if r.res.N = sent.N; in != nil {
		r.res.Response, r.res.ResponseN, r.res.Latency, r.res.Status = in.Data, in.N, time.Since(began), in.Status
	}
	if e, ok := errors.AsType[*wireclient.StatusError](err); ok {
		r.res.Status = e.Status
	}
	return err
}

// roundTrip sends a message and returns the last of its responses.
func (r *runner) roundTrip(ctx context.Context, message []byte) (sent wireclient.Sent, last *wireclient.Incoming, err error) {
	waiting := wireclient.PendingOf(message)
	if sent, err = r.s.Send(ctx, message); err != nil {
		return sent, nil, err
	}
	for len(waiting) > 0 {
		in, err := r.next(ctx)
		if err != nil {
			return sent, last, err
		}
		if in.Ended {
			if in.Exchange != sent.Exchange {
				continue
			}
			if err := r.noAnswerError(in); err != nil {
				return sent, last, err
			}
			continue
		}
		lone := len(waiting) == 1 && in.Exchange == sent.Exchange
		if waiting.Resolve(wireclient.Messages(in.Data), lone) {
			last = in
		}
	}
	return sent, last, nil
}

// noAnswerError returns the error for an exchange that ended before the response, or nil if the
// response may still come.
func (r *runner) noAnswerError(in *wireclient.Incoming) error {
	if err := in.Failure(); err != nil || r.o.Transport == capture.TransportSSE {
		return err // nil if the response comes on the stream
	}
	return fmt.Errorf("resend: %w, with HTTP status %d", ErrNoAnswer, in.Status)
}

// sendOneWay sends a message without a response, and waits until the server is idle.
func (r *runner) sendOneWay(ctx context.Context, message []byte) error {
	sent, err := r.s.Send(ctx, message)
	if r.res.N = sent.N; err != nil {
		return err
	}
	over := sent.Exchange == 0 || isSingle(message, mcp.MethodSubscriptionsListen)
	for {
		quiet, cancel := ctx, context.CancelFunc(func() {})
		if over {
			quiet, cancel = context.WithTimeoutCause(ctx, r.opts.IdleTimeout, errIdle)
		}
		in, err := r.next(quiet)
		cancel()
		switch {
		case errors.Is(err, errIdle), over && errors.Is(err, ErrTimeout):
			return nil
		case err != nil:
			return err
		case in.Ended && in.Exchange == sent.Exchange:
			over = true
			r.res.Status = in.Status
			if err := in.Failure(); err != nil {
				return err
			}
		}
	}
}

var errIdle = errors.New("nothing more arrived")

// next waits for the next item, and answers requests of the server.
func (r *runner) next(ctx context.Context) (*wireclient.Incoming, error) {
	in, err := r.s.Next(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range wireclient.Messages(in.Data) {
		// Modern servers cannot be answered over HTTP.
		if m.Kind != jsonrpc.KindRequest || r.o.Modern && r.o.Transport != capture.TransportStdio {
			continue
		}
		r.res.Asked++
		if _, err := r.s.Send(ctx, Decline(&m)); err != nil {
			return nil, err
		}
	}
	return in, nil
}

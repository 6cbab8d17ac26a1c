package resend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/text/printable"
	"mcpwire/internal/trace/captures"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
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

var (
	// ErrNotFound is wrapped by the error of [Find] for an event that the capture does not have, or not in that session.
	ErrNotFound = errors.New("the capture has no such event")
	// ErrNotMessage is wrapped by the error of [Find] for an event that is nothing a client has sent.
	ErrNotMessage = errors.New("the event is no message of the client's")
	// ErrTruncated is wrapped by the error of [Find] for a message of which the capture has the beginning alone.
	ErrTruncated = errors.New("the capture has only the beginning of the message")
	// ErrNoServer is wrapped where the capture does not say how the server is started or reached, and the options do not either.
	ErrNoServer = errors.New("the capture does not say how the server is reached")
	// ErrTimeout is wrapped where something did not come within [Options.Timeout].
	ErrTimeout = errors.New("no answer in time")
	// ErrNoAnswer is wrapped where the server has ended the HTTP exchange of a request without answering it.
	ErrNoAnswer = errors.New("the server has ended the exchange without an answer")
	// ErrTooLarge is wrapped where the traffic exceeds [Options.MaxCapture] or [Options.MaxMessage].
	ErrTooLarge = errors.New("more than is taken")
	// ErrClosed is returned by calls on a [Session] that was closed.
	ErrClosed = errors.New("the session is closed")
)

// A RedactedError says that something was hidden when it was recorded, and is therefore not known.
type RedactedError struct {
	What     string   // "message", "command" or "URL"
	Pointers []string // JSON pointers into it; "" is all of it. There is at least one
	More     int      // places of which the capture does not say where they are
}

// Error names the places.
func (e *RedactedError) Error() string {
	const most = 5
	var b strings.Builder
	fmt.Fprintf(&b, "the %s has a secret that was hidden when it was recorded", e.What)
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

// A HandshakeError says that the copy has refused to begin a session.
type HandshakeError struct {
	N   uint64         // number of the event with the answer
	Err *jsonrpc.Error // the server's
}

// Error has the server's words, as a peer chose them.
func (e *HandshakeError) Error() string { return "initialize was refused: " + e.Err.Error() }

// Unwrap returns the server's error.
func (e *HandshakeError) Unwrap() error { return e.Err }

// A StatusError is a response of HTTP that has no answer in it, and a status that says why.
type StatusError struct {
	Status int
	N      uint64 // number of the event with the head of the response
}

// Error names the status.
func (e *StatusError) Error() string {
	return "the server answered with HTTP status " + strconv.Itoa(e.Status)
}

// An EndedError says that the connection to the server has ended.
type EndedError struct {
	Err error // why: often a *stdio.ExitError, with the end of what the server wrote to standard error, or io.EOF
}

// Error says why.
func (e *EndedError) Error() string { return "the server has ended the connection: " + e.Err.Error() }

// Unwrap returns Err.
func (e *EndedError) Unwrap() error { return e.Err }

// A Result is what became of a message that was sent again. The numbers are those of events in the new capture; 0 is none.
type Result struct {
	CaptureID string
	Path      string // of the capture's file
	Session   uint64 // that the message was sent in

	N         uint64        // of the message
	Response  []byte        // the frame that has the answer, or the last of the answers to a batch; nil if none is due, or came
	ResponseN uint64        // of it
	Latency   time.Duration // from the message to Response
	Status    int           // of the HTTP response that Response came by, or that had no answer in it; 0 over stdio
	Asked     int           // requests of the server that were declined
}

// Run starts a fresh copy of the server, sends it the message behind a handshake as far as one is due, waits for the answer, and ends the copy. All of it is recorded in a
// capture with the name of the server and " resent" behind it. The message is read until Run returns. opts may be nil.
//
// Run ends when the answer has come, or what takes its place; when nothing more comes, if none is due; after the times in the options; or when ctx ends, which is an error that
// wraps its cause. The result is nil as long as there is no capture; otherwise it is what is known, whatever the error. See the package comment for errors.
func Run(ctx context.Context, o *Origin, message []byte, opts *Options) (*Result, error) {
	all := opts.withDefaults()
	if _, _, err := o.server(&all); err != nil {
		return nil, err
	}
	if err := o.refuseMessage(message, &all); err != nil {
		return nil, err
	}
	if len(message) > all.MaxMessage {
		return nil, fmt.Errorf("resend: a message of %d bytes: %w", len(message), ErrTooLarge)
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

// create begins the capture.
func create(o *Origin, opts *Options) (*capture.File, error) {
	dir := opts.Dir
	if dir == "" {
		var err error
		if dir, err = captures.Dir(); err != nil {
			return nil, fmt.Errorf("resend: the folder for captures: %w", err)
		}
	}
	name := o.Name
	if name == "" {
		name = "server"
	}
	c := &capture.Options{Tool: opts.Tool, Transport: string(o.Transport), Name: name + " resent", Redact: opts.Redact}
	if o.Transport != Stdio {
		if c.URL = opts.URL; c.URL == "" {
			c.URL = o.URL
		}
	}
	return captures.Create(dir, c.Name, c)
}

// A runner drives a session for one message.
type runner struct {
	o    *Origin
	opts *Options
	s    *Session
	res  *Result
}

func (r *runner) run(ctx context.Context, rec *capture.Writer, message []byte) error {
	note := "sent again: what event " + strconv.FormatUint(r.o.Event, 10) + " of capture " + r.o.Capture + " has, or what was made of it"
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
	if !r.o.Modern && !isInitialize(message) && revisionOf(message) == "" {
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

// handshake begins a legacy session, and returns the message with an id that is free. A message that is the end of the handshake is left to be sent as such.
func (r *runner) handshake(ctx context.Context, message []byte) ([]byte, error) {
	initialize := r.o.Initialize
	if len(initialize) == 0 {
		initialize = SyntheticInitialize(r.o.Revision, r.opts.Tool, jsonrpc.StringID("mcpwire-resend"), false)
	}
	if placeholder.Match(initialize) {
		r.s.note("the recorded initialize has something that was hidden, and is sent with what stands in its place")
	}
	list := parse(initialize)
	if len(list) != 1 || list[0].Kind != jsonrpc.KindRequest {
		return nil, errors.New("resend: the recorded initialize is no request")
	}
	_, in, err := r.roundTrip(ctx, initialize)
	if err != nil {
		return nil, err
	}
	for _, m := range parse(in.Data) {
		if m.Kind == jsonrpc.KindError {
			return nil, &HandshakeError{N: in.N, Err: m.Clone().Err()}
		}
	}
	if isInitialized(message) {
		return message, nil
	}
	sent, err := r.s.Send(ctx, jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil))
	if err != nil {
		return nil, err
	}
	for over := sent.Exchange == 0; !over; { // over HTTP, what is sent next might be there before
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

// send sends the message and waits for what is due.
func (r *runner) send(ctx context.Context, message []byte) error {
	if len(pendingOf(message)) == 0 {
		return r.sendOneWay(ctx, message)
	}
	began := time.Now()
	sent, in, err := r.roundTrip(ctx, message)
	if r.res.N = sent.N; in != nil {
		r.res.Response, r.res.ResponseN, r.res.Latency, r.res.Status = in.Data, in.N, time.Since(began), in.Status
	}
	if e, ok := errors.AsType[*StatusError](err); ok {
		r.res.Status = e.Status
	}
	return err
}

// roundTrip sends a message and returns the last answer that is due.
func (r *runner) roundTrip(ctx context.Context, message []byte) (sent Sent, last *Incoming, err error) {
	waiting := pendingOf(message)
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
		if waiting.resolve(parse(in.Data), lone) {
			last = in
		}
	}
	return sent, last, nil
}

// noAnswerError says what it means that the exchange of a message has ended before the answer came.
func (r *runner) noAnswerError(in *Incoming) error {
	switch {
	case in.Err != nil:
		return &EndedError{in.Err}
	case in.Status/100 != 2:
		return &StatusError{Status: in.Status, N: in.N}
	case r.o.Transport == SSE: // the answer comes on the stream
		return nil
	}
	return fmt.Errorf("resend: %w, with HTTP status %d", ErrNoAnswer, in.Status)
}

// sendOneWay sends a message that is not answered, and waits until nothing more comes, or the time is over.
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
			if in.Err != nil {
				return &EndedError{in.Err}
			}
			if in.Status/100 != 2 {
				return &StatusError{Status: in.Status, N: in.N}
			}
		}
	}
}

var errIdle = errors.New("nothing more came")

// next waits for what comes next, and answers what the server asks.
func (r *runner) next(ctx context.Context) (*Incoming, error) {
	in, err := r.s.Next(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range parse(in.Data) {
		if m.Kind != jsonrpc.KindRequest || r.o.Modern && r.o.Transport != Stdio { // to which there is no way to answer
			continue
		}
		r.res.Asked++
		if _, err := r.s.Send(ctx, Decline(&m)); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// codeRejected is what a client answers for a user who does not want a model to be asked
// (https://modelcontextprotocol.io/specification/2025-11-25/client/sampling#error-handling).
const codeRejected jsonrpc.Code = -1

// Decline returns what a client answers to a request of the server when there is no user to ask: pings with an empty result, elicitations with decline, requests to ask
// a model with an error that says it was rejected, and everything else with -32601. The answer is the caller's.
func Decline(m *jsonrpc.Message) []byte {
	switch string(m.Method) {
	case mcp.MethodPing:
		return jsonrpc.AppendResult(nil, m.ID, []byte(`{}`))
	case mcp.MethodElicit:
		return jsonrpc.AppendResult(nil, m.ID, []byte(`{"action":"decline"}`))
	case mcp.MethodCreateMessage:
		return jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(codeRejected, "rejected: a recorded message was sent again, and nobody is there to approve"), false)
	}
	return jsonrpc.AppendError(nil, m.ID, jsonrpc.MethodNotFound(string(m.Method)), false)
}

package resend

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/captures"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

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

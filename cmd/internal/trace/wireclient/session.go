package wireclient

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
)

// A Target is a server to open a session with.
type Target struct {
	Transport capture.Transport
	// Command is the program and its arguments, for stdio.
	Command []string
	// Dir is the working directory. Empty means that of this process.
	Dir string
	// Env has additional variables of the process, as "NAME=value"; later ones win.
	Env []string
	// HeaderFraming frames messages with a Content-Length header instead of a line end.
	HeaderFraming bool
	// URL is the URL for messages or, for [capture.TransportSSE], of the stream.
	URL *url.URL
	// Modern reports that the session has no handshake. Its streams are not resumed.
	Modern bool
}

// Options are the options of [Open]. All limits must be positive.
type Options struct {
	// Header is sent with all HTTP requests and replaces default fields. A single empty value
	// removes a field. UserAgent is the User-Agent.
	Header    http.Header
	UserAgent string
	// HeaderMirror sets the headers that repeat messages. Nil sets none.
	HeaderMirror *HeaderMirror
	// RoundTripper replaces the session's HTTP transport. It must neither follow redirects nor add
	// credentials.
	RoundTripper http.RoundTripper

	// GracePeriod is the time for a process to end after its input was closed. SIGTERM follows, and
	// SIGKILL a second later.
	GracePeriod time.Duration
	// MaxMessage limits a message in either direction, in bytes.
	MaxMessage int
	// MaxCapture limits the recorded bytes; the session ends beyond it.
	MaxCapture int64
}

// A Session is a connection to a new instance of a server. It records the traffic in a possible
// order of cause and effect, sends given messages, and returns incoming ones. It answers nothing
// and makes no handshake. Use [Open] to create one; the caller must close it.
type Session struct {
	target Target
	opts   Options
	// recordAny records an event without a limit.
	recordAny func(*capture.Event) uint64
	// remaining counts the bytes that may still be recorded.
	remaining atomic.Int64
	conn      conn

	in chan *Incoming
	// closing is closed when Close begins; no one reads incoming items then.
	closing chan struct{}
	// ended is closed when no more items will come.
	ended   chan struct{}
	endOnce sync.Once
	// endErr is the reason, valid after ended is closed.
	endErr error

	mu        sync.Mutex
	closed    bool
	closeOnce sync.Once
	wg        sync.WaitGroup
}

// A conn carries messages. Only a Session calls its methods.
type conn interface {
	// open connects, as far as possible before the first message.
	open(ctx context.Context) error
	// send records a message and sends it.
	send(ctx context.Context, message []byte) (Sent, error)
	// close ends the connection and records its end.
	close()
}

// A Sent identifies a sent message in the capture.
type Sent struct {
	// N is the number of its event.
	N uint64
	// Exchange is the HTTP exchange. Zero means stdio.
	Exchange uint64
}

// An Incoming is an item from the server. The receiver owns it.
type Incoming struct {
	// N is the number of its event.
	N uint64
	// Exchange is its HTTP exchange. Zero means stdio.
	Exchange uint64
	// Data is a message, or other data in the place of one. It is nil if Ended is set.
	Data []byte
	// Status is that of its HTTP response. Zero means stdio or no response.
	Status int
	// Ended reports that the exchange of a sent message has ended. Err is the reason if it broke
	// off.
	Ended bool
	Err   error
}

// Failure returns an *[EndedError] or a *[StatusError] for an exchange that failed, or nil.
func (in *Incoming) Failure() error {
	switch {
	case in.Err != nil:
		return &EndedError{in.Err}
	case in.Status/100 != 2:
		return &StatusError{Status: in.Status, N: in.N}
	}
	return nil
}

// Open starts or prepares to reach the server. For [capture.TransportSSE] it opens the stream.
// record records an event and returns its number, or 0 if it did not; several goroutines call it
// until Close returns. The events belong to session 1. The target and options must not change
// afterwards. ctx only limits Open itself.
//
// The error comes from starting or connecting.
func Open(ctx context.Context, t *Target, record func(*capture.Event) uint64, opts *Options) (*Session, error) {
	s := &Session{
		target: *t, opts: *opts, recordAny: record,
		in: make(chan *Incoming), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	s.remaining.Store(s.opts.MaxCapture)
	if t.Transport == capture.TransportStdio {
		s.conn = &stdioConn{s: s}
	} else {
		s.conn = newHTTPConn(s)
	}
	if err := s.conn.open(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Send records a message and sends it. message excludes framing. Send waits while too many messages
// are under way, but not until the server receives the message; [Session.Next] reports a failed
// delivery. Only one goroutine at a time may call Send.
//
// The error wraps [ErrTooLarge], or is [ErrClosed], an [*EndedError], or the cause of ctx.
func (s *Session) Send(ctx context.Context, message []byte) (Sent, error) {
	if len(message) > s.opts.MaxMessage {
		return Sent{}, fmt.Errorf("a message of %d bytes: %w", len(message), ErrTooLarge)
	}
	select {
	case <-s.closing:
		return Sent{}, ErrClosed
	case <-s.ended:
		return Sent{}, s.endErr
	default:
	}
	return s.conn.send(ctx, bytes.Clone(message))
}

// Next waits for the next item from the server. The server blocks while no one calls Next. Only one
// goroutine at a time may call it.
//
// When nothing more can come, the error is an [*EndedError] or wraps [ErrTooLarge]. Otherwise it
// is [ErrClosed] or the cause of ctx.
func (s *Session) Next(ctx context.Context) (*Incoming, error) {
	select {
	case in := <-s.in:
		return in, nil
	case <-s.ended:
		return nil, s.endErr
	case <-s.closing:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// OpenStream opens the standing stream of a legacy session on HTTP, as clients do after the
// handshake; [Session.Next] returns its messages. It waits briefly for the server's response. For
// other transports it does nothing.
func (s *Session) OpenStream(ctx context.Context) {
	if hc, ok := s.conn.(*httpConn); ok && s.target.Transport == capture.TransportHTTP {
		hc.openStream(ctx)
	}
}

// Close ends the session. It closes the input of a process, and signals its process group if that
// is not sufficient; on HTTP it sends DELETE. It waits until everything is recorded, at most
// [Options.GracePeriod] plus a few seconds. It may be called more than once.
func (s *Session) Close() {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		close(s.closing)
		s.conn.close()
		s.wg.Wait()
	})
}

// Note records a remark.
func (s *Session) Note(text string) {
	s.record(&capture.Event{Kind: capture.KindNote, Session: 1, Data: []byte(text)})
}

// spawn runs f on a goroutine that Close, and also if not nil, wait for. It returns false once
// Close has begun.
func (s *Session) spawn(also *sync.WaitGroup, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if also == nil {
		also = new(sync.WaitGroup)
	}
	also.Add(1)
	s.wg.Go(func() {
		defer also.Done()
		f()
	})
	return true
}

// record records an event, up to the limit.
func (s *Session) record(e *capture.Event) uint64 {
	const overhead = 128 // bytes of a line
	switch e.Kind {
	case capture.KindExit, capture.KindEOF, capture.KindEnd, capture.KindStart:
		// The end is always recorded.
		return s.recordAny(e)
	}
	left := s.remaining.Add(-int64(len(e.Data)) - overhead)
	switch {
	case left >= 0:
		return s.recordAny(e)
	case e.Kind != capture.KindStderr:
		s.end(fmt.Errorf("%w: above the limit of %d bytes for a capture", ErrTooLarge, s.opts.MaxCapture))
	}
	return 0
}

// deliver passes an item to Next. Once the session has ended, it drops items.
func (s *Session) deliver(in *Incoming) {
	select {
	case s.in <- in:
	case <-s.ended:
	case <-s.closing:
	}
}

// end notes that no more items will come.
func (s *Session) end(err error) {
	s.endOnce.Do(func() {
		s.endErr = err
		close(s.ended)
	})
}

// A stdioConn is a connection to a process.
type stdioConn struct {
	s *Session
	// process is nil until it runs.
	process    *Process
	noteUnread sync.Once
}

// open implements conn.
func (sc *stdioConn) open(ctx context.Context) error {
	t, opts := &sc.s.target, &sc.s.opts
	cmd := NewCommand(t.Command, t.Dir, t.Env)
	p, err := StartProcess(ctx, Command(cmd), &ProcessOptions{
		Start: StartOf(cmd), Session: 1, Record: sc.s.record, MaxMessage: opts.MaxMessage, GracePeriod: opts.GracePeriod,
	})
	if err != nil {
		return err
	}
	sc.process = p
	sc.s.spawn(nil, sc.receive)
	return nil
}

// receive passes frames on until the session is closed.
func (sc *stdioConn) receive() {
	for {
		select {
		case f := <-sc.process.Frames():
			if f.Err != nil {
				sc.s.end(&EndedError{f.Err})
				return
			}
			if f.N > 0 {
				sc.s.deliver(&Incoming{N: f.N, Data: f.Text})
			}
		case <-sc.s.closing:
			return
		}
	}
}

// send implements conn. In line framing it removes line breaks between JSON tokens. Invalid JSON
// keeps them, since its sender intends that.
func (sc *stdioConn) send(ctx context.Context, message []byte) (Sent, error) {
	framing := capture.FramingLF
	if sc.s.target.HeaderFraming {
		framing = capture.FramingHeader
	} else if bytes.ContainsAny(message, "\r\n") && jsonwire.Valid(message, 0) == nil {
		message = bytes.Map(func(r rune) rune {
			if r == '\r' || r == '\n' {
				return -1
			}
			return r
		}, message)
	}
	n, err := sc.process.Send(ctx, message, framing, func(err error) {
		if err != nil {
			// Earlier output may still be on its way, so this is not the end.
			sc.noteUnread.Do(func() { sc.s.Note("the server did not read everything that was sent") })
		}
	})
	return Sent{N: n}, err
}

// close implements conn.
func (sc *stdioConn) close() {
	if sc.process != nil {
		sc.process.Close()
	}
}

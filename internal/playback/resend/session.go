package resend

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/trace/frames"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Session is a connection to a new instance of a server. It records the traffic in a possible
// order of cause and effect, sends given messages, and returns incoming ones. It answers nothing
// and makes no handshake. Use [Open] to create one; the caller must close it.
type Session struct {
	o    *Origin
	opts Options
	rec  *capture.Writer
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

// Open starts or prepares to reach the server, and records the traffic with rec, which the caller
// closes after the session. For [SSE] it opens the stream. The options must not change afterwards;
// nil means defaults. ctx only limits Open itself.
//
// The error is a [*RedactedError], wraps [ErrNoServer], or comes from starting or connecting.
func Open(ctx context.Context, o *Origin, rec *capture.Writer, opts *Options) (*Session, error) {
	s := &Session{
		o: o, opts: opts.withDefaults(), rec: rec,
		in: make(chan *Incoming), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	s.remaining.Store(s.opts.MaxCapture)
	command, address, err := o.server(&s.opts)
	if err != nil {
		return nil, err
	}
	if o.Transport == capture.TransportStdio {
		s.conn = &stdioConn{s: s, command: command}
	} else {
		s.conn = newWeb(s, address)
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
		return Sent{}, fmt.Errorf("resend: a message of %d bytes: %w", len(message), ErrTooLarge)
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
// When nothing can come anymore, the error is an [*EndedError] or wraps [ErrTooLarge]. Otherwise it
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
	if w, ok := s.conn.(*httpConn); ok && s.o.Transport == capture.TransportHTTP {
		w.openStream(ctx)
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
		return s.rec.Record(e)
	}
	if s.remaining.Add(-int64(len(e.Data))-overhead) < 0 {
		s.end(fmt.Errorf("resend: %w: above the limit of %d bytes for a capture", ErrTooLarge, s.opts.MaxCapture))
		return 0
	}
	return s.rec.Record(e)
}

// note records a remark.
func (s *Session) note(text string) {
	s.record(&capture.Event{Kind: capture.KindNote, Session: 1, Data: []byte(text)})
}

// deliver passes an item to Next, unless no one reads anymore.
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

// A stderrRecorder records standard error up to the limit, and drops the rest.
type stderrRecorder struct {
	s     *Session
	lines *frames.Lines
	// ready is closed when the start of the process is recorded.
	ready chan struct{}
}

// Write implements [io.Writer].
func (r *stderrRecorder) Write(p []byte) (int, error) {
	<-r.ready
	if r.s.remaining.Add(-int64(len(p))) >= 0 {
		return r.lines.Write(p)
	}
	return len(p), nil
}

var _ io.Writer = (*stderrRecorder)(nil)

// frameMessage returns a message with its framing. In line framing it removes line breaks between
// JSON tokens. Invalid JSON keeps them, since its sender intends that.
func frameMessage(message []byte, header bool) (frame []byte, e *capture.Event) {
	e = &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Session: 1}
	if header {
		e.Framing, e.Prefix, e.Data = capture.FramingHeader, "Content-Length: "+strconv.Itoa(len(message))+"\r\n\r\n", message
		return append([]byte(e.Prefix), message...), e
	}
	if bytes.ContainsAny(message, "\r\n") && jsonwire.Valid(message, 0) == nil {
		message = bytes.Map(func(r rune) rune {
			if r == '\r' || r == '\n' {
				return -1
			}
			return r
		}, message)
	}
	e.Framing, e.Data = capture.FramingLF, message
	return append(bytes.Clone(message), '\n'), e
}

// withTimeout calls f with a context that ends after d with an error that names what.
func withTimeout(ctx context.Context, d time.Duration, what string, f func(context.Context) error) error {
	inner, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("resend: %w: %s took longer than %v", ErrTimeout, what, d))
	defer cancel()
	return f(inner)
}

// parse returns the messages of a frame or batch, or nil if it is not JSON-RPC. They alias the
// frame.
func parse(frame []byte) []jsonrpc.Message {
	if jsonrpc.IsBatch(frame) {
		list, err := jsonrpc.ParseBatch(frame, 0)
		if err != nil {
			return nil
		}
		all := make([]jsonrpc.Message, len(list))
		for i := range list {
			all[i] = list[i].Message
		}
		return all
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, 0) != nil {
		return nil
	}
	return []jsonrpc.Message{m}
}

// A pendingIDs is the set of ids without an answer.
type pendingIDs map[string]bool

// pendingOf returns the ids that a message requests answers for, except for subscriptions, which
// last.
func pendingOf(message []byte) pendingIDs {
	d := pendingIDs{}
	for _, m := range parse(message) {
		if m.Kind == jsonrpc.KindRequest && string(m.Method) != mcp.MethodSubscriptionsListen {
			d[m.ID.Key()] = true
		}
	}
	return d
}

// resolve removes the ids that messages answer, and reports whether there was one. lone means that
// an error without an id answers the only pending request.
func (p pendingIDs) resolve(list []jsonrpc.Message, lone bool) bool {
	took := false
	for _, m := range list {
		if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
			continue
		}
		if k := m.ID.Key(); p[k] {
			delete(p, k)
			took = true
		} else if m.Kind == jsonrpc.KindError && (len(m.ID) == 0 || m.ID.IsNull()) && lone {
			clear(p)
			took = true
		}
	}
	return took
}

// isInitialize reports whether a message is an initialize request; isInitialized, whether it is the
// initialized notification.
func isInitialize(message []byte) bool  { return isSingle(message, mcp.MethodInitialize) }
func isInitialized(message []byte) bool { return isSingle(message, mcp.NotificationInitialized) }

func isSingle(message []byte, method string) bool {
	list := parse(message)
	return len(list) == 1 && string(list[0].Method) == method
}

// freshID returns the message with a new id if it uses the given one.
func freshID(message []byte, used jsonrpc.ID) []byte {
	list := parse(message)
	taken := map[string]bool{used.Key(): true}
	for _, m := range list {
		taken[m.ID.Key()] = true
	}
	for _, m := range list {
		if m.Kind != jsonrpc.KindRequest || !m.ID.Equal(used) {
			continue
		}
		fresh := jsonrpc.IntID(1)
		for n := int64(1); taken[fresh.Key()]; n++ {
			fresh = jsonrpc.IntID(n)
		}
		at := cap(message) - cap(m.ID) // the index of m.ID, which aliases message
		out := bytes.Clone(message[:at])
		return append(append(out, fresh...), message[at+len(m.ID):]...)
	}
	return message
}

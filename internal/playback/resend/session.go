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
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Session is a connection to a fresh copy of a server. It records everything in the order in which it may have been caused, sends what it is told to, and returns what comes; it
// answers nothing by itself, and makes no handshake. Make one with [Open], and close it in the end.
type Session struct {
	o         *Origin
	opts      Options
	rec       *capture.Writer
	remaining atomic.Int64 // bytes that are still recorded
	conn      conn

	in      chan *Incoming
	closing chan struct{} // closed when Close begins: nobody takes what comes any more
	ended   chan struct{} // closed when nothing will come any more
	endOnce sync.Once
	endErr  error // why, once ended is closed

	mu        sync.Mutex
	closed    bool
	closeOnce sync.Once
	wg        sync.WaitGroup
}

// A link carries messages. Its methods are called by a Session alone.
type conn interface {
	// open connects, as far as that is done in front of the first message.
	open(ctx context.Context) error
	// send records a message and sends it.
	send(ctx context.Context, message []byte) (Sent, error)
	// close ends the connection, and records how.
	close()
}

// A Sent says where a message that was sent is recorded.
type Sent struct {
	N        uint64 // number of its event
	Exchange uint64 // the HTTP exchange; 0 over stdio
}

// An Incoming is something that came from the server. It belongs to whoever got it.
type Incoming struct {
	N        uint64 // number of the event it is recorded as
	Exchange uint64 // the HTTP exchange it came by; 0 over stdio
	Data     []byte // a message, or whatever stands in the place of one; nil if Ended
	Status   int    // of the HTTP response it came by; 0 over stdio, or if there was none
	// Ended tells that the exchange of a message that was sent is over, whatever came by it, and Err why it broke off, if it did.
	Ended bool
	Err   error
}

// Open starts the server, or prepares to reach it, and records it with rec, which stays the caller's to close behind the session. For [SSE] it opens the stream. The options must not be
// changed any more; nil means defaults. ctx is for opening alone.
//
// The error is a [*RedactedError], wraps [ErrNoServer], or is that of starting or connecting.
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
	if o.Transport == Stdio {
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

// Send records a message and sends it: the bytes are the message's, without anything that sets it apart from others. It waits while too much is on its way, but not for the server to
// take the message; that it could not be delivered shows in what [Session.Next] returns. Send is for one goroutine at a time.
//
// The error wraps [ErrTooLarge], is [ErrClosed], an [*EndedError], or the cause of ctx.
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

// Next waits for what comes next from the server. The server waits, too, as long as it is not called. It is for one goroutine at a time.
//
// The error is an [*EndedError] or wraps [ErrTooLarge] when nothing can come any more; [ErrClosed]; or the cause of ctx.
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

// OpenStream opens the standing stream of a legacy session on HTTP, as its clients do behind the handshake; what comes on it is returned by [Session.Next]. It waits until
// the server has answered, but not for long. Elsewhere it does nothing.
func (s *Session) OpenStream(ctx context.Context) {
	if w, ok := s.conn.(*httpConn); ok && s.o.Transport == HTTP {
		w.openStream(ctx)
	}
}

// Close ends the session: a process by closing its input, by signals to its process group if that is not enough, and HTTP by DELETE. It waits until all has been recorded, which takes
// no longer than [Options.GracePeriod] and a few seconds. It may be called more than once.
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

// spawn runs f on a goroutine that Close waits for; not if it has begun to. also counts it, too, unless it is nil.
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

// record records an event, unless there are too many already.
func (s *Session) record(e *capture.Event) uint64 {
	const overhead = 128 // of a line, in bytes
	switch e.Kind {
	case capture.KindExit, capture.KindEOF, capture.KindEnd, capture.KindStart: // how it ends is always told
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

// deliver hands over what has come, unless nobody takes it any more.
func (s *Session) deliver(in *Incoming) {
	select {
	case s.in <- in:
	case <-s.ended:
	case <-s.closing:
	}
}

// end says that nothing will come any more.
func (s *Session) end(err error) {
	s.endOnce.Do(func() {
		s.endErr = err
		close(s.ended)
	})
}

// stderrRecorder records standard error. It counts what it is given, and drops what is too much.
type stderrRecorder struct {
	s     *Session
	lines *capture.Lines
	ready chan struct{} // closed when the start of the process is recorded
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

// frameMessage is a message with what tells it apart from others in a stream of bytes. Line breaks between the tokens of JSON would be such, and are taken out; of what is no JSON they stay, since
// whoever sends that wants it so.
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

// withTimeout calls f with a context that ends after d, and says so in the error.
func withTimeout(ctx context.Context, d time.Duration, what string, f func(context.Context) error) error {
	inner, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("resend: %w: %s took longer than %v", ErrTimeout, what, d))
	defer cancel()
	return f(inner)
}

// parse returns the messages in a frame, those of a batch too; none if it is not JSON-RPC. They alias the frame.
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

// idKey is equal for equal ids.
func idKey(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return `"` + s
	}
	return string(id)
}

// A due is the ids of requests that have not been answered.
type pendingIDs map[string]bool

// pendingOf returns what a message asks for. A standing subscription is never answered, so it is not among it.
func pendingOf(message []byte) pendingIDs {
	d := pendingIDs{}
	for _, m := range parse(message) {
		if m.Kind == jsonrpc.KindRequest && string(m.Method) != mcp.MethodSubscriptionsListen {
			d[idKey(m.ID)] = true
		}
	}
	return d
}

// resolve removes what a frame answers, and reports whether there was any. lone takes an error without an id for the answer to whatever is due, as it is if there is only one thing.
func (p pendingIDs) resolve(list []jsonrpc.Message, lone bool) bool {
	took := false
	for _, m := range list {
		if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
			continue
		}
		if k := idKey(m.ID); p[k] {
			delete(p, k)
			took = true
		} else if m.Kind == jsonrpc.KindError && (len(m.ID) == 0 || m.ID.IsNull()) && lone {
			clear(p)
			took = true
		}
	}
	return took
}

// isInitialize reports whether a message is the handshake itself, and isInitialized whether it is the end of one.
func isInitialize(message []byte) bool  { return isSingle(message, mcp.MethodInitialize) }
func isInitialized(message []byte) bool { return isSingle(message, mcp.NotificationInitialized) }

func isSingle(message []byte, method string) bool {
	list := parse(message)
	return len(list) == 1 && string(list[0].Method) == method
}

// freshID returns the message with another id in the place of one that was used: everything else stays as it is.
func freshID(message []byte, used jsonrpc.ID) []byte {
	list := parse(message)
	taken := map[string]bool{idKey(used): true}
	for _, m := range list {
		taken[idKey(m.ID)] = true
	}
	for _, m := range list {
		if m.Kind != jsonrpc.KindRequest || !m.ID.Equal(used) {
			continue
		}
		fresh := jsonrpc.IntID(1)
		for n := int64(1); taken[idKey(fresh)]; n++ {
			fresh = jsonrpc.IntID(n)
		}
		at := cap(message) - cap(m.ID) // where it stands: it aliases the message
		out := bytes.Clone(message[:at])
		return append(append(out, fresh...), message[at+len(m.ID):]...)
	}
	return message
}

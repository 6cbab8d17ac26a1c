package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Serve serves one client on f until its input ends. It then waits for pending requests, up to
// Options.DrainTimeout or the end of ctx, and closes f. It answers requests that are cut off with
// errors. It returns
//
//   - nil after the end of the input, if all requests were answered or the client reads no more
//   - a *jsonrpc.DrainError if requests were cut off after DrainTimeout
//   - the cause of ctx if that ended first, also while Serve waits for requests
//   - [ErrClosed] if the bridge is closed or has ended the client
//   - an error with [ErrFull] if the bridge has no room for the client
//   - the error of f if reading or writing fails
func (b *Bridge) Serve(ctx context.Context, f jsonrpc.Framer) error {
	return b.serve(ctx, f, callerOf(ctx), false)
}

func (b *Bridge) serve(ctx context.Context, f jsonrpc.Framer, caller string, strict bool) error {
	s := &streamClient{b: b, f: f, strict: strict, answered: make(chan struct{}, 1)}
	var err *relay.RejectedError
	if s.client, err = b.newClientFor(caller, streamSender{s}, "", false); err != nil {
		refusal := jsonrpc.AppendError(nil, nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", err.Reason), true)
		cut := time.AfterFunc(closeTimeout, func() { f.Close() })
		defer cut.Stop()
		_ = f.WriteFrame(refusal) // a client that does not read it sees the end
		f.Close()
		if err == rejectedByClosed {
			return ErrClosed
		}
		return fmt.Errorf("%w: %s", ErrFull, err.Reason)
	}
	s.client.callPrincipalID = callPrincipalOf(ctx)
	return s.serve(ctx)
}

// A streamClient is a client on a byte stream: standard input and output, or a socket.
type streamClient struct {
	b      *Bridge
	f      jsonrpc.Framer
	client *client
	// strict is StreamReader.Strict.
	strict bool
	// batches says that the negotiated revision has batches.
	batches atomic.Bool
	// answered has an element after a response.
	answered chan struct{}

	// writing is held during a write, which lasts while the client does not read.
	writing sync.Mutex
	// writeErr is the first write error.
	writeErr atomic.Pointer[error]
}

func (s *streamClient) serve(ctx context.Context) error {
	cl := s.client
	read := make(chan error, 1)
	go func() { read <- s.read(cl.ctx) }() // it ends when f is closed
	var err error
	cut := 0 // requests
	select {
	case err = <-read:
		read <- err
		if late, ended := s.drain(ctx); ended != nil && IsEnd(err) {
			err = ended
		} else {
			cut = late
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
		if s.strict { // the bridge ends here, not the client
			cut, _ = s.drain(context.WithoutCancel(ctx))
		}
	case <-cl.ctx.Done():
		err = s.whyEnded()
	}
	// Tell the requests that still wait, unless the client does not read.
	unread := time.AfterFunc(closeTimeout, func() { s.f.Close() })
	if cut > 0 {
		cl.failAll(rpc.ShuttingDown(s.b.opts.DrainTimeout))
	}
	cl.close()
	if cl.outbox != nil {
		cl.outbox.running.Wait()
	}
	unread.Stop()
	s.f.Close()
	<-read
	if IsEnd(err) {
		err = nil
	}
	if cut > 0 && s.writeError() == nil {
		return &jsonrpc.DrainError{Requests: cut, After: s.b.opts.DrainTimeout, Cause: err}
	}
	return err
}

// writeError returns the first error of a write, or nil.
func (s *streamClient) writeError() error {
	if err := s.writeErr.Load(); err != nil {
		return *err
	}
	return nil
}

// whyEnded returns the reason why the context of the client has ended.
func (s *streamClient) whyEnded() error {
	if err := s.writeError(); err != nil && s.b.ctx.Err() == nil {
		return err
	}
	return ErrClosed
}

// drain waits for pending requests, and returns how many are late. The error says why it did not
// wait until then.
func (s *streamClient) drain(ctx context.Context) (late int, err error) {
	timeout := time.After(s.b.opts.DrainTimeout)
	for {
		open, _ := s.client.pending()
		if open == 0 {
			return 0, nil
		}
		select {
		case <-s.answered:
		case <-timeout:
			return open, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-s.client.ctx.Done():
			if err = s.whyEnded(); err != ErrClosed {
				err = nil // the client is gone
			}
			return 0, err
		}
	}
}

// read handles the messages of the client until its input ends.
func (s *streamClient) read(ctx context.Context) error {
	r := &StreamReader{
		Framer: s.f, Strict: s.strict, Policy: func() rpc.Policy { return rpc.Policy{NoBatches: !s.batches.Load()} }, Invalid: s.client.recordInvalid, Logger: s.b.opts.Logger,
		Handle: func(frame []byte, m *jsonrpc.Message, answer func([]byte)) { s.handle(ctx, frame, m, answer) },
		Send:   func(message []byte) { s.client.out.Send(message) },
		Refuse: func(message []byte) { s.client.send(nil, message, Provenance{}) },
	}
	return r.Read()
}

// handle passes a message to the client.
func (s *streamClient) handle(ctx context.Context, frame []byte, m *jsonrpc.Message, answer func([]byte)) {
	if frame == nil {
		frame = encodeMessage(m)
	}
	switch m.Kind {
	case jsonrpc.KindRequest:
		initializes := string(m.Method) == mcp.MethodInitialize
		s.client.request(ctx, frame, m, nil, func(response []byte) {
			if initializes {
				r, _ := mcp.ParseRevision(jsonwire.Text(jsonwire.Lookup(response, "result", "protocolVersion")))
				s.batches.Store(r != mcp.RevisionNone && era.Of(r).Batches)
			}
			answer(response)
			wait.Signal(s.answered)
		})
	default:
		s.client.message(ctx, frame, m)
	}
}

// A streamSender writes messages to a stream's client. It blocks while the client does not read.
type streamSender struct{ *streamClient }

// Send implements rpc.Sender.
func (s streamSender) Send(message []byte) error {
	sc := s.streamClient
	sc.writing.Lock()
	defer sc.writing.Unlock()
	if err := sc.writeError(); err != nil {
		return err
	}
	err := sc.f.WriteFrame(jsonwire.OneLine(message))
	if err != nil {
		sc.writeErr.Store(&err)
		sc.client.cancel() // the client is gone
	}
	return err
}

// ServeListener serves each client that connects to l as [ServeConns] does. framing delimits the
// messages. maxFrame limits their size in bytes.
func (b *Bridge) ServeListener(ctx context.Context, l net.Listener, framing jsonrpc.Framing, maxFrame int) error {
	return ServeConns(ctx, l, 0, b.opts.Logger, func(conn net.Conn) error {
		f := jsonrpc.NewFramer(deadlineConn{conn}, &jsonrpc.FramerOptions{Framing: framing, MaxFrame: maxFrame})
		return b.serve(ctx, f, CallerOfConn(conn), true)
	})
}

// acceptBackoff is the pause after a failed Accept.
const acceptBackoff = 50 * time.Millisecond

// ServeConns calls serve for each client that connects to l, a unix socket or a TCP port, until ctx
// ends. It then closes l, waits for the calls, and returns a *jsonrpc.DrainError if serve returned
// such errors. It closes the connections of clients above max, unless that is 0.
func ServeConns(ctx context.Context, l net.Listener, max int, log *slog.Logger, serve func(net.Conn) error) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	var cut jsonrpc.DrainError // of all clients
	var open atomic.Int64
	for {
		conn, err := l.Accept()
		if err != nil && ctx.Err() == nil {
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			log.Warn("connection not accepted", "error", err)
			wait.Sleep(ctx, acceptBackoff) // there may be too many open files
			continue
		}
		if err != nil {
			wg.Wait()
			if cut.Requests > 0 {
				return &cut
			}
			return nil
		}
		if max > 0 && open.Load() >= int64(max) {
			log.Warn("connection not accepted", "error", "too many clients", "max", max)
			conn.Close()
			continue
		}
		open.Add(1)
		wg.Go(func() {
			defer open.Add(-1)
			err := serve(conn)
			if late, ok := errors.AsType[*jsonrpc.DrainError](err); ok && ctx.Err() != nil {
				mu.Lock()
				cut.Requests, cut.After = cut.Requests+late.Requests, late.After
				mu.Unlock()
			}
			if err != nil && ctx.Err() == nil {
				log.Debug("client connection ended", "error", err)
			}
		})
	}
}

// CallerOfConn returns the caller of a connection: the address for TCP, and "" for a unix socket,
// which belongs to the user.
func CallerOfConn(conn net.Conn) string {
	if addr, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return addr.IP.String()
	}
	return ""
}

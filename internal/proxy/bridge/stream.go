package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// strict ends the client at the first invalid message, because a web page could make a browser
	// send an HTTP request with messages in it to a socket.
	strict bool
	// batches says that the negotiated revision has batches.
	batches atomic.Bool
	// answered has an element after a response.
	answered chan struct{}

	mu sync.Mutex
	// writeErr is the first write error.
	writeErr error
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
		if late, ended := s.drain(ctx); ended != nil && isEnd(err) {
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
		cl.outbox.wait()
	}
	unread.Stop()
	s.f.Close()
	<-read
	if isEnd(err) {
		err = nil
	}
	if cut > 0 && s.writeError() == nil {
		return &jsonrpc.DrainError{Requests: cut, After: s.b.opts.DrainTimeout, Cause: err}
	}
	return err
}

// isEnd reports if a read error is the end of the input.
func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) }

// writeError returns the first error of a write, or nil.
func (s *streamClient) writeError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeErr
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
	timer := time.NewTimer(s.b.opts.DrainTimeout)
	defer timer.Stop()
	for {
		open, _ := s.client.pending()
		if open == 0 {
			return 0, nil
		}
		select {
		case <-s.answered:
		case <-timer.C:
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
	for {
		frame, err := s.f.ReadFrame()
		if bad, ok := errors.AsType[*jsonrpc.FrameError](err); ok {
			large, tooLarge := errors.AsType[*jsonrpc.TooLargeError](err)
			if tooLarge && large.Kind != jsonrpc.KindInvalid || !s.strict {
				s.refuseFrame(ctx, bad, large)
				continue
			}
		}
		if err != nil {
			return err
		}
		frame = compact(frame)
		if jsonrpc.IsBatch(frame) {
			s.handleBatch(ctx, frame)
			continue
		}
		m := new(jsonrpc.Message)
		if err := jsonrpc.Parse(frame, m, 0); err != nil {
			s.client.recordInvalid(frame)
			if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
				s.refuse(m.ID, jsonrpc.ErrorOf(err))
			}
			if s.strict && m.Kind == jsonrpc.KindInvalid {
				return err
			}
			continue
		}
		if err := era.CheckForwarded(frame, m); err != nil {
			s.refuseForwarding(ctx, frame, m, err)
			continue
		}
		initializes := m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize
		s.dispatch(ctx, frame, m, func(response []byte) {
			if initializes {
				r, _ := mcp.ParseRevision(stringOf(jsonwire.Lookup(response, "result", "protocolVersion")))
				s.batches.Store(r != mcp.RevisionNone && era.Of(r).Batches)
			}
			if response != nil {
				s.client.out.Send(response)
			}
			signal(s.answered)
		})
	}
}

// refuseFrame answers a frame that could not be read. If it was a response, the server gets an
// error in its place. large is nil unless the frame exceeds the limit.
func (s *streamClient) refuseFrame(ctx context.Context, bad *jsonrpc.FrameError, large *jsonrpc.TooLargeError) {
	e := &jsonrpc.Error{Code: bad.Code, Message: bad.Reason}
	switch {
	case large == nil || large.Kind == jsonrpc.KindInvalid:
		s.refuse(nil, e)
	case large.Kind == jsonrpc.KindRequest:
		s.refuse(large.ID, e)
	case large.Kind != jsonrpc.KindNotification && len(large.ID) > 0:
		refusal := errorMessage(large.ID, e)
		s.client.response(ctx, encodeMessage(refusal), refusal)
	}
}

// refuseForwarding handles a message that must not be forwarded. The server gets an error in place
// of a response, so that it does not wait.
func (s *streamClient) refuseForwarding(ctx context.Context, frame []byte, m *jsonrpc.Message, err error) {
	s.client.recordInvalid(frame)
	switch e := jsonrpc.ErrorOf(err); m.Kind {
	case jsonrpc.KindRequest:
		s.refuse(m.ID, e)
	case jsonrpc.KindNotification:
		s.b.opts.Logger.Warn("notification of a client dropped", "error", e)
	default:
		refusal := errorMessage(m.ID, e)
		s.client.response(ctx, encodeMessage(refusal), refusal)
	}
}

// dispatch passes a message to the client.
func (s *streamClient) dispatch(ctx context.Context, frame []byte, m *jsonrpc.Message, answer func([]byte)) {
	switch m.Kind {
	case jsonrpc.KindRequest:
		s.client.request(ctx, frame, m, nil, answer)
	case jsonrpc.KindNotification:
		s.client.notification(ctx, frame, m)
	default:
		s.client.response(ctx, frame, m)
	}
}

// handleBatch handles the messages of a batch, and answers with a batch.
func (s *streamClient) handleBatch(ctx context.Context, frame []byte) {
	entries, err := jsonrpc.ParseBatch(frame, 0)
	if err == nil && !s.batches.Load() {
		err = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: this protocol revision has no batches; send each message on its own")
	}
	if err != nil {
		s.client.recordInvalid(frame)
		s.refuse(nil, jsonrpc.ErrorOf(err))
		return
	}
	answers := &batchResponse{pending: 1, send: func(text []byte) {
		s.client.out.Send(text)
		signal(s.answered)
	}}
	for i := range entries {
		e := &entries[i]
		var err error
		if e.Invalid == nil {
			err = era.CheckForwarded(nil, &e.Message)
		}
		switch {
		case e.Invalid != nil:
			answers.add(jsonrpc.AppendError(nil, e.ID, e.Invalid, false))
		case err != nil && e.Kind == jsonrpc.KindRequest:
			answers.add(jsonrpc.AppendError(nil, e.ID, jsonrpc.ErrorOf(err), false))
		case err != nil:
			s.refuseForwarding(ctx, encodeMessage(&e.Message), &e.Message, err)
		case e.Kind == jsonrpc.KindRequest:
			answers.expect()
			s.dispatch(ctx, encodeMessage(&e.Message), &e.Message, answers.done)
		default:
			s.dispatch(ctx, encodeMessage(&e.Message), &e.Message, nil)
		}
	}
	answers.done(nil)
}

// A batchResponse collects the responses to a batch.
type batchResponse struct {
	send func([]byte)

	mu      sync.Mutex
	pending int
	frame   []byte
}

func (b *batchResponse) expect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending++
}

func (b *batchResponse) add(answer []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.frame) == 0 {
		b.frame = append(b.frame, '[')
	} else {
		b.frame = append(b.frame, ',')
	}
	b.frame = append(b.frame, answer...)
}

// done adds a response, or none if answer is nil, and sends the batch after the last.
func (b *batchResponse) done(answer []byte) {
	if answer != nil {
		b.add(answer)
	}
	b.mu.Lock()
	b.pending--
	last := b.pending == 0 && len(b.frame) > 0
	text := append(b.frame, ']')
	b.mu.Unlock()
	if last {
		b.send(text)
	}
}

// refuse answers a message that could not be read.
func (s *streamClient) refuse(id jsonrpc.ID, e *jsonrpc.Error) {
	frame := jsonrpc.AppendError(nil, id, e, true)
	s.client.send(nil, frame, provenance{})
}

// A streamSender writes messages to a stream's client. It blocks while the client does not read.
type streamSender struct{ *streamClient }

// Send implements rpc.Sender.
func (s streamSender) Send(message []byte) error {
	sc := s.streamClient
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.writeErr == nil {
		if sc.writeErr = sc.f.WriteFrame(jsonrpc.OneLine(message)); sc.writeErr != nil {
			sc.client.cancel() // the client is gone
		}
	}
	return sc.writeErr
}

// acceptBackoff is the pause after a failed Accept.
const acceptBackoff = 50 * time.Millisecond

// ServeListener serves each client that connects to l, a unix socket or a TCP port, until ctx ends.
// It then closes l, waits for the clients, and returns a *jsonrpc.DrainError if requests were cut
// off. framing delimits the messages. maxFrame limits their size in bytes.
func (b *Bridge) ServeListener(ctx context.Context, l net.Listener, framing jsonrpc.Framing, maxFrame int) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	var wg sync.WaitGroup
	var cut atomic.Int64
	served := func() error {
		wg.Wait()
		if n := cut.Load(); n > 0 {
			return &jsonrpc.DrainError{Requests: int(n), After: b.opts.DrainTimeout}
		}
		return nil
	}
	defer wg.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return served()
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			b.opts.Logger.Warn("connection not accepted", "error", err)
			if !wait.Sleep(ctx, acceptBackoff) { // there may be too many open files
				return served()
			}
			continue
		}
		wg.Go(func() {
			f := jsonrpc.NewFramer(deadlineConn{conn}, &jsonrpc.FramerOptions{Framing: framing, MaxFrame: maxFrame})
			err := b.serve(ctx, f, callerOfConn(conn), true)
			if late, ok := errors.AsType[*jsonrpc.DrainError](err); ok && ctx.Err() != nil {
				cut.Add(int64(late.Requests))
			}
			if err != nil && ctx.Err() == nil {
				b.opts.Logger.Debug("client connection ended", "error", err)
			}
		})
	}
}

// callerOfConn returns the caller of a connection: the address for TCP, and "" for a unix socket,
// which belongs to the user.
func callerOfConn(conn net.Conn) string {
	if addr, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return addr.IP.String()
	}
	return ""
}

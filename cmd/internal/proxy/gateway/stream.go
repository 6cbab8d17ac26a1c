package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Limits of a client on a byte stream.
const (
	// maxStreamCalls limits its pending requests.
	maxStreamCalls = 4096
	// maxUnsent limits the bytes that it has not read.
	maxUnsent = 64 << 20
)

// Serve serves one client on f, such as one on standard input and output, until its input ends. It
// then waits for pending requests, up to Options.DrainTimeout or the end of ctx, and closes f. It
// returns nil after the end of the input, a *jsonrpc.DrainError if requests were cut off, the cause
// of ctx, [ErrClosed], or the error of f.
//
// It decides for each message to which era it belongs: a client may use both.
func (g *Gateway) Serve(ctx context.Context, f jsonrpc.Framer) error { return g.serve(ctx, f, false) }

// ServeSocket is Serve for a client that has connected to a socket. It also ends at the first frame
// that is not a message: web pages can make a browser send an HTTP request to the socket.
func (g *Gateway) ServeSocket(ctx context.Context, f jsonrpc.Framer) error {
	return g.serve(ctx, f, true)
}

func (g *Gateway) serve(ctx context.Context, f jsonrpc.Framer, strict bool) error {
	c := &streamClient{g: g, f: f, strict: strict, calls: map[string]context.CancelFunc{}, notify: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	stop := context.AfterFunc(g.ctx, func() { c.cancel(ErrClosed) })
	defer stop()
	c.recorder = g.recording.ClientRecorder()
	c.stateless = &statelessPeer{g: g, recorder: c.recorder, subscriptions: map[*subscription]struct{}{}}
	c.rules = era.NewSession(era.Config{Revisions: bridge.EraModern.Revisions(), Custom: func([]byte) bool { return true }})
	return c.serve()
}

// A streamClient is a client on a byte stream.
type streamClient struct {
	g      *Gateway
	f      jsonrpc.Framer
	ctx    context.Context
	cancel context.CancelCauseFunc
	// strict is bridge.StreamReader.Strict.
	strict bool
	// rules checks modern requests.
	rules     *era.Session
	stateless *statelessPeer
	recorder  *bridge.ClientRecorder
	// session is the peer of legacy messages; nil before the first. Only read uses it.
	session *session
	wg      sync.WaitGroup

	// notify has an element if there is something to write or writing must end.
	notify chan struct{}

	mu sync.Mutex
	// calls holds the pending requests by the key of their ids.
	calls  map[string]context.CancelFunc
	unsent [][]byte
	bytes  int
	// finished says that nothing more is to be written.
	finished bool
	writeErr error
}

func (c *streamClient) serve() error {
	read := make(chan error, 1)
	go func() { read <- c.read() }() // it ends when f is closed
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	var err error
	cut := 0
	select {
	case err = <-read:
		read <- err
		cut = c.drain()
	case <-c.ctx.Done():
		err = context.Cause(c.ctx)
	}
	c.cancel(err)
	c.stateless.Close()
	c.wg.Wait()
	c.mu.Lock()
	c.finished = true
	c.mu.Unlock()
	wait.Signal(c.notify)
	// A client that does not read gets no more.
	timer := time.AfterFunc(time.Second, func() { c.f.Close() })
	<-written
	timer.Stop()
	c.f.Close()
	<-read
	if c.session != nil {
		c.session.Close()
	} else {
		c.recorder.End()
	}
	c.mu.Lock()
	writeErr := c.writeErr
	c.mu.Unlock()
	if bridge.IsEnd(err) {
		err = nil
	}
	if err == nil && cut > 0 && writeErr == nil {
		return &jsonrpc.DrainError{Requests: cut, After: c.g.state.Load().opts.DrainTimeout}
	}
	return err
}

// drain ends the subscriptions and waits for the pending requests. It returns how many are late.
func (c *streamClient) drain() int {
	c.stateless.Close()
	ctx, cancel := context.WithTimeout(c.ctx, c.g.state.Load().opts.DrainTimeout)
	defer cancel()
	go func() {
		c.wg.Wait() // serve waits for it, too
		cancel()
	}()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// Send implements rpc.Sender. It never blocks. A client that does not read is cut off.
func (c *streamClient) Send(message []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished || c.writeErr != nil {
		return jsonrpc.ErrRequestEnded
	}
	if c.bytes > 0 && c.bytes+len(message) > maxUnsent {
		c.writeErr = errors.New("the client does not read its messages")
		c.cancel(c.writeErr)
		return c.writeErr
	}
	c.unsent = append(c.unsent, append(make([]byte, 0, len(message)), message...))
	c.bytes += len(message)
	wait.Signal(c.notify)
	return nil
}

// write writes the messages to the client until finished is set.
func (c *streamClient) write() {
	for {
		c.mu.Lock()
		queue, finished := c.unsent, c.finished
		c.unsent = nil
		c.mu.Unlock()
		for _, message := range queue {
			if err := c.f.WriteFrame(jsonwire.OneLine(message)); err != nil {
				c.mu.Lock()
				c.writeErr = err
				c.mu.Unlock()
				c.cancel(io.EOF) // the client is gone
				return
			}
			c.mu.Lock()
			c.bytes -= len(message)
			c.mu.Unlock()
		}
		if finished && len(queue) == 0 {
			return
		}
		if len(queue) == 0 {
			<-c.notify
		}
	}
}

// read handles the messages of the client until its input ends.
func (c *streamClient) read() error {
	send := func(message []byte) { c.Send(message) }
	r := &bridge.StreamReader{Framer: c.f, Strict: c.strict, Handle: c.handle, Send: send, Refuse: send, Logger: c.g.state.Load().opts.Logger}
	return r.Read()
}

// handle handles a message, as bridge.StreamReader says.
func (c *streamClient) handle(frame []byte, m *jsonrpc.Message, answer func(response []byte)) {
	switch {
	case m.Kind == jsonrpc.KindRequest:
		c.request(frame, m, answer)
	case m.Kind == jsonrpc.KindNotification && string(m.Method) == mcp.NotificationCancelled:
		c.cancelCall(frame, m)
	case c.session == nil:
	case m.Kind == jsonrpc.KindNotification:
		c.session.Notification(c.ctx, frame, m)
	default:
		c.session.Response(c.ctx, frame, m)
	}
}

// request starts a request.
func (c *streamClient) request(frame []byte, m *jsonrpc.Message, answer func([]byte)) {
	var peer relay.Peer = c.stateless
	if bridge.EraOf(m) == bridge.EraModern {
		if _, err := c.rules.Open(&rpc.Request{Message: *m}); err != nil {
			answer(jsonrpc.AppendError(nil, m.ID, jsonrpc.ErrorOf(err), false))
			return
		}
	} else {
		if c.session == nil {
			c.session = c.g.openSession(c.ctx, c, c.recorder)
		}
		if c.session == nil {
			answer(jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many sessions, or the gateway is shutting down"), false))
			return
		}
		peer = c.session
	}
	key := m.ID.Key()
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	_, taken := c.calls[key]
	full := len(c.calls) >= maxStreamCalls
	if !taken && !full {
		c.calls[key] = cancel
	}
	c.mu.Unlock()
	if taken || full {
		cancel()
		e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "another request with this id is in flight")
		if full {
			e = jsonrpc.Errorf(jsonrpc.CodeInternalError, "%d requests of this client are already in flight", maxStreamCalls)
		}
		answer(jsonrpc.AppendError(nil, m.ID, e, false))
		return
	}
	run := func() {
		defer cancel()
		response, err := peer.Request(ctx, frame, m, c, nil)
		c.mu.Lock()
		delete(c.calls, key)
		c.mu.Unlock()
		if rejected, ok := errors.AsType[*relay.RejectedError](err); ok {
			response = jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", rejected.Reason), false)
		} else if err != nil {
			response = nil
			if c.ctx.Err() != nil { // the request was cut off, not canceled
				response = jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the gateway is shutting down"), false)
			}
		}
		answer(response)
	}
	switch string(m.Method) {
	case mcp.MethodInitialize, mcp.MethodSetLevel:
		run() // before the messages that the client has already sent after it
	default:
		c.wg.Go(run)
	}
}

// cancelCall cancels a request. The upstream of a legacy request gets the client's reason.
func (c *streamClient) cancelCall(frame []byte, m *jsonrpc.Message) {
	frame = frameOf(frame, m)
	ctx := bridge.WithOrigin(c.ctx, c.recorder.Received(c.ctx, frame))
	if c.session != nil && c.session.cancelCall(ctx, frame, m) {
		return
	}
	id, _ := m.Param("requestId")
	c.mu.Lock()
	cancel := c.calls[jsonrpc.ID(id).Key()]
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

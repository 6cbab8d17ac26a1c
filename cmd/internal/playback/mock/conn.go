package mock

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A conn is the server's side of one connection or session, or of all requests without one.
type conn struct {
	srv *Server
	// out sends messages that belong to no request, one at a time.
	out rpc.Sender
	// stream reports that messages are frames of a byte stream.
	stream bool

	rules *era.Session
	// modernSeen belongs to the goroutine that reads the stream.
	modernSeen bool

	// ctx ends with the connection.
	ctx    context.Context
	cancel context.CancelFunc
	// waitCtx ends when the server stops waiting for the client.
	waitCtx context.Context
	drain   context.CancelFunc

	// mu guards the fields below.
	mu      sync.Mutex
	cursors map[cursor]int
	// legacy is the session assigned at the handshake.
	legacy *session
	// modern is the session assigned at the first modern request. It is nil if none suits.
	modern *session
	// client is from the handshake.
	client      era.Client
	features    *era.Features
	level       mcp.LoggingLevel
	responders  map[*responder]struct{}
	pending     map[string]chan *jsonrpc.Message
	lastRequest int64
	// tokens are the progress tokens for progress after the response.
	tokens map[*exchange][]byte
	// sentTrailing marks exchanges whose trailing messages were sent.
	sentTrailing map[*exchange]bool
}

func (s *Server) newConn(out rpc.Sender, pipe bool) *conn {
	p := &conn{
		srv: s, out: &sender{to: out}, stream: pipe, rules: s.recording.rules(), cursors: map[cursor]int{}, responders: map[*responder]struct{}{}, pending: map[string]chan *jsonrpc.Message{},
		tokens: map[*exchange][]byte{}, sentTrailing: map[*exchange]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	p.waitCtx, p.drain = context.WithCancel(p.ctx)
	context.AfterFunc(s.waitCtx, p.drain)
	return p
}

// A sender sends one message at a time. A nil destination discards.
type sender struct {
	mu sync.Mutex
	to rpc.Sender
}

// Send implements [rpc.Sender].
func (s *sender) Send(message []byte) error {
	if s.to == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Send(message)
}

// preferredSession returns the recorded session whose requests are preferred. The caller holds mu.
func (c *conn) preferredSession(modern bool) *session {
	if !modern {
		return c.legacy
	}
	if c.modern == nil && c.stream {
		c.modern = c.srv.assignModern()
	}
	return c.modern
}

// Request implements relay.Peer.
func (c *conn) Request(ctx context.Context, _ []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	a, err := c.accept(m)
	if err != nil {
		return dst, err
	}
	defer a.end()
	a.faultWriter = faultWriterFrom(ctx)
	if a.out = out; out == nil {
		a.out, a.noPreceding = c.out, true
	}
	defer context.AfterFunc(ctx, a.cancel)()
	text, err := a.run()
	if err != nil {
		return dst, err
	}
	c.sendTrailing(a)
	return append(dst, text...), nil
}

// Notification implements relay.Peer.
func (c *conn) Notification(_ context.Context, _ []byte, m *jsonrpc.Message) {
	switch string(m.Method) {
	case mcp.NotificationInitialized:
		if c.rules.Initialized() {
			c.onInitialized()
		}
	case mcp.NotificationCancelled:
		id, _, ok := (era.Cancellation{}).Target(m)
		if !ok {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for a := range c.responders {
			if a.id.Equal(id) {
				a.cancel()
			}
		}
	}
}

// Response implements relay.Peer.
func (c *conn) Response(_ context.Context, _ []byte, m *jsonrpc.Message) {
	c.mu.Lock()
	answer := c.pending[string(m.ID)]
	delete(c.pending, string(m.ID))
	c.mu.Unlock()
	if answer == nil {
		c.srv.opts.Logger.Debug("a response that matches no request", "id", clip.String(string(m.ID), 64))
		return
	}
	answer <- m.Clone()
}

// Close implements relay.Peer.
func (c *conn) Close() { c.cancel() }

// register adds a pending request. It returns false if there are too many.
func (c *conn) register(r *responder) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream && len(c.responders) >= maxInFlight {
		return false
	}
	c.responders[r] = struct{}{}
	return true
}

// sendRequest sends an input request to the client. The channel receives the response once. The
// caller must forget the id.
func (c *conn) sendRequest(to rpc.Sender, f *frame) (answer chan *jsonrpc.Message, id jsonrpc.ID, err error) {
	c.mu.Lock()
	c.lastRequest++
	id = jsonrpc.IntID(c.lastRequest)
	answer = make(chan *jsonrpc.Message, 1)
	c.pending[string(id)] = answer
	c.mu.Unlock()
	return answer, id, to.Send(f.append(nil, id))
}

func (c *conn) forget(id jsonrpc.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, string(id))
}

// wantsLog reports whether the client wants log messages of a level.
func (c *conn) wantsLog(level mcp.LoggingLevel) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return level >= c.level
}

// missingCapability returns the capability that the input request needs and the client did not
// declare, or "".
func (c *conn) missingCapability(method string, params []byte) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.features == nil || !era.IsInputRequest(method) {
		return ""
	}
	_, name := (&era.InputRequest{Method: method, Params: params}).MissingCapability(&c.client, c.features)
	return name
}

var errEnded = errors.New("mock: the request ended without a response")

// accept creates the responder of a request and looks up its response, in the order of arrival. The
// caller must end the responder. accept does not keep m.
//
// The flow of a request is:
//
//	streamConn.handle, or conn.Request over HTTP
//	accept              register the request
//	  answerBuiltin     protocol errors that do not depend on the recording
//	  match -> next     the recorded exchange, by candidates and their cursor
//	    answerDefault   ping, setLevel, and an unrecorded handshake or subscription
//	    reportMiss      an error for a request that is not in the capture
//	  matchFaults       the faults that apply
//	responder.run       sendPreceding, response, injectFaults
//	sendTrailing        recorded messages after the response
func (c *conn) accept(m *jsonrpc.Message) (*responder, error) {
	a := &responder{conn: c, id: m.ID.Clone(), method: string(m.Method), modern: isModern(m.Params)}
	a.ctx, a.cancel = context.WithCancel(c.ctx)
	if !c.register(a) {
		a.cancel()
		return nil, errBusy
	}
	a.token = bytes.Clone(tokenOf(m))
	if a.modern {
		a.level, _ = mcp.ParseLoggingLevel(era.LookupString(m.Params, "_meta", mcp.MetaLogLevel))
	}
	c.applyEffects(m)
	if !c.answerBuiltin(a, m) {
		c.match(a, m)
	}
	a.faults = c.srv.matchFaults(a, m)
	return a, nil
}

var errBusy = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many requests in flight")

// match looks up the recorded exchange of a request.
func (c *conn) match(r *responder, m *jsonrpc.Message) {
	c.mu.Lock()
	if r.method == mcp.MethodInitialize {
		c.noteInitialize(m)
		if c.legacy != nil {
			r.exchange = c.legacy.initialize
		}
	} else {
		r.exchange = c.next(r.modern, m)
	}
	if r.exchange != nil && r.token != nil {
		c.tokens[r.exchange] = r.token
	}
	c.mu.Unlock()
	if r.exchange == nil && !c.answerDefault(r, m) {
		r.err = c.srv.reportMiss(r, m)
		r.unmatched = true
	}
}

// noteInitialize assigns a session and notes the client's capabilities. The caller holds mu.
func (c *conn) noteInitialize(m *jsonrpc.Message) {
	if c.legacy == nil {
		c.legacy = c.srv.assignLegacy(m.Params)
	}
	if c.legacy == nil {
		return
	}
	c.features = era.Of(c.legacy.revision)
	c.client = era.Client{Capabilities: bytes.Clone(era.Lookup(m.Params, "capabilities"))}
}

// answerBuiltin sets the error for requests that are invalid regardless of the recording. It
// advances the state of the handshake.
func (c *conn) answerBuiltin(r *responder, m *jsonrpc.Message) bool {
	req := &rpc.Request{Message: *m}
	_, err := c.rules.Open(req)
	if err == nil && r.method == mcp.MethodInitialize && !r.modern {
		_, err = c.rules.Initialize(req)
	}
	if err != nil {
		r.err = jsonrpc.ErrorOf(err)
	}
	return err != nil
}

// answerDefault answers unrecorded requests that every server answers.
func (c *conn) answerDefault(r *responder, m *jsonrpc.Message) bool {
	switch {
	case c.srv.recording.lacksDescription(r.modern, r.method):
		r.result = c.srv.recording.description(r.modern)
		return true
	case r.modern && r.method == mcp.MethodSubscriptionsListen && c.srv.recording.methods[methodKey{true, r.method}] == nil:
		// Clients listen without being asked to. This error tells them that there is nothing to
		// listen to.
		r.err = jsonrpc.MethodNotFound(r.method)
		return true
	case r.modern:
		return false
	case r.method == mcp.MethodPing:
	case r.method == mcp.MethodSetLevel:
		if _, ok := mcp.ParseLoggingLevel(era.LookupString(m.Params, "level")); !ok {
			r.err = jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: params.level is not one of the eight levels")
			return true
		}
	default:
		return false
	}
	r.result = []byte("{}")
	return true
}

// applyEffects applies a change of the log level.
func (c *conn) applyEffects(m *jsonrpc.Message) {
	if string(m.Method) != mcp.MethodSetLevel {
		return
	}
	if level, ok := mcp.ParseLoggingLevel(era.LookupString(m.Params, "level")); ok {
		c.mu.Lock()
		c.level = level
		c.mu.Unlock()
	}
}

// closeTimeout is the time in which a client must read the last responses when the server ends.
const closeTimeout = time.Second

// A streamConn is one client on a byte stream.
type streamConn struct {
	*conn
	framer jsonrpc.Framer
	// activity counts pending requests.
	activity activity
}

// Serve serves one client on f until its input ends. It then still answers the pending requests,
// within 10 s, and returns nil. If ctx or the server ends first, it returns the
// cause, see [Server.Err]; otherwise the read error. It closes f.
func (s *Server) Serve(ctx context.Context, f jsonrpc.Framer) error {
	c := &streamConn{conn: s.newConn(frameSender{f}, true), framer: f}
	if !s.activity.begin() {
		f.Close()
		return jsonrpc.ErrClosed
	}
	defer s.activity.done()
	defer c.cancel()
	defer context.AfterFunc(ctx, c.cancel)()
	halted := make(chan struct{})
	halt := context.AfterFunc(c.ctx, func() {
		defer close(halted)
		t := time.NewTimer(closeTimeout)
		defer t.Stop()
		select {
		case <-c.activity.close(): // finished responses are sent
		case <-t.C: // to a client that reads
		}
		f.Close()
	})
	err := c.read()
	c.drain()
	c.finish()
	if halt() {
		f.Close()
	} else {
		<-halted
	}
	switch {
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// finish waits for pending requests after the end of the input.
func (c *streamConn) finish() {
	t := time.NewTimer(drainTimeout)
	defer t.Stop()
	done := c.activity.close()
	select {
	case <-done:
	case <-t.C:
		c.cancel()
		<-done
	case <-c.ctx.Done():
		<-done
	}
}

// read handles messages until the input ends.
func (c *streamConn) read() error {
	r := &bridge.StreamReader{
		Framer: c.framer, Handle: c.handle, Send: c.send, Logger: c.srv.opts.Logger,
		Policy: func() rpc.Policy { return c.rules.Policy(c.modernSeen) },
		Refuse: func(response []byte) {
			if c.ctx.Err() != nil {
				return
			}
			c.srv.opts.Logger.Warn("rejected a message of the client", "response", clip.String(string(response), 256))
			c.send(response)
		},
	}
	if err := r.Read(); !bridge.IsEnd(err) {
		return err
	}
	return nil
}

// handle handles a message, as bridge.StreamReader says.
func (c *streamConn) handle(frame []byte, m *jsonrpc.Message, answer func(response []byte)) {
	switch m.Kind {
	case jsonrpc.KindRequest:
	case jsonrpc.KindNotification:
		c.Notification(c.ctx, frame, m)
		return
	default:
		c.Response(c.ctx, frame, m)
		return
	}
	if c.ctx.Err() != nil { // the server has ended
		answer(nil)
		return
	}
	c.modernSeen = c.modernSeen || isModern(m.Params)
	a, err := c.accept(m)
	switch {
	case err != nil:
		answer(jsonrpc.AppendError(nil, m.ID, jsonrpc.ErrorOf(err), false))
	case !c.activity.begin():
		a.end()
		answer(nil)
	case a.isImmediate():
		c.respond(a, answer)
	default:
		go c.respond(a, answer)
	}
}

// respond answers a request.
func (c *streamConn) respond(r *responder, answer func(response []byte)) {
	defer c.activity.done()
	defer r.end()
	r.out = c.out
	text, err := r.run()
	answer(text)
	if err == nil {
		c.sendTrailing(r)
	}
}

func (c *streamConn) send(text []byte) {
	if err := c.out.Send(text); err != nil && c.ctx.Err() == nil {
		c.srv.opts.Logger.Debug("not sent", "error", err)
	}
}

// A frameSender writes frames, one at a time for one caller.
type frameSender struct{ f jsonrpc.Framer }

// Send implements [rpc.Sender].
func (s frameSender) Send(message []byte) error { return s.f.WriteFrame(message) }

// An activity counts running operations, and starts no new ones once closed.
type activity struct {
	mu sync.Mutex
	n  int
	// idle is nil until close. It is closed when no operation runs.
	idle chan struct{}
}

// begin starts an operation, which must call done. It returns false after close.
func (a *activity) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.idle != nil {
		return false
	}
	a.n++
	return true
}

func (a *activity) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n--; a.n == 0 && a.idle != nil {
		close(a.idle)
	}
}

// close prevents new operations and returns a channel that is closed when all have ended.
func (a *activity) close() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.idle == nil {
		a.idle = make(chan struct{})
		if a.n == 0 {
			close(a.idle)
		}
	}
	return a.idle
}

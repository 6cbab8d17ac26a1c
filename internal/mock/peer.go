package mock

import (
	"context"
	"errors"
	"sync"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A peer is the server's side of one connection or session, or of all requests without one.
type conn struct {
	srv    *Server
	out    jsonrpc.Sender // takes what belongs to no request, one message at a time
	stream bool           // its messages are frames of a stream of bytes

	rules      *era.Session
	modernSeen bool // for the goroutine that reads a pipe

	ctx     context.Context // ends with the peer
	cancel  context.CancelFunc
	waitCtx context.Context // ends when the client is not waited for any more
	drain   context.CancelFunc

	mu           sync.Mutex // of what follows
	cursors      map[cursor]int
	legacy       *session   // that the handshake was given
	modern       *session   // that the first modern request was given
	hasModern    bool       // modern is set
	client       era.Client // what the handshake said
	features     *era.Features
	level        mcp.LoggingLevel
	responders   map[*responder]struct{}
	pending      map[string]chan *jsonrpc.Message
	lastRequest  int64
	tokens       map[*exchange][]byte // of progress that goes on behind the answer
	sentTrailing map[*exchange]bool   // what came behind their answers was sent
}

func (s *Server) newConn(out jsonrpc.Sender, pipe bool) *conn {
	p := &conn{
		srv: s, out: &serialSender{to: out}, stream: pipe, rules: s.recording.rules(), cursors: map[cursor]int{}, responders: map[*responder]struct{}{}, pending: map[string]chan *jsonrpc.Message{},
		tokens: map[*exchange][]byte{}, sentTrailing: map[*exchange]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	p.waitCtx, p.drain = context.WithCancel(p.ctx)
	context.AfterFunc(s.waitCtx, p.drain)
	return p
}

// An outlet lets one message out at a time.
type serialSender struct {
	mu sync.Mutex
	to jsonrpc.Sender
}

// Send implements [jsonrpc.Sender].
func (s *serialSender) Send(message []byte) error {
	if s.to == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Send(message)
}

// preferredSession returns the recorded session whose requests are preferred. mu is held.
func (c *conn) preferredSession(modern bool) *session {
	if !modern {
		return c.legacy
	}
	if !c.hasModern && c.stream {
		c.hasModern, c.modern = true, c.srv.assignModern()
	}
	return c.modern
}

// Request implements streamable.RelayPeer.
func (c *conn) Request(ctx context.Context, _ []byte, m *jsonrpc.Message, out jsonrpc.Sender, dst []byte) ([]byte, error) {
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

// Notification implements streamable.RelayPeer.
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

// Response implements streamable.RelayPeer.
func (c *conn) Response(_ context.Context, _ []byte, m *jsonrpc.Message) {
	c.mu.Lock()
	answer := c.pending[string(m.ID)]
	delete(c.pending, string(m.ID))
	c.mu.Unlock()
	if answer == nil {
		c.srv.opts.Logger.Debug("an answer to nothing that was asked", "id", clip(string(m.ID), 64))
		return
	}
	answer <- m.Clone()
}

// Close implements streamable.RelayPeer.
func (c *conn) Close() { c.cancel() }

// register lists what is under way. There is no room if it returns false.
func (c *conn) register(r *responder) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream && len(c.responders) >= c.srv.opts.MaxInFlight {
		return false
	}
	c.responders[r] = struct{}{}
	return true
}

// sendRequest sends a question to the client. What it answers comes by the channel, once.
func (c *conn) sendRequest(to jsonrpc.Sender, f *frame) (answer chan *jsonrpc.Message, id jsonrpc.ID, err error) {
	c.mu.Lock()
	c.lastRequest++
	id = jsonrpc.IntID(c.lastRequest)
	answer = make(chan *jsonrpc.Message, 1)
	c.pending[string(id)] = answer
	c.mu.Unlock()
	if err := to.Send(f.append(nil, id)); err != nil {
		c.forget(id)
		return nil, id, err
	}
	return answer, id, nil
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

// missingCapability says what a client would have to have declared to be asked that; "" if nothing.
func (c *conn) missingCapability(method string, params []byte) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.features == nil || !era.IsInputRequest(method) {
		return ""
	}
	_, name := (&era.InputRequest{Method: method, Params: params}).MissingCapability(&c.client, c.features)
	return name
}

var errEnded = errors.New("mock: the request has ended without an answer")

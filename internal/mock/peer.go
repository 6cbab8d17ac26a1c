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
type peer struct {
	srv  *Server
	out  jsonrpc.Outlet // takes what belongs to no request, one message at a time
	pipe bool           // its messages are frames of a stream of bytes

	rules      *era.Session
	modernSeen bool // for the goroutine that reads a pipe

	ctx    context.Context // ends with the peer
	cancel context.CancelFunc
	quiet  context.Context // ends when the client is not waited for any more
	drain  context.CancelFunc

	mu       sync.Mutex // of what follows
	cursors  map[cursor]int
	legacy   *session   // that the handshake was given
	modern   *session   // that the first modern request was given
	isBound  bool       // modern is set
	client   era.Client // what the handshake said
	features *era.Features
	level    mcp.LoggingLevel
	plays    map[*play]struct{}
	asks     map[string]chan *jsonrpc.Message
	lastAsk  int64
	tokens   map[*entry][]byte // of progress that goes on behind the answer
	followed map[*entry]bool   // what came behind their answers was sent
}

func (s *Server) newPeer(out jsonrpc.Outlet, pipe bool) *peer {
	p := &peer{
		srv: s, out: &outlet{to: out}, pipe: pipe, rules: s.tape.rules(), cursors: map[cursor]int{}, plays: map[*play]struct{}{}, asks: map[string]chan *jsonrpc.Message{},
		tokens: map[*entry][]byte{}, followed: map[*entry]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	p.quiet, p.drain = context.WithCancel(p.ctx)
	context.AfterFunc(s.quiet, p.drain)
	return p
}

// An outlet lets one message out at a time.
type outlet struct {
	mu sync.Mutex
	to jsonrpc.Outlet
}

// Send implements [jsonrpc.Outlet].
func (o *outlet) Send(message []byte) error {
	if o.to == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Send(message)
}

// bound returns the recorded session whose requests are preferred. mu is held.
func (p *peer) bound(modern bool) *session {
	if !modern {
		return p.legacy
	}
	if !p.isBound && p.pipe {
		p.isBound, p.modern = true, p.srv.bindModern()
	}
	return p.modern
}

// Request implements streamable.RelayPeer.
func (p *peer) Request(ctx context.Context, _ []byte, m *jsonrpc.Message, out jsonrpc.Outlet, dst []byte) ([]byte, error) {
	a, err := p.accept(m)
	if err != nil {
		return dst, err
	}
	defer a.end()
	a.wire = wireOf(ctx)
	if a.out = out; out == nil {
		a.out, a.mute = p.out, true
	}
	defer context.AfterFunc(ctx, a.cancel)()
	text, err := a.run()
	if err != nil {
		return dst, err
	}
	p.follow(a)
	return append(dst, text...), nil
}

// Notification implements streamable.RelayPeer.
func (p *peer) Notification(_ context.Context, _ []byte, m *jsonrpc.Message) {
	switch string(m.Method) {
	case mcp.NotificationInitialized:
		if p.rules.Initialized() {
			p.greet()
		}
	case mcp.NotificationCancelled:
		id, _, ok := (era.Cancellation{}).Target(m)
		if !ok {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for a := range p.plays {
			if a.id.Equal(id) {
				a.cancel()
			}
		}
	}
}

// Response implements streamable.RelayPeer.
func (p *peer) Response(_ context.Context, _ []byte, m *jsonrpc.Message) {
	p.mu.Lock()
	answer := p.asks[string(m.ID)]
	delete(p.asks, string(m.ID))
	p.mu.Unlock()
	if answer == nil {
		p.srv.opts.Logger.Debug("an answer to nothing that was asked", "id", clip(string(m.ID), 64))
		return
	}
	answer <- m.Clone()
}

// Close implements streamable.RelayPeer.
func (p *peer) Close() { p.cancel() }

// enter lists what is under way. There is no room if it returns false.
func (p *peer) enter(a *play) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pipe && len(p.plays) >= p.srv.opts.MaxInFlight {
		return false
	}
	p.plays[a] = struct{}{}
	return true
}

// ask sends a question to the client. What it answers comes by the channel, once.
func (p *peer) ask(to jsonrpc.Outlet, f *frame) (answer chan *jsonrpc.Message, id jsonrpc.ID, err error) {
	p.mu.Lock()
	p.lastAsk++
	id = jsonrpc.IntID(p.lastAsk)
	answer = make(chan *jsonrpc.Message, 1)
	p.asks[string(id)] = answer
	p.mu.Unlock()
	if err := to.Send(f.append(nil, id)); err != nil {
		p.forget(id)
		return nil, id, err
	}
	return answer, id, nil
}

func (p *peer) forget(id jsonrpc.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asks, string(id))
}

// hears reports whether the client wants log messages of a level.
func (p *peer) hears(level mcp.LoggingLevel) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return level >= p.level
}

// missing says what a client would have to have declared to be asked that; "" if nothing.
func (p *peer) missing(method string, params []byte) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.features == nil || !era.IsAsk(method) {
		return ""
	}
	_, name := (&era.Ask{Method: method, Params: params}).Missing(&p.client, p.features)
	return name
}

var errEnded = errors.New("mock: the request has ended without an answer")

package bridge

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/proxy/translate"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// Handler returns a handler for clients over HTTP, in the revisions of Options.ClientEra. o has the
// options of streamable.NewHandler and may be nil; Handler returns an error if they are invalid.
// MaxInFlightPerCaller has another default: zero means 2048, because many agents may use one
// address and wait for one server. Shut the handler down before you close the bridge.
func (b *Bridge) Handler(o *streamable.Options) (*streamable.Handler, error) {
	var opts streamable.Options
	if o != nil {
		opts = *o
	}
	if opts.Limits.MaxInFlightPerCaller == 0 {
		opts.Limits.MaxInFlightPerCaller = maxInFlightPerCaller
	}
	return streamable.NewHandler(&relay.Server{Handler: b.Relay()}, &opts)
}

// Relay returns the handler of the messages that Handler serves over HTTP, for clients in this
// process. Their messages must have been checked with era.CheckForwarded. The handlers of two calls
// share no upstream for requests without a session.
func (b *Bridge) Relay() relay.Handler {
	return &httpHandler{b: b, groups: map[string]*group{}, defaults: map[string]*group{}}
}

// maxInFlightPerCaller is the default of streamable.Options.MaxInFlightPerCaller.
const maxInFlightPerCaller = 2048

// An httpHandler is the relay.Handler that connects the HTTP handler to the bridge.
type httpHandler struct {
	b *Bridge

	mu sync.Mutex
	// groups holds the groups of requests without a session, by principal and translate.ClientKey.
	groups map[string]*group
	// defaults holds the group of each principal that joins all clients of a modern server.
	defaults map[string]*group
}

func (h *httpHandler) Revisions() []mcp.Revision { return h.b.opts.ClientEra.Revisions() }

func (h *httpHandler) Serve(ctx context.Context, f jsonrpc.Framer) error { return h.b.Serve(ctx, f) }

func (h *httpHandler) Session(ctx context.Context, out rpc.Sender) relay.Peer {
	cl, err := h.b.newClientFor(callerOf(ctx), out, auth.PrincipalOf(ctx).ID(), false)
	if err != nil {
		return rejectedPeer{err: err}
	}
	if !h.b.behindGateway() {
		cl.rec.in(ctx)
	}
	return &sessionPeer{cl}
}

// A rejectedPeer is the peer of a session above a limit.
type rejectedPeer struct{ err *relay.RejectedError }

func (p rejectedPeer) Request(_ context.Context, _ []byte, _ *jsonrpc.Message, _ rpc.Sender, dst []byte) ([]byte, error) {
	return dst, p.err
}
func (rejectedPeer) Notification(context.Context, []byte, *jsonrpc.Message) {}
func (rejectedPeer) Response(context.Context, []byte, *jsonrpc.Message)     {}
func (rejectedPeer) Close()                                                 {}

func (h *httpHandler) Stateless() relay.Peer {
	if h.b.opts.ClientEra == EraLegacy {
		return nil
	}
	return &statelessPeer{h}
}

// callPrincipalKey is the context key of WithCallPrincipal.
type callPrincipalKey struct{}

// WithCallPrincipal returns a context for calls that share upstreams with those of other
// principals. id is the principal of the calls. It gets the input requests that they cause, and no
// other ones.
func WithCallPrincipal(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, callPrincipalKey{}, id)
}

// callPrincipalOf returns the id of the principal of a call, or "".
func callPrincipalOf(ctx context.Context) string {
	if id, ok := ctx.Value(callPrincipalKey{}).(string); ok {
		return id
	}
	return auth.PrincipalOf(ctx).ID()
}

// A sessionPeer is the relay.Peer of one session.
type sessionPeer struct{ cl *client }

// Request implements relay.Peer. A legacy client that disconnects does not cancel, so ctx
// ends with the session.
func (p *sessionPeer) Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	return p.cl.roundTrip(ctx, frame, m, out, dst)
}

func (p *sessionPeer) Notification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	frame, m = copyMessage(new(jsonrpc.Message), frame, m)
	p.cl.message(ctx, frame, m)
}

func (p *sessionPeer) Response(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	p.Notification(ctx, frame, m)
}

func (p *sessionPeer) Close() { p.cl.close() }

// roundTrip forwards a request and waits for the response. Meanwhile it sends the messages of the
// request to out, which must not be used after the request.
func (cl *client) roundTrip(ctx context.Context, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	w := &waiter{outbox: outbox{notify: make(chan struct{}, 1)}}
	frame, m = copyMessage(&w.request, frame, m)
	var box rpc.Sender
	if out != nil {
		box = &w.outbox
	}
	defer w.take(true)
	c := cl.request(ctx, frame, m, box, w.answer)
	for {
		response, answered := w.answerOf()
		if out != nil {
			cl.flush(&w.outbox, out, answered)
		}
		switch {
		case !answered:
		case response == nil && ctx.Err() != nil:
			return dst, context.Cause(ctx)
		case response == nil:
			return dst, jsonrpc.ErrRequestEnded
		case c.rejected != nil:
			return dst, c.rejected
		case len(dst) == 0 && len(response) >= minOwnedResponse:
			return response, nil
		default:
			return append(dst, response...), nil
		}
		select {
		case <-w.notify:
		case <-ctx.Done():
			cl.abandon(c) // it is answered then
			return dst, context.Cause(ctx)
		}
	}
}

// minOwnedResponse is the length from which a response is not copied to the caller's buffer.
const minOwnedResponse = 64 << 10

// A waiter receives the messages and the response of a request whose goroutine waits for them.
type waiter struct {
	outbox
	request jsonrpc.Message
	// response is nil if there was none. The lock of outbox guards it and answered.
	response []byte
	answered bool
}

// answer takes the response.
func (w *waiter) answer(response []byte) {
	w.mu.Lock()
	w.response, w.answered = response, true
	w.mu.Unlock()
	wait.Signal(w.notify)
}

// answerOf returns the response, and reports if the request was answered.
func (w *waiter) answerOf() (response []byte, answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.response, w.answered
}

// copyMessage returns copies of a frame, on one line, and of its message, which is own if possible.
func copyMessage(own *jsonrpc.Message, frame []byte, m *jsonrpc.Message) ([]byte, *jsonrpc.Message) {
	if frame == nil {
		frame = encodeMessage(m)
	}
	frame = compact(frame)
	if jsonrpc.Parse(frame, own, 0) != nil { // it was parsed before
		return frame, m.Clone()
	}
	return frame, own
}

// A statelessPeer is the relay.Peer of all requests without a session.
type statelessPeer struct{ handler *httpHandler }

// A group is the client for requests of one principal that may share a session with a legacy
// server, which gets the capabilities of a client only once.
type group struct {
	client   *client
	requests int
	// idleSince is the time of the last request's end, if requests is 0.
	idleSince time.Time
	// idleTimer calls expire. Requests do not stop it, because that costs more than a look at
	// idleSince.
	idleTimer *time.Timer
}

// ended reports if the group is nil or has ended.
func (g *group) ended() bool { return g == nil || g.client.ctx.Err() != nil }

// Request implements relay.Peer. A client that disconnects cancels.
func (p *statelessPeer) Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	g, err := p.handler.acquire(ctx, frame)
	if err != nil {
		return dst, err
	}
	defer p.handler.release(g)
	return g.client.roundTrip(ctx, frame, m, out, dst)
}

func (p *statelessPeer) Notification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	g, err := p.handler.acquire(ctx, frame)
	if err != nil {
		return
	}
	defer p.handler.release(g)
	frame, m = copyMessage(new(jsonrpc.Message), frame, m)
	g.client.message(ctx, frame, m)
}

// Response implements relay.Peer. Modern clients send no responses.
func (p *statelessPeer) Response(context.Context, []byte, *jsonrpc.Message) {}

func (p *statelessPeer) Close() {
	p.handler.mu.Lock()
	groups := p.handler.groups
	p.handler.groups, p.handler.defaults = map[string]*group{}, map[string]*group{}
	p.handler.mu.Unlock()
	for _, g := range groups {
		g.idleTimer.Stop()
		g.client.closeSubscriptions()
	}
}

// acquire returns the group for a principal's request, which the caller must release. The error
// says that a limit is reached.
func (h *httpHandler) acquire(ctx context.Context, frame []byte) (*group, error) {
	owner, caller := auth.PrincipalOf(ctx).ID(), callerOf(ctx)
	if h.b.opts.PerAddress {
		owner = cmp.Or(owner, caller)
	}
	// A modern server takes each request by itself, so one group is enough, and its clients receive
	// notifications of each other's subscriptions and tasks.
	key := owner
	modern := h.b.opts.ServerEra == EraModern
	if !modern {
		_, found := h.b.eras.get()
		modern = found == supportYes
	}
	if !modern {
		key += " " + translate.ClientKey(frame)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.groups[key]
	if modern {
		g = h.defaults[owner]
	}
	if g.ended() {
		var err error
		if g, err = h.newGroupLocked(owner, caller, key); err != nil {
			return nil, err
		}
	}
	g.requests++
	return g, nil
}

// release ends the use of a group by a request.
func (h *httpHandler) release(g *group) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.requests--; g.requests == 0 {
		g.idleSince = time.Now()
	}
}

// newGroupLocked returns a new group. If a limit is reached, it evicts the group that was idle
// longest, because a client that keeps changing its description could create any number of groups.
func (h *httpHandler) newGroupLocked(owner, caller, key string) (*group, error) {
	cl, err := h.b.newClientFor(caller, nil, owner, true)
	if err != nil {
		old := h.evictIdleLocked(caller, err.Status == http.StatusTooManyRequests)
		if old == nil {
			return nil, err
		}
		old.client.close()
		if cl, err = h.b.newClientFor(caller, nil, owner, true); err != nil {
			return nil, err
		}
	}
	g := &group{client: cl}
	g.idleTimer = time.AfterFunc(h.b.opts.IdleTimeout, func() { h.expire(owner, key, g) })
	h.groups[key] = g
	if h.defaults[owner].ended() {
		h.defaults[owner] = g
	}
	return g, nil
}

// evictIdleLocked removes and returns the group that was idle longest, or nil. If own is set, it
// must belong to the caller.
func (h *httpHandler) evictIdleLocked(caller string, own bool) (oldest *group) {
	at := ""
	for key, g := range h.groups {
		if g.requests == 0 && !g.ended() && (!own || g.client.caller == caller) && (oldest == nil || g.idleSince.Before(oldest.idleSince)) {
			oldest, at = g, key
		}
	}
	if oldest == nil {
		return nil
	}
	oldest.idleTimer.Stop()
	delete(h.groups, at)
	if owner := oldest.client.principalID; h.defaults[owner] == oldest {
		delete(h.defaults, owner)
	}
	return oldest
}

// minIdleCheck is the least time between two looks at a group.
const minIdleCheck = 10 * time.Millisecond

// expire ends a group that was idle too long, or looks again later.
func (h *httpHandler) expire(owner, key string, g *group) {
	h.mu.Lock()
	if h.groups[key] != g {
		h.mu.Unlock()
		return
	}
	left := h.b.opts.IdleTimeout
	if g.requests == 0 {
		left -= time.Since(g.idleSince)
	}
	if g.requests > 0 || left > 0 {
		g.idleTimer.Reset(max(left, minIdleCheck))
		h.mu.Unlock()
		return
	}
	delete(h.groups, key)
	if h.defaults[owner] == g {
		delete(h.defaults, owner)
	}
	h.mu.Unlock()
	g.client.close()
}

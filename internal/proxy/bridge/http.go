package bridge

import (
	"context"
	"net/http"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/proxy/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// Handler returns a handler for clients over HTTP, in the revisions that Options.ClientEra allows. Its options are those of streamable.NewRelay, but that zero for
// MaxInFlightPerCaller means 2048: many agents may come from one address, and wait for a server that starts. o may be nil. Shut it down before the bridge is closed.
func (b *Bridge) Handler(o *streamable.Options) (*streamable.Handler, error) {
	var opts streamable.Options
	if o != nil {
		opts = *o
	}
	if opts.MaxInFlightPerCaller == 0 {
		opts.MaxInFlightPerCaller = maxInFlightPerCaller
	}
	return streamable.NewRelay(&relay{b: b, groups: map[string]*group{}, defaults: map[string]*group{}}, &opts)
}

// maxInFlightPerCaller is the default of streamable.Options.MaxInFlightPerCaller.
const maxInFlightPerCaller = 2048

// A relay is the bridge as an HTTP handler sees it.
type relay struct {
	b *Bridge

	mu       sync.Mutex
	groups   map[string]*group // of requests without a session, by principal and what tells modern clients apart
	defaults map[string]*group // of these the one that each principal's other clients join, if nothing tells them apart
}

// Revisions implements streamable.Relay.
func (r *relay) Revisions() []mcp.Revision { return r.b.opts.ClientEra.revisions() }

// Serve implements streamable.Relay.
func (r *relay) Serve(ctx context.Context, f jsonrpc.Framer) error { return r.b.Serve(ctx, f) }

// Session implements streamable.Relay.
func (r *relay) Session(ctx context.Context, out jsonrpc.Sender) streamable.RelayPeer {
	cl, err := r.b.newClientFor(streamable.CallerOf(ctx), out, principalIDOf(ctx), false)
	if err != nil {
		return rejectedPeer{err: err}
	}
	cl.recorderIn(ctx)
	return &sessionPeer{cl}
}

// A rejecting peer is that of a session for which there is no room.
type rejectedPeer struct{ err *streamable.RejectedError }

func (p rejectedPeer) Request(_ context.Context, _ []byte, _ *jsonrpc.Message, _ jsonrpc.Sender, dst []byte) ([]byte, error) {
	return dst, p.err
}
func (rejectedPeer) Notification(context.Context, []byte, *jsonrpc.Message) {}
func (rejectedPeer) Response(context.Context, []byte, *jsonrpc.Message)     {}
func (rejectedPeer) Close()                                                 {}

// Stateless implements streamable.Relay.
func (r *relay) Stateless() streamable.RelayPeer {
	if r.b.opts.ClientEra == EraLegacy {
		return nil
	}
	return &statelessPeer{r}
}

// principalIDOf returns the id of the principal, "" if there is none.
func principalIDOf(ctx context.Context) string {
	if p := auth.PrincipalOf(ctx); p != nil {
		return p.ID()
	}
	return ""
}

// A sessionPeer is one session.
type sessionPeer struct{ cl *client }

// Request implements streamable.RelayPeer. In the legacy era, a client that has gone has not cancelled: ctx ends with the session.
func (p *sessionPeer) Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out jsonrpc.Sender, dst []byte) ([]byte, error) {
	return p.cl.roundTrip(ctx, frame, m, out, dst)
}

// Notification implements streamable.RelayPeer.
func (p *sessionPeer) Notification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	frame, m = copyMessage(frame, m)
	p.cl.notification(ctx, frame, m)
}

// Response implements streamable.RelayPeer.
func (p *sessionPeer) Response(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	frame, m = copyMessage(frame, m)
	p.cl.response(ctx, frame, m)
}

// Close implements streamable.RelayPeer.
func (p *sessionPeer) Close() { p.cl.close() }

// roundTrip hands a request on and waits for the answer. Meanwhile it sends what belongs to the request: out must not be used when the request has been served.
func (cl *client) roundTrip(ctx context.Context, frame []byte, m *jsonrpc.Message, out jsonrpc.Sender, dst []byte) ([]byte, error) {
	frame, m = copyMessage(frame, m)
	answer := make(chan []byte, 1)
	var box jsonrpc.Sender
	o := newOutbox()
	if out != nil {
		box = o
	}
	defer o.take(true)
	c := cl.request(ctx, frame, m, box, func(response []byte) { answer <- response })
	for {
		select {
		case <-o.notify:
			cl.flush(o, out, false)
		case response := <-answer:
			if out != nil {
				cl.flush(o, out, true)
			}
			if response == nil {
				return dst, jsonrpc.ErrRequestEnded
			}
			if c.rejected != nil {
				return dst, c.rejected
			}
			return append(dst, response...), nil
		case <-ctx.Done():
			cl.abandon(c)
			<-answer
			return dst, context.Cause(ctx)
		}
	}
}

// copyMessage returns a frame on one line, and the message in it, that last.
func copyMessage(frame []byte, m *jsonrpc.Message) ([]byte, *jsonrpc.Message) {
	if frame == nil {
		frame = encodeMessage(m)
	}
	frame = compact(frame)
	own := new(jsonrpc.Message)
	if jsonrpc.Parse(frame, own, 0) != nil { // which it passed before
		return frame, m.Clone()
	}
	return frame, own
}

// A statelessPeer is all requests that have no session.
type statelessPeer struct{ relay *relay }

// A group are those of one principal that may share a session with a legacy server, which declares the capabilities of a client once.
type group struct {
	client    *client
	requests  int
	idleSince time.Time // it has none
	idleTimer *time.Timer
}

// ended reports whether there is no such group, or it has ended.
func (g *group) ended() bool { return g == nil || g.client.ctx.Err() != nil }

// Request implements streamable.RelayPeer. A client that has gone has cancelled.
func (p *statelessPeer) Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out jsonrpc.Sender, dst []byte) ([]byte, error) {
	cl, done, err := p.relay.acquire(ctx, frame)
	if err != nil {
		return dst, err
	}
	defer done()
	return cl.roundTrip(ctx, frame, m, out, dst)
}

// Notification implements streamable.RelayPeer.
func (p *statelessPeer) Notification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	cl, done, err := p.relay.acquire(ctx, frame)
	if err != nil {
		return
	}
	defer done()
	frame, m = copyMessage(frame, m)
	cl.notification(ctx, frame, m)
}

// Response implements streamable.RelayPeer. In this era clients have nothing to answer.
func (p *statelessPeer) Response(context.Context, []byte, *jsonrpc.Message) {}

// Close implements streamable.RelayPeer.
func (p *statelessPeer) Close() {
	p.relay.mu.Lock()
	groups := p.relay.groups
	p.relay.groups, p.relay.defaults = map[string]*group{}, map[string]*group{}
	p.relay.mu.Unlock()
	for _, g := range groups {
		g.idleTimer.Stop()
		g.client.closeSubscriptions()
	}
}

// acquire returns the client that a principal's requests are, in use until done is called. frame is the request. The error says that there are too many.
func (r *relay) acquire(ctx context.Context, frame []byte) (cl *client, done func(), err error) {
	owner, caller := principalIDOf(ctx), streamable.CallerOf(ctx)
	key := owner
	modern := r.b.opts.ServerEra == EraModern
	if !modern {
		key += " " + translate.ClientKey(frame)
		_, found := r.b.eras.get()
		modern = found == supportYes
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[key]
	if g.ended() && modern {
		g = r.defaults[owner] // a modern server takes each request by itself, and what one of them has begun, others want to hear of
	}
	if g.ended() {
		if g, err = r.newGroupLocked(owner, caller, key); err != nil {
			return nil, nil, err
		}
	}
	g.requests++
	g.idleTimer.Stop()
	return g.client, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if g.requests--; g.requests == 0 {
			g.idleSince = time.Now()
			g.idleTimer.Reset(r.b.opts.IdleTimeout)
		}
	}, nil
}

// newGroupLocked returns a new group. If there are too many, the one goes that nobody has used for the longest: whoever says something else of himself each time would keep any number.
func (r *relay) newGroupLocked(owner, caller, key string) (*group, error) {
	cl, err := r.b.newClientFor(caller, nil, owner, true)
	if err != nil {
		old := r.evictIdleLocked(caller, err.Status == http.StatusTooManyRequests)
		if old == nil {
			return nil, err
		}
		old.client.close()
		if cl, err = r.b.newClientFor(caller, nil, owner, true); err != nil {
			return nil, err
		}
	}
	g := &group{client: cl}
	g.idleTimer = time.AfterFunc(r.b.opts.IdleTimeout, func() { r.expire(owner, key, g) })
	r.groups[key] = g
	if r.defaults[owner].ended() {
		r.defaults[owner] = g
	}
	return g, nil
}

// evictIdleLocked returns the group that has been without requests for the longest, of the caller if own is set, and forgets it; nil if there is none.
func (r *relay) evictIdleLocked(caller string, own bool) (oldest *group) {
	at := ""
	for key, g := range r.groups {
		if g.requests == 0 && !g.ended() && (!own || g.client.caller == caller) && (oldest == nil || g.idleSince.Before(oldest.idleSince)) {
			oldest, at = g, key
		}
	}
	if oldest == nil {
		return nil
	}
	oldest.idleTimer.Stop()
	delete(r.groups, at)
	if owner := oldest.client.principalID; r.defaults[owner] == oldest {
		delete(r.defaults, owner)
	}
	return oldest
}

// expire ends what nobody has used for long.
func (r *relay) expire(owner, key string, g *group) {
	r.mu.Lock()
	if g.requests > 0 || r.groups[key] != g {
		r.mu.Unlock()
		return
	}
	delete(r.groups, key)
	if r.defaults[owner] == g {
		delete(r.defaults, owner)
	}
	r.mu.Unlock()
	g.client.close()
}

package bridge

import (
	"context"
	"net/http"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// Handler returns a handler for clients over HTTP, in the revisions that Options.Near allows. Its options are those of streamable.NewRelay, but that zero for
// MaxInFlightPerCaller means 2048: many agents may come from one address, and wait for a server that starts. o may be nil. Shut it down before the bridge is closed.
func (b *Bridge) Handler(o *streamable.Options) *streamable.Handler {
	var opts streamable.Options
	if o != nil {
		opts = *o
	}
	if opts.MaxInFlightPerCaller == 0 {
		opts.MaxInFlightPerCaller = maxInFlightPerCaller
	}
	return streamable.NewRelay(&relay{b: b, groups: map[string]*group{}, firsts: map[string]*group{}}, &opts)
}

// maxInFlightPerCaller is the default of streamable.Options.MaxInFlightPerCaller.
const maxInFlightPerCaller = 2048

// A relay is the bridge as an HTTP handler sees it.
type relay struct {
	b *Bridge

	mu     sync.Mutex
	groups map[string]*group // of requests without a session, by principal and what tells modern clients apart
	firsts map[string]*group // of these the one that each principal's other clients join, if nothing tells them apart
}

// Revisions implements streamable.Relay.
func (r *relay) Revisions() []mcp.Revision { return r.b.opts.Near.revisions() }

// Serve implements streamable.Relay.
func (r *relay) Serve(ctx context.Context, f jsonrpc.Framer) error { return r.b.Serve(ctx, f) }

// Session implements streamable.Relay.
func (r *relay) Session(ctx context.Context, out jsonrpc.Outlet) streamable.RelayPeer {
	cl, err := r.b.newClientOf(streamable.CallerOf(ctx), out, ownerOf(ctx), false)
	if err != nil {
		return rejecting{err: err}
	}
	cl.laneIn(ctx)
	return &sessionPeer{cl}
}

// A rejecting peer is that of a session for which there is no room.
type rejecting struct{ err *streamable.RejectedError }

func (p rejecting) Request(_ context.Context, _ []byte, _ *jsonrpc.Message, _ jsonrpc.Outlet, dst []byte) ([]byte, error) {
	return dst, p.err
}
func (rejecting) Notification(context.Context, []byte, *jsonrpc.Message) {}
func (rejecting) Response(context.Context, []byte, *jsonrpc.Message)     {}
func (rejecting) Close()                                                 {}

// Stateless implements streamable.Relay.
func (r *relay) Stateless() streamable.RelayPeer {
	if r.b.opts.Near == EraLegacy {
		return nil
	}
	return &statelessPeer{r}
}

// ownerOf returns the id of the principal, "" if there is none.
func ownerOf(ctx context.Context) string {
	if p := auth.PrincipalOf(ctx); p != nil {
		return p.ID()
	}
	return ""
}

// A sessionPeer is one session.
type sessionPeer struct{ cl *client }

// Request implements streamable.RelayPeer. In the legacy era, a client that has gone has not cancelled: ctx ends with the session.
func (p *sessionPeer) Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out jsonrpc.Outlet, dst []byte) ([]byte, error) {
	return p.cl.await(ctx, frame, m, out, dst)
}

// Notification implements streamable.RelayPeer.
func (p *sessionPeer) Notification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	frame, m = keep(frame, m)
	p.cl.notification(ctx, frame, m)
}

// Response implements streamable.RelayPeer.
func (p *sessionPeer) Response(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	frame, m = keep(frame, m)
	p.cl.response(ctx, frame, m)
}

// Close implements streamable.RelayPeer.
func (p *sessionPeer) Close() { p.cl.close() }

// await hands a request on and waits for the answer. Meanwhile it sends what belongs to the request: out must not be used when the request has been served.
func (cl *client) await(ctx context.Context, frame []byte, m *jsonrpc.Message, out jsonrpc.Outlet, dst []byte) ([]byte, error) {
	frame, m = keep(frame, m)
	answer := make(chan []byte, 1)
	var box jsonrpc.Outlet
	o := newOutbox()
	if out != nil {
		box = o
	}
	defer o.take(true)
	c := cl.request(ctx, frame, m, box, func(response []byte) { answer <- response })
	for {
		select {
		case <-o.wake:
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
			cl.hangUp(c)
			<-answer
			return dst, context.Cause(ctx)
		}
	}
}

// keep returns a frame on one line, and the message in it, that last.
func keep(frame []byte, m *jsonrpc.Message) ([]byte, *jsonrpc.Message) {
	if frame == nil {
		frame = rebuilt(m)
	}
	frame = compact(frame)
	own := new(jsonrpc.Message)
	if jsonrpc.Parse(frame, own, 0) != nil { // which it passed before
		return frame, m.Clone()
	}
	return frame, own
}

// A statelessPeer is all requests that have no session.
type statelessPeer struct{ r *relay }

// A group are those of one principal that may share a session with a legacy server, which declares the capabilities of a client once.
type group struct {
	client *client
	users  int
	since  time.Time // it has none
	timer  *time.Timer
}

// over reports whether there is no such group, or it has ended.
func (g *group) over() bool { return g == nil || g.client.ended.Err() != nil }

// Request implements streamable.RelayPeer. A client that has gone has cancelled.
func (p *statelessPeer) Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out jsonrpc.Outlet, dst []byte) ([]byte, error) {
	cl, done, err := p.r.enter(ctx, frame)
	if err != nil {
		return dst, err
	}
	defer done()
	return cl.await(ctx, frame, m, out, dst)
}

// Notification implements streamable.RelayPeer.
func (p *statelessPeer) Notification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	cl, done, err := p.r.enter(ctx, frame)
	if err != nil {
		return
	}
	defer done()
	frame, m = keep(frame, m)
	cl.notification(ctx, frame, m)
}

// Response implements streamable.RelayPeer. In this era clients have nothing to answer.
func (p *statelessPeer) Response(context.Context, []byte, *jsonrpc.Message) {}

// Close implements streamable.RelayPeer.
func (p *statelessPeer) Close() {
	p.r.mu.Lock()
	groups := p.r.groups
	p.r.groups, p.r.firsts = map[string]*group{}, map[string]*group{}
	p.r.mu.Unlock()
	for _, g := range groups {
		g.timer.Stop()
		g.client.endListening()
	}
}

// enter returns the client that a principal's requests are, in use until done is called. frame is the request. The error says that there are too many.
func (r *relay) enter(ctx context.Context, frame []byte) (cl *client, done func(), err error) {
	owner, caller := ownerOf(ctx), streamable.CallerOf(ctx)
	key := owner
	modern := r.b.opts.Far == EraModern
	if !modern {
		key += " " + translate.ClientKey(frame)
		_, found := r.b.known.get()
		modern = found == yes
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[key]
	if g.over() && modern {
		g = r.firsts[owner] // a modern server takes each request by itself, and what one of them has begun, others want to hear of
	}
	if g.over() {
		if g, err = r.newGroupLocked(owner, caller, key); err != nil {
			return nil, nil, err
		}
	}
	g.users++
	g.timer.Stop()
	return g.client, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if g.users--; g.users == 0 {
			g.since = time.Now()
			g.timer.Reset(r.b.opts.IdleTimeout)
		}
	}, nil
}

// newGroupLocked returns a new group. If there are too many, the one goes that nobody has used for the longest: whoever says something else of himself each time would keep any number.
func (r *relay) newGroupLocked(owner, caller, key string) (*group, error) {
	cl, err := r.b.newClientOf(caller, nil, owner, true)
	if err != nil {
		old := r.forlornLocked(caller, err.Status == http.StatusTooManyRequests)
		if old == nil {
			return nil, err
		}
		old.client.close()
		if cl, err = r.b.newClientOf(caller, nil, owner, true); err != nil {
			return nil, err
		}
	}
	g := &group{client: cl}
	g.timer = time.AfterFunc(r.b.opts.IdleTimeout, func() { r.expire(owner, key, g) })
	r.groups[key] = g
	if r.firsts[owner].over() {
		r.firsts[owner] = g
	}
	return g, nil
}

// forlornLocked returns the group that has been without requests for the longest, of the caller if own is set, and forgets it; nil if there is none.
func (r *relay) forlornLocked(caller string, own bool) (oldest *group) {
	at := ""
	for key, g := range r.groups {
		if g.users == 0 && !g.over() && (!own || g.client.caller == caller) && (oldest == nil || g.since.Before(oldest.since)) {
			oldest, at = g, key
		}
	}
	if oldest == nil {
		return nil
	}
	oldest.timer.Stop()
	delete(r.groups, at)
	if owner := oldest.client.owner; r.firsts[owner] == oldest {
		delete(r.firsts, owner)
	}
	return oldest
}

// expire ends what nobody has used for long.
func (r *relay) expire(owner, key string, g *group) {
	r.mu.Lock()
	if g.users > 0 || r.groups[key] != g {
		r.mu.Unlock()
		return
	}
	delete(r.groups, key)
	if r.firsts[owner] == g {
		delete(r.firsts, owner)
	}
	r.mu.Unlock()
	g.client.close()
}

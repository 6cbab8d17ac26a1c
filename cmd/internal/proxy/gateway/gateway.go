package gateway

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/seal"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/mcp"
)

// ErrClosed is the error of a closed Gateway.
var ErrClosed = errors.New("gateway: closed")

// A Gateway connects clients to many servers. Use [New] to make one, and close it after use.
type Gateway struct {
	ctx    context.Context
	cancel context.CancelFunc
	// running are the goroutines that Close waits for.
	running wait.Group

	ring seal.Ring
	// recording is nil if nothing is recorded.
	recording *bridge.Recording
	// shared means that New got Options.Secrets, which other gateways may have too.
	shared bool
	// state is the current configuration. It is replaced as a whole.
	state atomic.Pointer[state]
	// generation changes when a catalog or the configuration does.
	generation atomic.Uint64
	indexes    indexCache
	announcer  announcer
	tasks      taskOwners
	// starts limits how many servers start at once.
	starts *bridge.Starts

	mu     sync.Mutex
	closed bool
	// live holds the upstreams that are not closed, including those that drain.
	live     map[*upstream]struct{}
	sessions map[*session]struct{}
}

// A state is a configuration. It is immutable.
type state struct {
	opts     Options
	identity *era.Identity
	// taskKeys authenticate task ids: the first one signs, all of them verify.
	taskKeys  [][]byte
	upstreams []*upstream
	byName    map[string]*upstream
	// aliases holds the renamed tools and prompts by the gateway's name.
	aliases map[string]alias
}

// An alias is a tool or prompt that has another name in the gateway.
type alias struct {
	upstream *upstream
	own      string
}

// New returns a gateway, or an error if the options are invalid. It connects to servers when a
// client needs them.
func New(o *Options) (*Gateway, error) {
	if o == nil {
		return nil, errors.New("gateway: no options")
	}
	g := &Gateway{recording: bridge.NewRecording(o.Record, o.Watched), live: map[*upstream]struct{}{}, sessions: map[*session]struct{}{}, shared: len(o.Secrets) > 0, starts: bridge.NewStarts(maxStarts())}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.announcer.start(g)
	secrets := o.Secrets
	if len(secrets) == 0 {
		secret := make([]byte, seal.MinSecret)
		rand.Read(secret) // never fails
		secrets = [][]byte{secret}
	}
	own := *o
	own.Secrets = secrets
	if err := g.Apply(&own); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// maxStarts returns how many servers may start at once: most need a processor for some seconds.
func maxStarts() int { return max(4, 2*runtime.GOMAXPROCS(0)) }

// Apply replaces the options. It returns an error, and changes nothing, if they are invalid. It
// keeps the connections of upstreams whose Name, Fingerprint, Isolation and PerPrincipal are
// unchanged, and ends the others when their pending requests have ended, or after DrainTimeout.
// Clients are notified if the lists that they see have changed. No Secrets means that they stay.
// Record cannot be changed.
func (g *Gateway) Apply(o *Options) error {
	next, err := g.replaceState(o)
	if err != nil {
		return err
	}
	if next.opts.Pin != nil {
		g.Reload() // to ask it
	}
	g.announcer.changed()
	return nil
}

// Reload reads the lists of all upstreams again, because Options.Pin decides differently now.
func (g *Gateway) Reload() {
	for _, u := range g.state.Load().upstreams {
		u.reload()
	}
}

// replaceState makes the options current.
func (g *Gateway) replaceState(o *Options) (*state, error) {
	next := &state{opts: o.withDefaults(), byName: map[string]*upstream{}, aliases: map[string]alias{}}
	g.mu.Lock() // no lock of an upstream or a catalog may be taken under it
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrClosed
	}
	was := g.state.Load()
	if len(next.opts.Secrets) == 0 {
		next.opts.Secrets = was.opts.Secrets
	}
	if err := next.makeTaskKeys(); err != nil {
		return nil, err
	}
	for i := range next.opts.Upstreams {
		conf := &next.opts.Upstreams[i]
		var u *upstream
		if was != nil {
			if old := was.byName[conf.Name]; old != nil && old.sameConnection(conf) {
				u = old
			}
		}
		if u == nil {
			u = newUpstream(g, conf)
		}
		next.upstreams = append(next.upstreams, u)
		next.byName[conf.Name] = u
	}
	next.identity = era.NewIdentity(next.opts.Info)
	if err := g.ring.Replace(next.opts.Secrets...); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	// Nothing fails from here on.
	for i := range next.opts.Upstreams {
		u := next.upstreams[i]
		u.conf.Store(&next.opts.Upstreams[i])
		g.live[u] = struct{}{}
		for own, name := range next.opts.Upstreams[i].Rename {
			next.aliases[name] = alias{u, own}
		}
	}
	g.state.Store(next)
	g.generation.Add(1)
	if was == nil {
		return next, nil
	}
	for _, u := range was.upstreams {
		if !slices.Contains(next.upstreams, u) {
			g.running.Start(func() { u.retire(next.opts.DrainTimeout) })
		}
	}
	return next, nil
}

// ReplaceSecrets replaces Options.Secrets. It returns an error, and changes nothing, if they are
// invalid.
func (g *Gateway) ReplaceSecrets(secrets ...[]byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := *g.state.Load()
	next.opts.Secrets, next.taskKeys = secrets, nil
	if err := next.makeTaskKeys(); err != nil {
		return err
	}
	if err := g.ring.Replace(secrets...); err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	g.state.Store(&next)
	g.generation.Add(1)
	return nil
}

// makeTaskKeys derives the task keys from the secrets.
func (st *state) makeTaskKeys() error {
	for _, secret := range st.opts.Secrets {
		key, err := hkdf.Key(sha256.New, secret, nil, "mcpwire gateway: task ids", 32)
		if err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
		st.taskKeys = append(st.taskKeys, key)
	}
	return nil
}

// Close ends all sessions and connections, and waits for processes and goroutines to end.
func (g *Gateway) Close() error {
	g.mu.Lock()
	g.closed = true
	sessions, upstreams := slices.Collect(maps.Keys(g.sessions)), slices.Collect(maps.Keys(g.live))
	g.mu.Unlock()
	g.cancel()
	for _, s := range sessions {
		s.Close()
	}
	var retiring sync.WaitGroup
	for _, u := range upstreams {
		retiring.Go(func() { u.retire(0) })
	}
	retiring.Wait()
	g.running.Wait()
	return nil
}

// Revisions implements relay.Handler.
func (g *Gateway) Revisions() []mcp.Revision { return mcp.Revisions() }

// Stateless implements relay.Handler.
func (g *Gateway) Stateless() relay.Peer {
	return &statelessPeer{g: g, subscriptions: map[*subscription]struct{}{}, recorders: map[string]*bridge.ClientRecorder{}}
}

// Session implements relay.Handler. A nil Peer says that there are too many sessions.
func (g *Gateway) Session(ctx context.Context, out rpc.Sender) relay.Peer {
	if s := g.openSession(ctx, out, g.recording.ClientRecorder()); s != nil {
		return s
	}
	return nil
}

// openSession is Session with the recorder of the client. It returns nil if there are too many
// sessions.
func (g *Gateway) openSession(ctx context.Context, out rpc.Sender, recorder *bridge.ClientRecorder) *session {
	s := newSession(g, ctx, out, recorder)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || len(g.sessions) >= g.state.Load().opts.MaxSessions {
		return nil
	}
	g.sessions[s] = struct{}{}
	return s
}

// SharedKeys implements relay.Sharer. Without Options.Secrets, no other gateway can have the keys.
func (g *Gateway) SharedKeys() (ring *seal.Ring, name string) {
	if !g.shared {
		return nil, ""
	}
	return &g.ring, g.state.Load().opts.Info.Name
}

// SharedSession implements relay.Sharer.
func (g *Gateway) SharedSession(ctx context.Context, out rpc.Sender, callPrefix string) relay.Peer {
	s := g.openSession(ctx, out, g.recording.ClientRecorder())
	if s == nil {
		return nil
	}
	s.callPrefix = callPrefix + "."
	return s
}

// Recorded wraps a handler that serves the gateway. If the gateway records, it records the heads of
// requests and responses.
func (g *Gateway) Recorded(h http.Handler) http.Handler { return g.recording.Handler(h) }

// anonymous returns ctx without the caller, whose calls share the upstreams of all callers.
func anonymous(ctx context.Context) context.Context {
	ctx = bridge.WithCallPrincipal(ctx, auth.PrincipalOf(ctx).ID())
	return (*relay.Server)(nil).WithIdentity(auth.WithPrincipal(ctx, nil), "", "")
}

// view returns the view of the caller, or nil if it may see everything.
func (st *state) view(ctx context.Context) View {
	if st.opts.View == nil {
		return nil
	}
	return st.opts.View(ctx)
}

// unavailable returns the error of a request that a limit or the end of the gateway rejects.
func unavailable(reason string) *relay.RejectedError {
	return &relay.RejectedError{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Reason: reason}
}

package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
)

// An upstream is a server of the configuration. Its methods may be called by many goroutines at
// once.
type upstream struct {
	g    *Gateway
	name string
	// conf is the current configuration. Apply replaces it.
	conf atomic.Pointer[Upstream]
	// catalogBytes is the length of the lists in all catalogs.
	catalogBytes atomic.Int64

	mu sync.Mutex
	// backends holds the backends by CredentialID; without PerPrincipal, one with the key "".
	backends map[string]*backend
	// inFlight counts the pending requests of clients.
	inFlight int
	// drained ends when the upstream is retired and inFlight is 0, and with the gateway.
	drained context.Context
	cancel  context.CancelFunc
	retired bool
	closed  bool
}

// A backend is the bridge to a server, or to a server as one principal uses it.
type backend struct {
	u         *upstream
	principal string
	// base has the values of the principal.
	base      context.Context
	created   time.Time
	bridge    *bridge.Bridge
	relay     relay.Handler
	stateless relay.Peer
	// catalogs holds the catalogs for legacy and modern clients, and then those for clients
	// without MCP Apps, which only servers with apps need.
	catalogs [4]*catalog
	// done is closed when the backend is closed.
	done chan struct{}

	// users counts the requests and sessions that use the backend. upstream.mu guards it and idle.
	users int
	idle  *time.Timer
}

// maxBackends limits the principals that use an upstream at once, with PerPrincipal.
const maxBackends = 1000

func newUpstream(g *Gateway, conf *Upstream) *upstream {
	u := &upstream{g: g, name: conf.Name, backends: map[string]*backend{}}
	u.drained, u.cancel = context.WithCancel(g.ctx)
	u.conf.Store(conf)
	return u
}

// sameConnection reports if the upstream can serve another configuration with its connections.
func (u *upstream) sameConnection(conf *Upstream) bool {
	c := u.conf.Load()
	return c.Fingerprint != "" && c.Fingerprint == conf.Fingerprint && c.Isolation == conf.Isolation && c.PerPrincipal == conf.PerPrincipal
}

// keyOf returns the key of the backend for the caller of ctx.
func (u *upstream) keyOf(ctx context.Context) string {
	if u.conf.Load().PerPrincipal {
		return CredentialID(auth.PrincipalOf(ctx))
	}
	return ""
}

// CredentialID returns the id of a principal with its scopes, or "" for nil. Callers with the same
// one may share connections whose credentials depend on the caller. A caller with fewer scopes must
// not use the credentials of one with more.
func CredentialID(p *auth.Principal) string {
	if p == nil {
		return ""
	}
	scopes := p.Scopes
	if !slices.IsSorted(scopes) {
		scopes = slices.Sorted(slices.Values(scopes))
	}
	return p.ID() + " " + strings.Join(scopes, " ")
}

// acquire returns the backend for the caller of ctx. The caller must release it.
func (u *upstream) acquire(ctx context.Context) (*backend, error) {
	key := u.keyOf(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, unavailable("the gateway no longer serves " + u.name)
	}
	be := u.backends[key]
	if be == nil {
		if len(u.backends) >= maxBackends && !u.evictIdleLocked() {
			return nil, unavailable("too many users of " + u.name)
		}
		var err error
		if be, err = u.newBackend(ctx, key); err != nil {
			return nil, err
		}
		u.backends[key] = be
	}
	be.users++
	be.idle.Stop()
	return be, nil
}

// peek returns the backend with a key, or nil.
func (u *upstream) peek(key string) *backend {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.backends[key]
}

// release ends the use of a backend.
func (be *backend) release() {
	u := be.u
	u.mu.Lock()
	defer u.mu.Unlock()
	if be.users--; be.users == 0 && be.principal != "" {
		be.idle.Reset(u.idleTimeout())
	}
}

func (u *upstream) idleTimeout() time.Duration {
	return cmp.Or(u.conf.Load().Bridge.IdleTimeout, 30*time.Minute)
}

// begin counts a request of a client. The caller must call end.
func (u *upstream) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inFlight++
}

func (u *upstream) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inFlight--
	u.checkDrainedLocked()
}

func (u *upstream) checkDrainedLocked() {
	if u.retired && u.inFlight == 0 {
		u.cancel()
	}
}

// retire waits until no request is pending, or for the timeout, and closes the upstream.
func (u *upstream) retire(timeout time.Duration) {
	u.mu.Lock()
	u.retired = true
	u.checkDrainedLocked()
	u.mu.Unlock()
	wait.Sleep(u.drained, timeout)
	u.cancel()
	u.mu.Lock()
	u.closed = true
	all := slices.Collect(maps.Values(u.backends))
	clear(u.backends)
	u.mu.Unlock()
	u.g.mu.Lock()
	sessions := slices.Collect(maps.Keys(u.g.sessions))
	delete(u.g.live, u)
	u.g.mu.Unlock()
	for _, s := range sessions {
		s.forget(u)
	}
	var wg sync.WaitGroup
	for _, be := range all {
		wg.Go(be.close)
	}
	wg.Wait()
}

// reload reads the catalogs again.
func (u *upstream) reload() {
	u.mu.Lock()
	backends := slices.Collect(maps.Values(u.backends))
	u.mu.Unlock()
	for _, be := range backends {
		for _, c := range be.catalogs {
			if snap, _ := c.current(); snap != nil {
				c.changed()
			}
		}
	}
}

// newBackend returns a backend for the principal of ctx, with the given key.
func (u *upstream) newBackend(ctx context.Context, key string) (*backend, error) {
	conf := u.conf.Load()
	o := conf.Bridge
	o.Name, o.NameErrors, o.ClientEra = u.name, true, bridge.EraAuto
	o.Shared, o.PerAddress, o.Starts = conf.Isolation != IsolateClients, conf.Isolation == IsolateClients, u.g.starts
	o.Record, o.Recording, o.Logger = nil, u.g.recording, u.g.state.Load().opts.Logger
	base := context.Background()
	if key != "" {
		base = context.WithoutCancel(ctx)
	}
	o.BaseContext = base
	b, err := bridge.New(&o)
	if err != nil {
		return nil, err
	}
	be := &backend{u: u, principal: key, base: base, created: time.Now(), bridge: b, relay: b.Relay(), done: make(chan struct{})}
	be.stateless = be.relay.Stateless()
	for i := range be.catalogs {
		be.catalogs[i] = newCatalog(be, bridge.EraLegacy+bridge.Era(i%2), i < 2, Catalogs[(i+2)%4])
	}
	be.idle = time.AfterFunc(u.idleTimeout(), be.expire)
	be.idle.Stop()
	return be, nil
}

// evictIdleLocked closes a backend without users. It reports if there was one.
func (u *upstream) evictIdleLocked() bool {
	for key, be := range u.backends {
		if be.users == 0 && key != "" {
			u.removeLocked(be)
			return true
		}
	}
	return false
}

// removeLocked removes a backend and closes it.
func (u *upstream) removeLocked(be *backend) {
	be.idle.Stop()
	if u.g.running.Start(be.close) { // otherwise retire closes it
		delete(u.backends, be.principal)
	}
}

// expire closes a backend that was idle too long.
func (be *backend) expire() {
	u := be.u
	u.mu.Lock()
	defer u.mu.Unlock()
	if be.users == 0 && u.backends[be.principal] == be {
		u.removeLocked(be)
	}
}

// close ends the connections and waits for them.
func (be *backend) close() {
	be.idle.Stop()
	close(be.done)
	for _, c := range be.catalogs {
		c.close()
	}
	be.stateless.Close()
	be.bridge.Close()
}

// catalog returns the catalog for the client of the caller.
func (be *backend) catalog(ctx context.Context, clientEra bridge.Era) *catalog {
	i := 0
	if clientEra == bridge.EraModern {
		i = 1
	}
	if snap, _ := be.catalogs[i].current(); snap != nil && snap.apps && !showsApps(ctx) {
		i += 2
	}
	return be.catalogs[i]
}

// callerContext returns ctx as the bridge is to see it.
func (be *backend) callerContext(ctx context.Context) context.Context {
	if be.u.conf.Load().Isolation == IsolateNone {
		return anonymous(ctx)
	}
	return ctx
}

package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
)

// A Client talks to one server and replaces the connection when it is lost. Create one with [Dial].
// Multiple goroutines may call its methods at once.
type Client struct {
	opts Options
	// state of tools, lists, subscriptions and tasks
	serverState

	transport Transport
	offer     era.ClientProfile
	// chain runs all middleware. It is nil without middleware.
	chain *middleware.Chain
	log   *slog.Logger
	// ids numbers the requests of all connections.
	ids atomic.Int64
	// tokens numbers progress tokens.
	tokens atomic.Int64
	conn   atomic.Pointer[connection]
	// negotiated is the result of the last negotiation.
	negotiated atomic.Pointer[negotiated]
	profile    atomic.Pointer[Profile]
	// lastFailure is the end of the last connection or the error of the last attempt to connect.
	lastFailure          atomic.Pointer[error]
	notificationHandlers notificationHandlers
	callbacks            callbackRegistry
	callPool             sync.Pool

	mu sync.Mutex
	// changed is closed when conn or endErr is set. publish replaces it.
	changed chan struct{}
	// endErr is the error of all calls after the end.
	endErr error
	// err is the result of Err.
	err error
	// reconnectHooks are the functions that onReconnect registered.
	reconnectHooks []func()

	// stop ends supervise.
	stop context.CancelFunc
	wg   sync.WaitGroup
	done chan struct{}
}

// Dial connects to a server and negotiates the era and revision. ctx covers the dialing only; the
// caller must close the Client. opts may be nil; Dial copies it.
//
// The error is an *[IncompatibleError] if both sides have no revision in common, a
// *[ProtocolError], or a *[TimeoutError]. It wraps a *[jsonrpc.Error] if the server refused, or
// else the error of the transport.
func Dial(ctx context.Context, transport Transport, opts *Options) (*Client, error) {
	c := &Client{transport: transport, changed: make(chan struct{}), done: make(chan struct{})}
	if opts != nil {
		c.opts = *opts
	}
	if err := c.opts.resolve(); err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c.log = c.opts.Logger
	c.offer = c.opts.offer()
	if len(c.opts.Middleware) > 0 {
		c.chain = middleware.NewChain(c.opts.Middleware...)
	}
	if v := c.opts.Profile; v != nil {
		profile := *v
		c.profile.Store(&profile)
	}
	conn, err := c.establish(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c.conn.Store(conn)
	runCtx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.wg.Go(func() { c.supervise(runCtx, conn) })
	return c, nil
}

// Close closes the connection and waits for all goroutines and handlers of the Client. Calls in
// flight fail with an error that wraps [jsonrpc.ErrClosed]. Close may be called more than once.
func (c *Client) Close() error {
	c.stop()
	<-c.done
	c.wg.Wait()
	c.serverState.wait()
	return nil
}

// Done returns a channel that is closed when the Client has ended, by Close or because it cannot
// connect again.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns the reason for the end once Done is closed. It is nil after Close.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Revision returns the protocol revision in use.
func (c *Client) Revision() mcp.Revision { return c.negotiated.Load().Revision }

// Modern reports whether the revision in use belongs to the modern, stateless era.
func (c *Client) Modern() bool { return c.negotiated.Load().Modern }

// ServerInfo returns the name and version that the server claims.
func (c *Client) ServerInfo() mcp.Implementation { return c.negotiated.Load().profile.Server }

// ServerCapabilities returns the capabilities that the server declared.
func (c *Client) ServerCapabilities() mcp.ServerCapabilities {
	return c.negotiated.Load().profile.Capabilities
}

// Instructions returns the server's hints for the model, or "".
func (c *Client) Instructions() string { return c.negotiated.Load().profile.Instructions }

// Profile returns what the Client learned about the server, for [Options.Profile].
func (c *Client) Profile() Profile { return *c.negotiated.Load().profile }

type clientKey struct{}

// FromContext returns the Client that runs a handler of [Options] or its middleware, or nil. A
// handler can tell the user which server asks.
func FromContext(ctx context.Context) *Client {
	c, _ := ctx.Value(clientKey{}).(*Client)
	return c
}

// RootsChanged tells a legacy server that [InputOptions.Roots] would return a different list now.
// It does nothing for modern servers, which ask when they need the list.
func (c *Client) RootsChanged(ctx context.Context) error {
	if neg := c.negotiated.Load(); neg.Modern || !neg.accepts.Roots {
		return nil
	}
	return c.Notify(ctx, mcp.NotificationRootsChanged, nil)
}

var errClosedByUser = errors.New("the client was closed")

// current returns the connection. Without one it returns a channel that is closed when that may
// have changed, or the error of a Client that has ended.
func (c *Client) current() (*connection, <-chan struct{}, error) {
	if conn := c.conn.Load(); conn != nil {
		return conn, nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.conn.Load(); conn != nil {
		return conn, nil, nil
	}
	return nil, c.changed, c.endErr
}

// publish makes conn the connection that calls use.
func (c *Client) publish(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.Store(conn)
	close(c.changed)
	c.changed = make(chan struct{})
}

// dropConnection stops calls from using conn.
func (c *Client) dropConnection(conn *connection) { c.conn.CompareAndSwap(conn, nil) }

// end makes all present and future calls fail. reason is nil after Close.
func (c *Client) end(reason error) {
	if fn := c.opts.OnEnd; fn != nil {
		defer fn(c, reason)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = reason
	if reason == nil {
		reason = errClosedByUser
	}
	c.endErr = fmt.Errorf("%w: %w", jsonrpc.ErrClosed, reason)
	c.conn.Store(nil)
	close(c.changed)
	close(c.done)
}

// serverState is the state of a Client beyond sending requests. The zero value is ready to use;
// trackChanges sets up the parts that need the Client.
type serverState struct {
	trackOnce sync.Once
	// ownCache belongs to this client alone. It is nil if the client caches nothing.
	ownCache atomic.Pointer[Cache]
	tools    toolCatalog
	// outputTypes maps a reflect.Type to its *schema.Typed, for results.
	outputTypes sync.Map
	subs        subscriptions
	// goroutines of subscriptions and tasks
	goroutines goroutineGroup

	// withdrawnCalls are canceled calls that may have become tasks.
	withdrawnCalls withdrawnCalls

	// noTaskUpdates is set if the server sends no task notifications.
	noTaskUpdates atomic.Bool
	// logLevel is the mcp.LoggingLevel that SetLevel has set.
	logLevel atomic.Uint32
}

// trackChanges registers the handlers of change notifications. Methods that keep something that can
// become stale call it before they ask the server.
func (c *Client) trackChanges() {
	c.trackOnce.Do(func() {
		if c.opts.Cache.MaxBytes >= 0 {
			// before the handlers: the reader may use it at once
			c.ownCache.Store(NewCache(c.opts.Cache.MaxBytes))
		}
		for method, kind := range changeKinds {
			c.onNotify(method, func(params []byte) { c.handleChange(kind, params) })
		}
		c.onNotify(mcp.NotificationAcknowledged, c.subs.acknowledged)
		c.onReconnect(func() {
			c.clearCaches()
			c.subs.reconnected()
			c.restoreLogLevel()
		})
	})
}

// wait waits for the goroutines of subscriptions and tasks, which end after the last connection.
func (ss *serverState) wait() { ss.goroutines.wait() }

// A goroutineGroup is a set of goroutines to wait for. The zero value is empty.
type goroutineGroup struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// start runs fn on a new goroutine. It returns false if wait was called before.
func (g *goroutineGroup) start(fn func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.wg.Go(fn)
	}
	return !g.closed
}

func (g *goroutineGroup) wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}

// ForgetCached drops the client's own cached responses and its knowledge of the server's tools.
// Call it when the client gets other credentials, because another user may see other data.
func (c *Client) ForgetCached() {
	c.trackChanges()
	c.clearCaches()
}

func (c *Client) clearCaches() {
	c.tools.clear()
	if cache := c.ownCache.Load(); cache != nil {
		cache.clear()
	}
}

// invalidate drops the cached responses that e makes stale.
func (c *Client) invalidate(e Event) {
	drop := func(method string, gone func(params string) bool) {
		for _, cache := range c.caches() {
			cache.invalidate(method, gone)
		}
	}
	switch e.Kind {
	case ToolsListChanged:
		c.tools.clear()
		drop(mcp.MethodToolsList, nil)
	case PromptsListChanged:
		drop(mcp.MethodPromptsList, nil)
	case ResourcesListChanged:
		drop(mcp.MethodResourcesList, nil)
		drop(mcp.MethodResourceTemplatesList, nil)
	case ResourceUpdated:
		drop(mcp.MethodResourcesRead, func(params string) bool { return overlaps(parseURIParam([]byte(params)), e.URI) })
	}
}

// caches returns the caches in use, the client's own first.
func (c *Client) caches() []*Cache {
	var all []*Cache
	for _, cache := range []*Cache{c.ownCache.Load(), c.opts.Cache.Shared} {
		if cache != nil {
			all = append(all, cache)
		}
	}
	return all
}

// Ping asks the server for any answer: it sends ping to a legacy server and server/discover to a
// modern one.
func (c *Client) Ping(ctx context.Context, opts ...CallOption) error {
	r := &request{method: mcp.MethodPing, repeatable: true, opts: newCallOptions(opts)}
	if !era.Of(c.Revision()).HasMethod([]byte(mcp.MethodPing)) {
		r.method = mcp.MethodDiscover
	}
	_, err := c.roundTrip(ctx, r)
	return err
}

// Discover asks a modern server for its identity and capabilities. Legacy servers give theirs in
// the handshake, see [Client.ServerInfo], [Client.ServerCapabilities] and [Client.Instructions];
// for them the error wraps [errors.ErrUnsupported].
func (c *Client) Discover(ctx context.Context, opts ...CallOption) (*mcp.DiscoverResult, error) {
	if !c.Modern() {
		return nil, fmt.Errorf("discover: revision %v: %w", c.Revision(), errors.ErrUnsupported)
	}
	return getCacheable[mcp.DiscoverResult](ctx, c, mcp.MethodDiscover, nil, opts)
}

// SetLevel sets the lowest level of the log messages that a legacy server sends to
// [Options.OnNotification]. The Client sets it again after a reconnect. Modern servers take the
// level from each request: use [WithLog] instead. For them the error wraps [errors.ErrUnsupported].
func (c *Client) SetLevel(ctx context.Context, level mcp.LoggingLevel, opts ...CallOption) error {
	if c.Modern() {
		return fmt.Errorf("set level: revision %v has levels for each request: use WithLog: %w", c.Revision(), errors.ErrUnsupported)
	}
	name, err := level.MarshalText()
	if err != nil {
		return fmt.Errorf("set level: %w", err)
	}
	c.trackChanges()
	params := append(jsonwire.AppendQuote([]byte(`{"level":`), name), '}')
	_, err = c.roundTrip(ctx, &request{method: mcp.MethodSetLevel, params: params, repeatable: true, opts: newCallOptions(opts)})
	if err == nil {
		c.logLevel.Store(uint32(level))
	}
	return err
}

// restoreLogLevel sets the log level on a new connection if SetLevel was called before.
func (c *Client) restoreLogLevel() {
	level := mcp.LoggingLevel(c.logLevel.Load())
	if level == mcp.LevelNone || c.Modern() {
		return
	}
	c.goroutines.start(func() {
		if err := c.SetLevel(context.Background(), level); err != nil {
			c.log.Info("log level not restored", "error", err)
		}
	})
}

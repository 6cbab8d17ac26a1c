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
)

// A Client is a connection to one server, made again when it is lost. Make one with [Dial]. Its methods may be called by many goroutines at once.
type Client struct {
	opts        Options
	serverState // of tools, lists, subscriptions and tasks

	transport            Transport
	offer                era.ClientProfile
	chain                HandlerFunc // all middleware; nil if there is none
	log                  *slog.Logger
	ids                  atomic.Int64 // of requests, on all connections
	tokens               atomic.Int64 // of progress
	conn                 atomic.Pointer[connection]
	negotiated           atomic.Pointer[negotiated] // the last that were agreed on
	profile              atomic.Pointer[Profile]
	lastFailure          atomic.Pointer[error] // how the last connection ended, or why the last attempt failed
	notificationHandlers notificationHandlers
	callbacks            callbackRegistry
	callPool             sync.Pool

	mu             sync.Mutex
	changed        chan struct{} // closed, and replaced, when live or ended is set
	endErr         error         // why no call can be made any more
	err            error         // what Err returns
	reconnectHooks []func()      // of onReconnect

	stop context.CancelFunc // of supervise
	wg   sync.WaitGroup
	done chan struct{}
}

// Dial connects to a server, finds out which era and revision it speaks and agrees on one. ctx covers the dialing only; close the Client in the end. opts
// may be nil; it is copied.
//
// The error is an *[IncompatibleError] if there is no revision that both sides speak, a *[ProtocolError] or a *[TimeoutError], wraps a *[jsonrpc.Error] if the
// server refused, and otherwise says why there is no connection.
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
	c.chain = newChain(c.opts.Middleware)
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

// Close ends the connection and waits for everything that belongs to it. Calls under way fail with an error that wraps [jsonrpc.ErrClosed]. It may be
// called more than once.
func (c *Client) Close() error {
	c.stop()
	<-c.done
	c.wg.Wait()
	c.serverState.wait()
	return nil
}

// Done is closed when the Client has ended: because it was closed, or because its connection is lost for good.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the Client has ended, once Done is closed; nil after Close.
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

// Modern reports whether the revision in use is stateless.
func (c *Client) Modern() bool { return c.negotiated.Load().Modern }

// ServerInfo returns what the server says of itself, which is not to be relied on.
func (c *Client) ServerInfo() mcp.Implementation { return c.negotiated.Load().profile.Server }

// ServerCapabilities returns what the server declared.
func (c *Client) ServerCapabilities() mcp.ServerCapabilities {
	return c.negotiated.Load().profile.Capabilities
}

// Instructions returns the server's hints for the model, or "".
func (c *Client) Instructions() string { return c.negotiated.Load().profile.Instructions }

// Profile returns what is known of the server, for [Options.Profile].
func (c *Client) Profile() Profile { return *c.negotiated.Load().profile }

type clientKey struct{}

// FromContext returns the Client that a handler of [Options] is called for, or nil: which server asks is for the user to know.
func FromContext(ctx context.Context) *Client {
	c, _ := ctx.Value(clientKey{}).(*Client)
	return c
}

// RootsChanged tells a legacy server that [Options.Roots] would return something else now. Modern servers ask when they want to know.
func (c *Client) RootsChanged(ctx context.Context) error {
	if neg := c.negotiated.Load(); neg.Modern || !neg.accepts.Roots {
		return nil
	}
	return c.Notify(ctx, mcp.NotificationRootsChanged, nil)
}

var errClosedByUser = errors.New("the client was closed")

// current returns the connection; if there is none, a channel that is closed when that may have changed; or why there will never be one.
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

// publish makes l the connection that calls use.
func (c *Client) publish(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.Store(conn)
	close(c.changed)
	c.changed = make(chan struct{})
}

// dropConnection takes a connection that has ended out of use.
func (c *Client) dropConnection(conn *connection) { c.conn.CompareAndSwap(conn, nil) }

// end makes all calls fail, those to come as well. why is nil after Close.
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

// serverState is what a Client knows and does beyond sending requests. The zero value is ready; prepare makes what needs the Client.
type serverState struct {
	trackOnce   sync.Once
	ownCache    atomic.Pointer[Cache] // of this client alone; nil keeps nothing
	tools       toolCatalog
	outputTypes sync.Map // by reflect.Type: its *schema.Typed, for results
	subs        subscriptions
	goroutines  goroutineGroup // goroutines of subscriptions and tasks

	withdrawnCalls withdrawnCalls // calls that were given up, and may be tasks

	noTaskUpdates atomic.Bool   // the server does not tell of tasks by itself
	logLevel      atomic.Uint32 // the mcp.LoggingLevel that SetLevel has set
}

// trackChanges has the client listen to what the server tells without being asked. It is called by whatever keeps something that can become stale, before it
// asks the server for it.
func (c *Client) trackChanges() {
	c.trackOnce.Do(func() {
		if c.opts.CacheBytes >= 0 {
			c.ownCache.Store(NewCache(c.opts.CacheBytes)) // the reader may look at it just now
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

// wait waits for the goroutines of the features, which end when the connection has ended for good.
func (ss *serverState) wait() { ss.goroutines.wait() }

// A crew is goroutines that somebody waits for in the end. The zero value has none.
type goroutineGroup struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// start runs fn on a goroutine, unless the end has come.
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

// ForgetCached drops all responses that the client has cached for itself, and what it knows of the server's tools. It has to be called when the client gets
// other credentials: what one user may see is not another's.
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

// invalidate acts on the news that something has changed: responses that tell of it are not good any more.
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

// caches returns those that the client uses, its own first.
func (c *Client) caches() []*Cache {
	var all []*Cache
	for _, cache := range []*Cache{c.ownCache.Load(), c.opts.Cache} {
		if cache != nil {
			all = append(all, cache)
		}
	}
	return all
}

// Ping asks the server for a sign of life: by ping if it is a legacy one, by server/discover if it is a modern one.
func (c *Client) Ping(ctx context.Context, opts ...CallOption) error {
	r := &request{method: mcp.MethodPing, repeatable: true, opts: newCallOptions(opts)}
	if !era.Of(c.Revision()).HasMethod([]byte(mcp.MethodPing)) {
		r.method = mcp.MethodDiscover
	}
	_, err := c.roundTrip(ctx, r)
	return err
}

// Discover asks a modern server what it is and what it can do. Legacy servers say so in the handshake, see [Client.ServerInfo], [Client.ServerCapabilities]
// and [Client.Instructions]; for them the error wraps [errors.ErrUnsupported].
func (c *Client) Discover(ctx context.Context, opts ...CallOption) (*mcp.DiscoverResult, error) {
	if !c.Modern() {
		return nil, fmt.Errorf("discover: revision %v: %w", c.Revision(), errors.ErrUnsupported)
	}
	return getCacheable[mcp.DiscoverResult](ctx, c, mcp.MethodDiscover, nil, opts)
}

// SetLevel tells a legacy server from which level on to send log messages; they go to [Options.OnNotification]. Modern servers know no such state: they send
// the messages of one request, at the level that the request itself asks for, so give the calls [WithLog] instead. For them the error
// wraps [errors.ErrUnsupported]. When the connection is lost, the server of the next one is told again.
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

// restoreLogLevel tells the server of a new connection from which level on to send log messages, if anybody has wanted to.
func (c *Client) restoreLogLevel() {
	level := mcp.LoggingLevel(c.logLevel.Load())
	if level == mcp.LevelNone || c.Modern() {
		return
	}
	c.goroutines.start(func() {
		if err := c.SetLevel(context.Background(), level); err != nil {
			c.log.Info("level of log messages not set again", "error", err)
		}
	})
}

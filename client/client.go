package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
	"mcpwire/middleware"
)

// A Client talks to one server and replaces the connection when it is lost. Create one with [Dial].
// Multiple goroutines may call its methods at once.
type Client struct {
	opts  Options
	offer era.ClientProfile
	// chain runs all middleware. It is nil without middleware.
	chain    *middleware.Chain
	log      *slog.Logger
	callPool sync.Pool

	// The parts of a Client. Each has its own state and lock.
	conns     connector
	callbacks callbackRegistry
	inputs    inputServer
	caches    cacheSet
	tools     toolCatalog
	subs      subscriptions
	tasks     taskTracker

	// goroutines are those of subscriptions and tasks.
	goroutines wait.Group
	// logLevel is the mcp.LoggingLevel that SetLevel has set.
	logLevel atomic.Uint32
}

// Dial connects to a server and negotiates the era and revision. ctx covers the dialing only; the
// caller must close the Client. opts may be nil; Dial copies it.
//
// The error is an *[IncompatibleError] if both sides have no revision in common, a
// *[ProtocolError], or a *[TimeoutError]. It wraps a *[jsonrpc.Error] if the server refused, or
// else the error of the transport.
func Dial(ctx context.Context, transport Transport, opts *Options) (*Client, error) {
	c := new(Client)
	c.conns = connector{c: c, transport: transport, changed: make(chan struct{}), done: make(chan struct{})}
	c.inputs.c, c.caches.c, c.tools.c, c.subs.c, c.tasks.c = c, c, c, c, c
	c.subs.legacySlot = make(chan struct{}, 1)
	if opts != nil {
		c.opts = *opts
	}
	if err := c.opts.resolve(); err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c.log = c.opts.Logger
	c.callbacks.log = c.log
	c.offer = c.opts.offer()
	if c.opts.Cache.MaxBytes >= 0 {
		c.caches.own = NewCache(c.opts.Cache.MaxBytes)
	}
	if len(c.opts.Middleware) > 0 {
		c.chain = middleware.NewChain(c.opts.Middleware...)
	}
	if v := c.opts.Profile; v != nil {
		profile := *v
		c.conns.profile.Store(&profile)
	}
	conn, err := c.conns.establish(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c.conns.live.Store(conn)
	runCtx, stop := context.WithCancel(context.Background())
	c.conns.stop = stop
	c.conns.wg.Go(func() { c.conns.supervise(runCtx, conn) })
	return c, nil
}

// Close closes the connection and waits for all goroutines and handlers of the Client. Calls in
// flight fail with an error that wraps [jsonrpc.ErrClosed]. Close may be called more than once.
func (c *Client) Close() error {
	c.conns.stop()
	<-c.conns.done
	c.conns.wg.Wait()
	c.goroutines.Wait()
	return nil
}

// Done returns a channel that is closed when the Client has ended, by Close or because it cannot
// connect again.
func (c *Client) Done() <-chan struct{} { return c.conns.done }

// Err returns the reason for the end once Done is closed. It is nil after Close.
func (c *Client) Err() error {
	select {
	case <-c.conns.done:
		return c.conns.err
	default:
		return nil
	}
}

// Revision returns the protocol revision in use.
func (c *Client) Revision() mcp.Revision { return c.conns.negotiated.Load().Revision }

// Profile returns what the Client learned about the server: its name, version, capabilities and
// instructions. It can be the [Options.Profile] of a later [Dial].
func (c *Client) Profile() Profile { return *c.conns.negotiated.Load().profile }

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
	if neg := c.conns.negotiated.Load(); neg.Modern || !neg.accepts.Roots {
		return nil
	}
	return c.Notify(ctx, mcp.NotificationRootsChanged, nil)
}

var errClosedByUser = errors.New("the client was closed")

// ForgetCached drops the client's own cached responses and its knowledge of the server's tools.
// Call it when the client gets other credentials, because another user may see other data.
func (c *Client) ForgetCached() {
	c.caches.clear()
	c.tools.clear()
}

// Ping asks the server for any response: it sends ping to a legacy server and server/discover to a
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
// the handshake, see [Client.Profile]; for them the error wraps [errors.ErrUnsupported].
func (c *Client) Discover(ctx context.Context, opts ...CallOption) (*mcp.DiscoverResult, error) {
	if !c.Revision().Modern() {
		return nil, fmt.Errorf("discover: revision %v: %w", c.Revision(), errors.ErrUnsupported)
	}
	return getCacheable[mcp.DiscoverResult](ctx, c, mcp.MethodDiscover, nil, opts)
}

// SetLevel sets the lowest level of the log messages that a legacy server sends to
// [Options.OnNotification]. The Client sets it again after a reconnect. Modern servers take the
// level from each request: use [WithLog] instead. For them the error wraps [errors.ErrUnsupported].
func (c *Client) SetLevel(ctx context.Context, level mcp.LoggingLevel, opts ...CallOption) error {
	if c.Revision().Modern() {
		return fmt.Errorf("set level: revision %v has levels for each request: use WithLog: %w", c.Revision(), errors.ErrUnsupported)
	}
	name, err := level.MarshalText()
	if err != nil {
		return fmt.Errorf("set level: %w", err)
	}
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
	if level == mcp.LevelNone || c.Revision().Modern() {
		return
	}
	c.goroutines.Start(func() {
		if err := c.SetLevel(context.Background(), level); err != nil {
			c.log.Info("log level not restored", "error", err)
		}
	})
}

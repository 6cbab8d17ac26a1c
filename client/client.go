package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Client is a connection to one server, made again when it is lost. Make one with [Dial]. Its methods may be called by many goroutines at once.
type Client struct {
	opts        Options
	serverState // of tools, lists, subscriptions and tasks: see features.go

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

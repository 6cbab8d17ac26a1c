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
	opts     Options
	features // of tools, lists, subscriptions and tasks: see features.go

	carrier   Carrier
	offer     era.Offer
	chain     HandlerFunc // all middleware; nil if there is none
	log       *slog.Logger
	ids       atomic.Int64 // of requests, on all connections
	tokens    atomic.Int64 // of progress
	live      atomic.Pointer[link]
	terms     atomic.Pointer[terms] // the last that were agreed on
	known     atomic.Pointer[Verdict]
	down      atomic.Pointer[error] // how the last connection ended, or why the last attempt failed
	listeners listeners
	watchers  watchers
	exchanges sync.Pool

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when live or ended is set
	ended   error         // why no call can be made any more
	err     error         // what Err returns
	hooks   []func()      // of onReconnect

	stop context.CancelFunc // of supervise
	wg   sync.WaitGroup
	done chan struct{}
}

// Dial connects to a server, finds out which era and revision it speaks and agrees on one. ctx covers the dialing only; close the Client in the end. opts
// may be nil; it is copied.
//
// The error is an *[IncompatibleError] if there is no revision that both sides speak, a *[ProtocolError] or a *[TimeoutError], wraps a *[jsonrpc.Error] if the
// server refused, and otherwise says why there is no connection.
func Dial(ctx context.Context, carrier Carrier, opts *Options) (*Client, error) {
	c := &Client{carrier: carrier, changed: make(chan struct{}), done: make(chan struct{})}
	if opts != nil {
		c.opts = *opts
	}
	if err := c.opts.resolve(); err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c.log = c.opts.Logger
	c.offer = c.opts.offer()
	c.chain = chainOf(c.opts.Middleware)
	if v := c.opts.Known; v != nil {
		known := *v
		c.known.Store(&known)
	}
	l, err := c.establish(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c.live.Store(l)
	life, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.wg.Go(func() { c.supervise(life, l) })
	return c, nil
}

// Close ends the connection and waits for everything that belongs to it. Calls under way fail with an error that wraps [jsonrpc.ErrClosed]. It may be
// called more than once.
func (c *Client) Close() error {
	c.stop()
	<-c.done
	c.wg.Wait()
	c.features.wait()
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
func (c *Client) Revision() mcp.Revision { return c.terms.Load().Revision }

// Modern reports whether the revision in use is stateless.
func (c *Client) Modern() bool { return c.terms.Load().Modern }

// ServerInfo returns what the server says of itself, which is not to be relied on.
func (c *Client) ServerInfo() mcp.Implementation { return c.terms.Load().verdict.Server }

// ServerCapabilities returns what the server declared.
func (c *Client) ServerCapabilities() mcp.ServerCapabilities {
	return c.terms.Load().verdict.Capabilities
}

// Instructions returns the server's hints for the model, or "".
func (c *Client) Instructions() string { return c.terms.Load().verdict.Instructions }

// Verdict returns what is known of the server, for [Options.Known].
func (c *Client) Verdict() Verdict { return *c.terms.Load().verdict }

type clientKey struct{}

// FromContext returns the Client that a handler of [Options] is called for, or nil: which server asks is for the user to know.
func FromContext(ctx context.Context) *Client {
	c, _ := ctx.Value(clientKey{}).(*Client)
	return c
}

// RootsChanged tells a legacy server that [Options.Roots] would return something else now. Modern servers ask when they want to know.
func (c *Client) RootsChanged(ctx context.Context) error {
	if t := c.terms.Load(); t.Modern || !t.accepts.Roots {
		return nil
	}
	return c.Notify(ctx, mcp.NotificationRootsChanged, nil)
}

var errClosedByUser = errors.New("the client was closed")

// current returns the connection; if there is none, a channel that is closed when that may have changed; or why there will never be one.
func (c *Client) current() (*link, <-chan struct{}, error) {
	if l := c.live.Load(); l != nil {
		return l, nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.live.Load(); l != nil {
		return l, nil, nil
	}
	return nil, c.changed, c.ended
}

// publish makes l the connection that calls use.
func (c *Client) publish(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live.Store(l)
	close(c.changed)
	c.changed = make(chan struct{})
}

// lost takes a connection that has ended out of use.
func (c *Client) lost(l *link) { c.live.CompareAndSwap(l, nil) }

// end makes all calls fail, those to come as well. why is nil after Close.
func (c *Client) end(why error) {
	if fn := c.opts.OnEnd; fn != nil {
		defer fn(c, why)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = why
	if why == nil {
		why = errClosedByUser
	}
	c.ended = fmt.Errorf("%w: %w", jsonrpc.ErrClosed, why)
	c.live.Store(nil)
	close(c.changed)
	close(c.done)
}

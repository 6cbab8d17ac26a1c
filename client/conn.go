package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Transport opens connections to one server. *stdio.Cmd is one: each connection is a fresh process.
type Transport interface {
	// Connect opens a connection. ctx covers the opening only; when a lost connection is replaced, it ends with the Client and not before, so what may hang
	// needs a bound of its own. The framer is closed when the connection is no longer used. An error that wraps
	// [ErrNoReconnect] means that there will never be another one.
	Connect(ctx context.Context) (jsonrpc.Framer, error)
}

// TransportFunc is a Transport that calls itself.
type TransportFunc func(ctx context.Context) (jsonrpc.Framer, error)

// Connect implements [Transport].
func (f TransportFunc) Connect(ctx context.Context) (jsonrpc.Framer, error) { return f(ctx) }

// ErrNoReconnect is wrapped by what [Transport.Connect] returns when the transport cannot open another connection.
var ErrNoReconnect = errors.New("transport cannot connect again")

// Over returns the Transport of one connection that exists already, a socket or a net.Pipe for example (see [jsonrpc.NewFramer]). It connects once.
func Over(f jsonrpc.Framer) Transport { return &singleTransport{framer: f} }

// A single is what Over returns.
type singleTransport struct {
	framer jsonrpc.Framer
	used   atomic.Bool
}

// Connect implements [Transport].
func (s *singleTransport) Connect(context.Context) (jsonrpc.Framer, error) {
	if s.used.Swap(true) {
		return nil, fmt.Errorf("connect: %w: it was given one connection only, see client.Over", ErrNoReconnect)
	}
	return s.framer, nil
}

const (
	drainTimeout = 2 * time.Second        // that handlers of a connection that has ended may take to notice
	flushTimeout = 250 * time.Millisecond // that a server may take to read the last that it is sent
)

// A link is one connection, from its opening to its end.
type connection struct {
	c          *Client
	rpc        *jsonrpc.Conn
	openedAt   time.Time
	negotiated atomic.Pointer[negotiated]       // nil until they are agreed on
	accepts    atomic.Pointer[era.InputSupport] // what a legacy server may ask for: it may do so before the terms are here

	runningHandlers int           // of the user's that run just now, to answer the server; guarded by mu, as are
	handlersSince   time.Time     // since when at least one does
	handlerTime     time.Duration // how long it was so before
	retired         chan struct{} // closed when the link is to be replaced though it works
	served          atomic.Bool   // a call of the user's was answered on it

	mu      sync.Mutex
	streams map[int64]chan struct{} // by request id: closed when the server cancels it
}

// open connects.
func (c *Client) open(ctx context.Context) (*connection, error) {
	f, err := c.transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn := &connection{c: c, openedAt: time.Now(), retired: make(chan struct{})}
	conn.rpc = jsonrpc.NewConn(f, &jsonrpc.Options{
		Handler:      conn,
		Cancellation: cancellation{conn: conn},
		Policy:       era.ClientPolicy(nil),
		MaxDepth:     c.opts.MaxDepth,
		MaxInFlight:  c.opts.MaxRequests,
		DrainTimeout: drainTimeout,
		IDs:          &c.ids,
		Logger:       c.log,
		OnGap:        c.invalidateAfterGap,
		Trace:        c.opts.Trace,
	})
	c.wg.Go(func() { conn.rpc.Run(context.Background()) })
	return conn, nil
}

// flush gives what was sent before the end, notifications above all, a moment to be written.
func (cn *connection) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	cn.rpc.Flush(ctx)
}

// close ends the connection and waits for that.
func (cn *connection) close() { cn.rpc.Close() }

// ended reports whether nothing more will be read.
func (cn *connection) ended() bool {
	select {
	case <-cn.rpc.Draining():
		return true
	default:
		return false
	}
}

// closeReason says how the connection has ended.
func (cn *connection) closeReason() error {
	if err := cn.rpc.Err(); err != nil {
		return err
	}
	return errors.New("the server closed the connection")
}

// retire has the link replaced by one that begins with what is known; nil is nothing.
func (cn *connection) retire(profile *Profile) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	select {
	case <-cn.retired:
		return
	default:
	}
	cn.c.profile.Store(profile)
	cn.c.dropConnection(cn)
	close(cn.retired)
}

// setNegotiated is called once by whoever agreed on them, and again when a modern server turns out to speak another revision.
func (cn *connection) setNegotiated(neg *negotiated) {
	cn.accepts.Store(&neg.accepts)
	cn.rpc.SetPolicy(era.ClientPolicy(neg.Features))
	cn.negotiated.Store(neg)
	cn.c.negotiated.Store(neg)
}

// sendInitialized tells a legacy server that its answer was understood.
func (cn *connection) sendInitialized(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cn.c.opts.HandshakeTimeout) // it may not read
	defer cancel()
	if cn.c.chain == nil {
		return cn.rpc.Notify(ctx, mcp.NotificationInitialized, nil)
	}
	_, err := cn.c.runChain(ctx, &Message{
		Direction: jsonrpc.Outgoing, Notification: true, Method: mcp.NotificationInitialized,
		deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) {
			return nil, cn.rpc.Notify(ctx, m.Method, m.Params)
		},
	})
	return err
}

// openingCall sends a request of the opening exchange. Such a request is never cancelled: that would be the first thing that a legacy server hears.
func (cn *connection) openingCall(ctx context.Context, method string, params []byte, timeout time.Duration) ([]byte, error) {
	if cn.c.chain == nil {
		return cn.openingCallDirect(ctx, method, params, timeout)
	}
	return cn.c.runChain(ctx, &Message{
		Direction: jsonrpc.Outgoing, Method: method, Params: params,
		deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) {
			return cn.openingCallDirect(ctx, method, m.Params, timeout)
		},
	})
}

// openingCallDirect is ask without the middleware.
func (cn *connection) openingCallDirect(ctx context.Context, method string, params []byte, timeout time.Duration) ([]byte, error) {
	p, err := cn.rpc.NewCall(method)
	if err != nil {
		return nil, err
	}
	if err := p.Send(ctx, params); err != nil {
		return nil, err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-ctx.Done():
		if p.Abandon() {
			return nil, fmt.Errorf("call %s: %w", method, context.Cause(ctx))
		}
		<-p.Done()
	case <-timer.C:
		if p.Abandon() {
			return nil, &TimeoutError{Method: method, After: timeout, option: "Options.HandshakeTimeout"}
		}
		<-p.Done()
	}
	return p.Result()
}

// A cancellation is that of MCP, but for modern servers: they send no requests that could be cancelled, and mean one of this side's, which is
// then an ordinary notification.
type cancellation struct {
	era.Cancellation
	conn *connection
}

// Notice implements [jsonrpc.Cancellation]. What was withdrawn is not cancelled once more.
func (c cancellation) Notice(id jsonrpc.ID, method, reason string) (name string, params []byte) {
	if c.conn.c.withdrawnCalls.has(id) {
		return "", nil
	}
	return c.Cancellation.Notice(id, method, reason)
}

// Target implements [jsonrpc.Cancellation].
func (c cancellation) Target(n *jsonrpc.Message) (jsonrpc.ID, string, bool) {
	if neg := c.conn.negotiated.Load(); neg != nil && neg.Modern {
		return nil, "", false
	}
	return c.Cancellation.Target(n)
}

// beginHandler notes that a handler of the user's runs for the server, until done is called.
func (cn *connection) beginHandler() (done func()) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.runningHandlers++; cn.runningHandlers == 1 {
		cn.handlersSince = time.Now()
	}
	return func() {
		cn.mu.Lock()
		defer cn.mu.Unlock()
		if cn.runningHandlers--; cn.runningHandlers == 0 {
			cn.handlerTime += time.Since(cn.handlersSince)
		}
	}
}

// totalHandlerTime returns how long the server has waited for handlers so far, all in all, and whether it does so now.
func (cn *connection) totalHandlerTime() (total time.Duration, running bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.runningHandlers > 0 {
		return cn.handlerTime + time.Since(cn.handlersSince), true
	}
	return cn.handlerTime, false
}

// An excuse is what a server has for being late with an answer: it has had no time while it waited for a handler.
type handlerGrace struct {
	conn        *connection
	handlerTime time.Duration // of the link, when the wait began or was last prolonged
}

func (cn *connection) handlerGrace() handlerGrace {
	busy, _ := cn.totalHandlerTime()
	return handlerGrace{cn, busy}
}

// minHandlerGrace is for how long at least a wait is prolonged while a handler runs, so as not to look too often.
const minHandlerGrace = 100 * time.Millisecond

// extension returns how much longer the server may take, after a wait that is over.
func (g *handlerGrace) extension() time.Duration {
	busy, running := g.conn.totalHandlerTime()
	d := busy - g.handlerTime
	g.handlerTime = busy
	if running {
		d = max(d, minHandlerGrace)
	}
	return d
}

// supervise replaces connections that are lost, until ctx ends or there can be no other.
func (c *Client) supervise(ctx context.Context, conn *connection) {
	failures, trusted := 0, false
	for conn != nil {
		var reason error
		select {
		case <-conn.rpc.Draining():
		case <-conn.retired:
			reason = errors.New("the server speaks another revision than it was taken to")
		case <-ctx.Done():
		}
		c.dropConnection(conn)
		if ctx.Err() != nil {
			conn.flush()
			conn.close()
			break
		}
		conn.close()
		if reason == nil {
			reason = conn.closeReason()
		}
		switch {
		case time.Since(conn.openedAt) >= c.opts.Reconnect.StableAfter:
			failures = 0
		case conn.served.Load():
			failures = 1 // it works, now and then
		default:
			failures++
		}
		conn.retire(c.profile.Load())
		neg := conn.negotiated.Load()
		if trusted = trusted || neg.confirmed.Load(); !trusted {
			c.profile.CompareAndSwap(neg.profile, nil) // what Options.Profile says has never been seen to be so
		}
		c.log.Warn("connection lost", "error", reason)
		c.lastFailure.Store(&reason)
		var err error
		if conn, err = c.reconnect(ctx, failures, reason); err != nil && ctx.Err() == nil {
			c.end(err)
			return
		}
	}
	c.end(nil)
}

// reconnect connects again after failures in a row. The error says why that is given up.
func (c *Client) reconnect(ctx context.Context, failures int, reason error) (*connection, error) {
	p := &c.opts.Reconnect
	if p.Disabled {
		return nil, fmt.Errorf("connection lost: %w", reason)
	}
	for {
		if p.MaxFailures >= 0 && failures > p.MaxFailures {
			return nil, fmt.Errorf("connection lost %d times in a row, given up: %w", failures, reason)
		}
		if failures > 0 && !sleep(ctx, backoff(p.MinBackoff, p.MaxBackoff, failures)) {
			return nil, ctx.Err()
		}
		conn, err := c.establish(ctx)
		_, incompatible := errors.AsType[*IncompatibleError](err)
		switch {
		case err == nil:
			c.log.Info("connected again", "revision", conn.negotiated.Load().Revision)
			c.useConnection(conn)
			return conn, nil
		case incompatible || errors.Is(err, ErrNoReconnect):
			return nil, fmt.Errorf("connection lost: %w; %w", reason, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		c.log.Warn("no connection", "error", err)
		c.lastFailure.Store(&err)
		failures++
		reason = err
	}
}

// useConnection has the calls use a new connection, after those have been told who keep something of the old one.
func (c *Client) useConnection(conn *connection) {
	c.mu.Lock()
	reconnectHooks := c.reconnectHooks
	c.mu.Unlock()
	for _, fn := range reconnectHooks {
		fn()
	}
	c.publish(conn)
}

// backoff returns how long to wait after so many failures in a row: up to half less than twice as long as after the one before.
func backoff(minDelay, maxDelay time.Duration, failures int) time.Duration {
	d := minDelay
	for range failures - 1 {
		if d >= maxDelay/2 {
			d = maxDelay
			break
		}
		d *= 2
	}
	d = min(d, maxDelay)
	return d - time.Duration(rand.Float64()*float64(d)/2)
}

// sleep waits, and reports whether it did to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

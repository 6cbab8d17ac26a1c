package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/userwait"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
)

// A Transport opens connections to one server. A *stdio.Cmd starts a new process for each.
type Transport interface {
	// Connect opens a connection. ctx covers the opening only. For a reconnect it ends with the
	// Client, so a Connect that may hang needs its own timeout. The Client closes the framer after
	// use. An error that wraps [ErrNoReconnect] rules out further connections.
	Connect(ctx context.Context) (jsonrpc.Framer, error)
}

// A TransportFunc is a function used as a Transport.
type TransportFunc func(ctx context.Context) (jsonrpc.Framer, error)

// Connect implements [Transport].
func (f TransportFunc) Connect(ctx context.Context) (jsonrpc.Framer, error) { return f(ctx) }

// ErrNoReconnect is wrapped by the error of [Transport.Connect] if the transport cannot open
// another connection.
var ErrNoReconnect = errors.New("transport cannot reconnect")

// FramerTransport returns the Transport of one existing connection, such as a socket or a net.Pipe
// (see [jsonrpc.NewFramer]). It connects once.
func FramerTransport(f jsonrpc.Framer) Transport { return &singleTransport{framer: f} }

// A singleTransport is the Transport that FramerTransport returns.
type singleTransport struct {
	framer jsonrpc.Framer
	used   atomic.Bool
}

func (s *singleTransport) Connect(context.Context) (jsonrpc.Framer, error) {
	if s.used.Swap(true) {
		return nil, fmt.Errorf("connect: %w: the transport has only one connection, see client.FramerTransport", ErrNoReconnect)
	}
	return s.framer, nil
}

const (
	drainTimeout = 2 * time.Second        // for handlers of a connection that has ended
	flushTimeout = 250 * time.Millisecond // for the last messages to be written
)

// A connection is one connection, from its opening to its end.
type connection struct {
	c        *Client
	rpc      *rpc.Conn
	openedAt time.Time
	// negotiated is nil until the negotiation has finished.
	negotiated atomic.Pointer[negotiated]
	// accepts are the input requests that a legacy server may send. It is set before negotiated,
	// because the server may send them during the handshake.
	accepts atomic.Pointer[era.InputSupport]

	// runningHandlers counts the user's handlers that serve the server now. mu guards it and the
	// next two fields.
	runningHandlers int
	// handlersSince is the time since which at least one handler runs.
	handlersSince time.Time
	// handlerTime is the total time of earlier handlers.
	handlerTime time.Duration
	// retired is closed when the connection must be replaced although it works.
	retired chan struct{}
	// served is set when a call of the user was answered.
	served atomic.Bool

	mu sync.Mutex
	// streams maps request ids to channels that are closed when the server cancels the request.
	streams map[int64]chan struct{}
}

// flush waits briefly until all messages, notifications above all, are written.
func (cn *connection) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	cn.rpc.Flush(ctx)
}

// ended reports whether the connection reads no more messages.
func (cn *connection) ended() bool {
	return wait.Closed(cn.rpc.Draining(), 0)
}

// retire requests a new connection that starts with profile, which is nil if nothing is known.
func (cn *connection) retire(profile *Profile) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	select {
	case <-cn.retired:
		return
	default:
	}
	cn.c.conns.profile.Store(profile)
	cn.c.conns.drop(cn)
	close(cn.retired)
}

// setNegotiated stores the result of a negotiation. It is called again when a modern server turns
// out to speak another revision.
func (cn *connection) setNegotiated(neg *negotiated) {
	cn.accepts.Store(&neg.accepts)
	cn.rpc.SetPolicy(era.ClientPolicy(neg.Features))
	cn.negotiated.Store(neg)
	cn.c.conns.negotiated.Store(neg)
}

// sendInitialized sends a legacy server the initialized notification.
func (cn *connection) sendInitialized(ctx context.Context) error {
	limit := cn.c.opts.Timeouts.Handshake
	sending, stop := cn.withDeadline(ctx, limit) // the server may not read
	defer stop()
	m := middleware.Message{Direction: jsonrpc.Outgoing, Notification: true, Method: mcp.NotificationInitialized}
	_, err := cn.c.runChain(sending, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		return nil, cn.rpc.Notify(ctx, mcp.NotificationInitialized, m.Params)
	})
	if errors.Is(err, context.Canceled) && ctx.Err() == nil && sending.Err() != nil {
		return fmt.Errorf("%s not sent within %v (see Options.Timeouts.Handshake): %w", mcp.NotificationInitialized, limit, context.Cause(sending))
	}
	return err
}

// openingCall sends a request that opens a connection. It never cancels the request, because a
// legacy server would then see a cancellation as its first message. The limit of its time is that
// of a probe or that of a handshake.
func (cn *connection) openingCall(ctx context.Context, method string, params []byte, probe bool) ([]byte, error) {
	m := middleware.Message{Direction: jsonrpc.Outgoing, Method: method, Params: params}
	return cn.c.runChain(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		return cn.openingCallDirect(ctx, method, m.Params, probe)
	})
}

// openingCallDirect is openingCall without the middleware.
func (cn *connection) openingCallDirect(ctx context.Context, method string, params []byte, probe bool) ([]byte, error) {
	limit, option := cn.c.opts.Timeouts.Handshake, "Options.Timeouts.Handshake"
	if probe {
		limit, option = cn.c.opts.Timeouts.Probe, "Options.Timeouts.Probe"
	}
	p, err := cn.rpc.NewCall(method)
	if err != nil {
		return nil, err
	}
	if err := p.Send(ctx, params); err != nil {
		return nil, err
	}
	waiting, stop := cn.withDeadline(ctx, limit)
	defer stop()
	select {
	case <-p.Done():
	case <-waiting.Done():
		if !p.Abandon() {
			<-p.Done() // the response came first
		} else if ctx.Err() != nil {
			return nil, fmt.Errorf("call %s: %w", method, context.Cause(ctx))
		} else {
			return nil, &TimeoutError{Method: method, After: limit, option: option}
		}
	}
	return p.Result()
}

// A cancellation is MCP's cancellation with an exception for modern servers. They send no requests
// that could be canceled, so their cancellation refers to a request of this side and is handled
// like any other notification.
type cancellation struct {
	era.Cancellation
	conn *connection
}

// Notice implements [rpc.Cancellation]. It does not cancel a withdrawn call again.
func (c cancellation) Notice(id jsonrpc.ID, method, reason string) (name string, params []byte) {
	if c.conn.c.tasks.withdrawn.has(id) {
		return "", nil
	}
	return c.Cancellation.Notice(id, method, reason)
}

// Target implements [rpc.Cancellation].
func (c cancellation) Target(n *jsonrpc.Message) (jsonrpc.ID, string, bool) {
	if neg := c.conn.negotiated.Load(); neg != nil && neg.Modern {
		return nil, "", false
	}
	return c.Cancellation.Target(n)
}

// beginHandler records that a handler serves the server, or that a user logs in, until done is
// called.
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

// totalHandlerTime returns how long handlers have run so far, and whether one runs now.
func (cn *connection) totalHandlerTime() (total time.Duration, running bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.runningHandlers > 0 {
		return cn.handlerTime + time.Since(cn.handlersSince), true
	}
	return cn.handlerTime, false
}

// A handlerGrace extends the server's time to answer by the time that it waits for handlers or for
// a user who logs in.
type handlerGrace struct {
	conn *connection
	// handlerTime is the connection's total when the wait began or was last extended.
	handlerTime time.Duration
}

func (cn *connection) handlerGrace() handlerGrace {
	busy, _ := cn.totalHandlerTime()
	return handlerGrace{cn, busy}
}

// minHandlerGrace is the shortest extension while a handler runs. It limits how often wait checks.
const minHandlerGrace = 100 * time.Millisecond

// extension returns how much longer the server may take after an expired wait.
func (g *handlerGrace) extension() time.Duration {
	busy, running := g.conn.totalHandlerTime()
	d := busy - g.handlerTime
	g.handlerTime = busy
	if running {
		d = max(d, minHandlerGrace)
	}
	return d
}

// withDeadline returns a context that ends after d, in which handlers and users who log in do not
// count. stop must be called.
func (cn *connection) withDeadline(ctx context.Context, d time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	grace := cn.handlerGrace()
	var wg sync.WaitGroup
	wg.Go(func() {
		for left := d; left > 0; left = grace.extension() {
			if !wait.Sleep(ctx, left) {
				return
			}
		}
		cancel(context.DeadlineExceeded)
	})
	return ctx, func() {
		cancel(nil)
		wg.Wait()
	}
}

// A connector makes the connections of a Client and replaces them when they are lost. It holds the
// one that calls use, and what is known about the server.
type connector struct {
	c         *Client
	transport Transport
	// ids numbers the requests of all connections.
	ids atomic.Int64
	// live is the connection that calls use. It is nil while there is none.
	live atomic.Pointer[connection]
	// negotiated is the result of the last negotiation.
	negotiated atomic.Pointer[negotiated]
	profile    atomic.Pointer[Profile]
	// lastFailure is the end of the last connection or the error of the last attempt to connect.
	lastFailure atomic.Pointer[error]

	mu sync.Mutex
	// changed is closed when live or endErr is set. use replaces it.
	changed chan struct{}
	// endErr is the error of all calls after the end.
	endErr error
	// err is the result of Client.Err.
	err error

	// stop ends supervise.
	stop context.CancelFunc
	wg   sync.WaitGroup
	done chan struct{}
}

// open opens a connection without negotiating.
func (cc *connector) open(ctx context.Context) (*connection, error) {
	conn := &connection{c: cc.c, openedAt: time.Now(), retired: make(chan struct{})}
	f, err := cc.transport.Connect(userwait.With(ctx, conn.beginHandler))
	if err != nil {
		return nil, err
	}
	conn.rpc = rpc.NewConn(f, &rpc.Options{
		Handler:      conn,
		Cancellation: cancellation{conn: conn},
		Policy:       era.ClientPolicy(nil),
		MaxDepth:     cc.c.opts.Limits.MaxDepth,
		MaxInFlight:  cc.c.opts.Limits.MaxRequests,
		DrainTimeout: drainTimeout,
		IDs:          &cc.ids,
		Logger:       cc.c.log,
		OnGap:        cc.c.subs.recoverGap,
		Trace:        cc.c.opts.Trace,
	})
	cc.wg.Go(func() { conn.rpc.Run(context.Background()) })
	return conn, nil
}

// supervise replaces lost connections until ctx ends or reconnecting fails.
func (cc *connector) supervise(ctx context.Context, conn *connection) {
	failures, trusted := 0, false
	for conn != nil {
		var reason error
		select {
		case <-conn.rpc.Draining():
		case <-conn.retired:
			reason = errors.New("the server speaks another revision than Options.Profile names")
		case <-ctx.Done():
		}
		cc.drop(conn)
		if ctx.Err() != nil {
			conn.flush()
			conn.rpc.Close()
			break
		}
		conn.rpc.Close()
		if reason == nil {
			reason = cmp.Or(conn.rpc.Err(), errors.New("the server closed the connection"))
		}
		stable := time.Since(conn.openedAt) >= cc.c.opts.Reconnect.StableAfter
		if stable || conn.served.Load() {
			failures = 0
		} else {
			failures++
		}
		conn.retire(cc.profile.Load())
		neg := conn.negotiated.Load()
		if trusted = trusted || neg.confirmed.Load(); !trusted {
			cc.profile.CompareAndSwap(neg.profile, nil) // Options.Profile was never confirmed
		}
		cc.c.log.Warn("connection lost", "error", reason)
		cc.lastFailure.Store(&reason)
		var err error
		if conn, err = cc.reconnect(ctx, failures, stable, reason); err != nil && ctx.Err() == nil {
			cc.end(err)
			return
		}
	}
	cc.end(nil)
}

// reconnect connects again after that many consecutive failures, without a wait if the lost
// connection was stable. The error is the reason to give up.
func (cc *connector) reconnect(ctx context.Context, failures int, stable bool, reason error) (*connection, error) {
	p := &cc.c.opts.Reconnect
	if p.Disabled {
		return nil, fmt.Errorf("connection lost: %w", reason)
	}
	for first := true; ; first = false {
		if p.MaxFailures > 0 && failures >= p.MaxFailures {
			return nil, fmt.Errorf("the connection has failed %d times in a row, giving up: %w", failures, reason)
		}
		if !(first && stable) && !wait.Sleep(ctx, wait.Backoff(p.MinBackoff, p.MaxBackoff, max(failures, 1), rand.Float64())) {
			return nil, ctx.Err()
		}
		conn, err := cc.establish(ctx)
		_, incompatible := errors.AsType[*IncompatibleError](err)
		switch {
		case err == nil:
			cc.c.log.Info("reconnected", "revision", conn.negotiated.Load().Revision)
			cc.use(conn)
			return conn, nil
		case incompatible || errors.Is(err, ErrNoReconnect):
			return nil, fmt.Errorf("connection lost: %w; %w", reason, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		cc.c.log.Warn("no connection", "error", err)
		cc.lastFailure.Store(&err)
		failures++
		reason = err
	}
}

// use lets calls use a connection that replaces a lost one. Before that it drops what the server
// may have changed meanwhile.
func (cc *connector) use(conn *connection) {
	cc.c.caches.clear()
	cc.c.tools.expire(false)
	cc.c.subs.reconnected()
	cc.c.restoreLogLevel()
	cc.mu.Lock()
	defer cc.mu.Unlock()
	cc.live.Store(conn)
	close(cc.changed)
	cc.changed = make(chan struct{})
}

// current returns the connection. Without one it returns a channel that is closed when that may
// have changed, or the error of a Client that has ended.
func (cc *connector) current() (*connection, <-chan struct{}, error) {
	if conn := cc.live.Load(); conn != nil {
		return conn, nil, nil
	}
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if conn := cc.live.Load(); conn != nil {
		return conn, nil, nil
	}
	return nil, cc.changed, cc.endErr
}

// drop stops calls from using conn.
func (cc *connector) drop(conn *connection) { cc.live.CompareAndSwap(conn, nil) }

// end makes all present and future calls fail. reason is nil after Close.
func (cc *connector) end(reason error) {
	if fn := cc.c.opts.OnEnd; fn != nil {
		defer fn(cc.c, reason)
	}
	cc.mu.Lock()
	defer cc.mu.Unlock()
	cc.err = reason
	if reason == nil {
		reason = errClosedByUser
	}
	cc.endErr = fmt.Errorf("%w: %w", jsonrpc.ErrClosed, reason)
	cc.live.Store(nil)
	close(cc.changed)
	close(cc.done)
}

// wait waits for a connection, at most for ReconnectPolicy.MaxWait and until limit, which may be
// nil. If the wait ends first, the error is a *NotConnectedError, with a nil Err if limit has
// expired. For a Client that has ended, it is the reason.
func (cc *connector) wait(ctx context.Context, method string, limit *callTimer) (*connection, error) {
	if conn, _, err := cc.current(); conn != nil || err != nil {
		return conn, err
	}
	notConnected := func(err error) error {
		e := &NotConnectedError{Method: method, Err: err}
		if last := cc.lastFailure.Load(); last != nil {
			e.Last = *last
		}
		return e
	}
	var maxWait <-chan time.Time // nil means no limit
	if d := cc.c.opts.Reconnect.MaxWait; d > 0 {
		maxWait = time.After(d)
	}
	for {
		conn, changed, err := cc.current()
		if conn != nil || err != nil {
			return conn, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, notConnected(context.Cause(ctx))
		case <-limit.C():
			if limit.expired() {
				return nil, notConnected(nil)
			}
		case <-maxWait:
			return nil, notConnected(&TimeoutError{Method: method, After: cc.c.opts.Reconnect.MaxWait, option: "ReconnectPolicy.MaxWait"})
		}
	}
}

// endError returns the error of all calls after the end of the Client.
func (cc *connector) endError() error {
	_, _, err := cc.current()
	return err
}

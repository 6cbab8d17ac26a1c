package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/internal/wait"
	"mcpwire/jsonrpc"
)

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
	// changed is closed when live or endErr is set. publish replaces it.
	changed chan struct{}
	// endErr is the error of all calls after the end.
	endErr error
	// err is the result of Client.Err.
	err error
	// reconnectHooks are the functions that onReconnect registered.
	reconnectHooks []func()

	// stop ends supervise.
	stop context.CancelFunc
	wg   sync.WaitGroup
	done chan struct{}
}

// open opens a connection without negotiating.
func (cc *connector) open(ctx context.Context) (*connection, error) {
	f, err := cc.transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn := &connection{c: cc.c, openedAt: time.Now(), retired: make(chan struct{})}
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
			conn.close()
			break
		}
		conn.close()
		if reason == nil {
			reason = conn.closeReason()
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
			return nil, fmt.Errorf("connection lost %d times in a row, giving up: %w", failures, reason)
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

// use runs the reconnect hooks and then publishes the connection.
func (cc *connector) use(conn *connection) {
	cc.mu.Lock()
	reconnectHooks := cc.reconnectHooks
	cc.mu.Unlock()
	for _, fn := range reconnectHooks {
		fn()
	}
	cc.publish(conn)
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

// publish makes conn the connection that calls use.
func (cc *connector) publish(conn *connection) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	cc.live.Store(conn)
	close(cc.changed)
	cc.changed = make(chan struct{})
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
		timer := time.NewTimer(d)
		defer timer.Stop()
		maxWait = timer.C
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

// onReconnect registers fn to run when a lost connection was replaced, before calls use the new
// one. fn must not block.
func (cc *connector) onReconnect(fn func()) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	cc.reconnectHooks = append(slices.Clip(cc.reconnectHooks), fn)
}

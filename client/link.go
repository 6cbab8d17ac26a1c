package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

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

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

// Over returns the Transport of one existing connection, such as a socket or a net.Pipe (see
// [jsonrpc.NewFramer]). It connects once.
func Over(f jsonrpc.Framer) Transport { return &singleTransport{framer: f} }

// A singleTransport is the Transport that Over returns.
type singleTransport struct {
	framer jsonrpc.Framer
	used   atomic.Bool
}

// Connect implements [Transport].
func (s *singleTransport) Connect(context.Context) (jsonrpc.Framer, error) {
	if s.used.Swap(true) {
		return nil, fmt.Errorf("connect: %w: the transport has only one connection, see client.Over", ErrNoReconnect)
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

// close closes the connection and waits for its end.
func (cn *connection) close() { cn.rpc.Close() }

// ended reports whether the connection reads no more messages.
func (cn *connection) ended() bool {
	select {
	case <-cn.rpc.Draining():
		return true
	default:
		return false
	}
}

// closeReason returns the reason why the connection has ended.
func (cn *connection) closeReason() error {
	if err := cn.rpc.Err(); err != nil {
		return err
	}
	return errors.New("the server closed the connection")
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
	ctx, cancel := context.WithTimeout(ctx, cn.c.opts.Timeouts.Handshake) // the server may not read
	defer cancel()
	if cn.c.chain == nil {
		return cn.rpc.Notify(ctx, mcp.NotificationInitialized, nil)
	}
	m := middleware.Message{Direction: jsonrpc.Outgoing, Notification: true, Method: mcp.NotificationInitialized}
	_, err := cn.c.runChain(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		return nil, cn.rpc.Notify(ctx, mcp.NotificationInitialized, m.Params)
	})
	return err
}

// openingCall sends a request that opens a connection. It never cancels the request, because a
// legacy server would then see a cancellation as its first message.
func (cn *connection) openingCall(ctx context.Context, method string, params []byte, timeout openingTimeout) ([]byte, error) {
	if cn.c.chain == nil {
		return cn.openingCallDirect(ctx, method, params, timeout)
	}
	m := middleware.Message{Direction: jsonrpc.Outgoing, Method: method, Params: params}
	return cn.c.runChain(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		return cn.openingCallDirect(ctx, method, m.Params, timeout)
	})
}

// An openingTimeout limits an opening call.
type openingTimeout struct {
	after time.Duration
	// option is the name of the option that sets after.
	option string
}

func (o *Options) probeTimeout() openingTimeout {
	return openingTimeout{o.Timeouts.Probe, "Options.Timeouts.Probe"}
}

func (o *Options) handshakeTimeout() openingTimeout {
	return openingTimeout{o.Timeouts.Handshake, "Options.Timeouts.Handshake"}
}

// openingCallDirect is openingCall without the middleware.
func (cn *connection) openingCallDirect(ctx context.Context, method string, params []byte, timeout openingTimeout) ([]byte, error) {
	p, err := cn.rpc.NewCall(method)
	if err != nil {
		return nil, err
	}
	if err := p.Send(ctx, params); err != nil {
		return nil, err
	}
	timer := time.NewTimer(timeout.after)
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
			return nil, &TimeoutError{Method: method, After: timeout.after, option: timeout.option}
		}
		<-p.Done()
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

// beginHandler records that a handler serves the server until done is called.
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

// A handlerGrace extends the server's time to answer by the time that it waits for handlers.
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

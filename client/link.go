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
type link struct {
	c       *Client
	conn    *jsonrpc.Conn
	began   time.Time
	terms   atomic.Pointer[terms]       // nil until they are agreed on
	accepts atomic.Pointer[era.Accepts] // what a legacy server may ask for: it may do so before the terms are here

	handlers int           // of the user's that run just now, to answer the server; guarded by mu, as are
	running  time.Time     // since when at least one does
	busy     time.Duration // how long it was so before
	retired  chan struct{} // closed when the link is to be replaced though it works
	served   atomic.Bool   // a call of the user's was answered on it

	mu      sync.Mutex
	streams map[int64]chan struct{} // by request id: closed when the server cancels it
}

// open connects.
func (c *Client) open(ctx context.Context) (*link, error) {
	f, err := c.carrier.Connect(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{c: c, began: time.Now(), retired: make(chan struct{})}
	l.conn = jsonrpc.NewConn(f, &jsonrpc.Options{
		Handler:      l,
		Cancellation: cancellation{link: l},
		Policy:       era.ClientPolicy(nil),
		MaxDepth:     c.opts.MaxDepth,
		MaxInFlight:  c.opts.MaxRequests,
		DrainTimeout: drainTimeout,
		IDs:          &c.ids,
		Logger:       c.log,
		OnGap:        c.mayHaveMissed,
		Trace:        c.opts.Trace,
	})
	c.wg.Go(func() { l.conn.Run(context.Background()) })
	return l, nil
}

// flush gives what was sent before the end, notifications above all, a moment to be written.
func (l *link) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	l.conn.Flush(ctx)
}

// close ends the connection and waits for that.
func (l *link) close() { l.conn.Close() }

// ended reports whether nothing more will be read.
func (l *link) ended() bool {
	select {
	case <-l.conn.Ending():
		return true
	default:
		return false
	}
}

// why says how the connection has ended.
func (l *link) why() error {
	if err := l.conn.Err(); err != nil {
		return err
	}
	return errors.New("the server closed the connection")
}

// retire has the link replaced by one that begins with what is known; nil is nothing.
func (l *link) retire(known *Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.retired:
		return
	default:
	}
	l.c.known.Store(known)
	l.c.lost(l)
	close(l.retired)
}

// setTerms is called once by whoever agreed on them, and again when a modern server turns out to speak another revision.
func (l *link) setTerms(t *terms) {
	l.accepts.Store(&t.accepts)
	l.conn.SetPolicy(era.ClientPolicy(t.Features))
	l.terms.Store(t)
	l.c.terms.Store(t)
}

// initialized tells a legacy server that its answer was understood.
func (l *link) initialized(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.c.opts.HandshakeTimeout) // it may not read
	defer cancel()
	if l.c.chain == nil {
		return l.conn.Notify(ctx, mcp.NotificationInitialized, nil)
	}
	_, err := l.c.through(ctx, &Message{
		Direction: jsonrpc.Outgoing, Notification: true, Method: mcp.NotificationInitialized,
		deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) {
			return nil, l.conn.Notify(ctx, m.Method, m.Params)
		},
	})
	return err
}

// ask sends a request of the opening exchange. Such a request is never cancelled: that would be the first thing that a legacy server hears.
func (l *link) ask(ctx context.Context, method string, params []byte, timeout time.Duration) ([]byte, error) {
	if l.c.chain == nil {
		return l.inquire(ctx, method, params, timeout)
	}
	return l.c.through(ctx, &Message{
		Direction: jsonrpc.Outgoing, Method: method, Params: params,
		deliver: func(ctx context.Context, m *Message) (json.RawMessage, error) {
			return l.inquire(ctx, method, m.Params, timeout)
		},
	})
}

// inquire is ask without the middleware.
func (l *link) inquire(ctx context.Context, method string, params []byte, timeout time.Duration) ([]byte, error) {
	p, err := l.conn.NewCall(method)
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
	link *link
}

// Notice implements [jsonrpc.Cancellation]. What was withdrawn is not cancelled once more.
func (c cancellation) Notice(id jsonrpc.ID, method, reason string) (name string, params []byte) {
	if c.link.c.withdrawn.has(id) {
		return "", nil
	}
	return c.Cancellation.Notice(id, method, reason)
}

// Target implements [jsonrpc.Cancellation].
func (c cancellation) Target(n *jsonrpc.Message) (jsonrpc.ID, string, bool) {
	if t := c.link.terms.Load(); t != nil && t.Modern {
		return nil, "", false
	}
	return c.Cancellation.Target(n)
}

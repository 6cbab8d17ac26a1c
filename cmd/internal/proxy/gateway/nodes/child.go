package nodes

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/coordination"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
)

// lingerTime is how long a process without connections runs on. The nodes that use it keep their
// connections for the idle time of the upstream.
const lingerTime = 10 * time.Second

// A child is a server's process at this node, or several for different kinds of clients, see
// bridge.Options.Shared. Its methods may be called by many goroutines at once.
type child struct {
	c     *Children
	name  string
	key   string
	lease coordination.Lease
	// held ends when the lease is lost or the child ends.
	held   context.Context
	cancel context.CancelFunc
	bridge *bridge.Bridge
	// mixed says that each connection has calls of several principals.
	mixed bool
	// unused receives an element when the child has had no connections for lingerTime.
	unused chan struct{}

	mu     sync.Mutex
	users  map[connection]struct{}
	served int
	ending bool
	linger *time.Timer
}

// A connection is the child's end of a byte stream to a bridge.
type connection interface {
	io.ReadWriteCloser
	// abort ends the stream. The bridge gets a *lostError.
	abort()
}

// A localEnd is an end of a byte stream within this node.
type localEnd struct {
	net.Conn
	node string
	// lost is shared with the other end.
	lost *atomic.Bool
}

// newLocal returns the two ends of a byte stream at a node.
func newLocal(node string) (ours, theirs *localEnd) {
	a, b := net.Pipe()
	lost := new(atomic.Bool)
	return &localEnd{a, node, lost}, &localEnd{b, node, lost}
}

// Read implements io.Reader.
func (l *localEnd) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err != nil && l.lost.Load() {
		err = &lostError{l.node, err}
	}
	return n, err
}

func (l *localEnd) abort() {
	l.lost.Store(true)
	l.Conn.Close()
}

// start makes the child for a lease, and releases the lease if it fails. The process starts with
// the first message.
func (c *Children) start(conf *config, key string, lease coordination.Lease) (*child, error) {
	ch := &child{c: c, name: conf.name, key: key, lease: lease, mixed: conf.mixed, unused: make(chan struct{}, 1), users: map[connection]struct{}{}}
	ch.held, ch.cancel = context.WithCancel(context.Background())
	o := conf.options
	connect := o.Connect
	o.Connect = func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		return ch.connect(ctx, connect, stderr)
	}
	o.Name, o.ClientEra, o.Shared, o.NoTranslation = conf.name, bridge.EraAuto, true, true
	o.CallTimeout = -1 // the nodes of the clients have it
	o.BaseContext, o.Record, o.Recording, o.Logger = nil, nil, nil, c.log
	var err error
	if ch.bridge, err = bridge.New(&o); err != nil {
		ch.cancel()
		ch.release()
		return nil, err
	}
	ch.linger = time.AfterFunc(lingerTime, func() { wait.Signal(ch.unused) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.children[key] = ch
	c.wg.Go(ch.run)
	c.log.Info("this node runs an upstream", "upstream", conf.name, "epoch", lease.Epoch())
	return ch, nil
}

// connect starts the process. Its framer is closed when the lease is lost.
func (ch *child) connect(ctx context.Context, connect func(context.Context, io.Writer) (jsonrpc.Framer, error), stderr io.Writer) (jsonrpc.Framer, error) {
	if ch.held.Err() != nil || !ch.lease.Held() {
		return nil, errNotHere
	}
	f, err := connect(ctx, stderr)
	if err != nil {
		return nil, err
	}
	return &heldFramer{f, context.AfterFunc(ch.held, func() { f.Close() })}, nil
}

// A heldFramer is the connection to a process of a lease.
type heldFramer struct {
	jsonrpc.Framer
	// stop undoes what closes the framer when the lease is lost.
	stop func() bool
}

// Close implements jsonrpc.Framer.
func (f *heldFramer) Close() error {
	f.stop()
	return f.Framer.Close()
}

// serve serves a bridge on a connection until one of them ends. It owns the connection, unless it
// returns an error.
func (ch *child) serve(conn connection) error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.ending {
		return errNotHere
	}
	ch.users[conn] = struct{}{}
	ch.linger.Stop()
	ctx := ch.held
	if ch.served++; ch.mixed { // the node at the other end knows the principals of its calls
		ctx = bridge.WithCallPrincipal(ctx, "connection "+strconv.Itoa(ch.served))
	}
	ch.c.wg.Go(func() {
		err := ch.bridge.Serve(ctx, jsonrpc.NewFramer(conn, nil))
		ch.c.log.Debug("a connection to a shared process has ended", "upstream", ch.name, "error", err)
		ch.mu.Lock()
		defer ch.mu.Unlock()
		if delete(ch.users, conn); len(ch.users) == 0 && !ch.ending {
			ch.linger.Reset(lingerTime)
		}
	})
	return nil
}

// run ends the child when the lease is lost, when nobody uses the child, or with the Children.
func (ch *child) run() {
	for !ch.mustEnd() {
	}
	ch.linger.Stop()
	ch.mu.Lock()
	for conn := range ch.users {
		conn.abort() // before the bridge answers pending requests
	}
	ch.mu.Unlock()
	if !ch.lease.Held() {
		ch.c.log.Warn("this node has lost the lease of an upstream and ends its process", "upstream", ch.name, "epoch", ch.lease.Epoch())
		ch.cancel() // closes the processes at once
	}
	ch.bridge.Close()
	ch.cancel()
	ch.release()
	ch.c.mu.Lock()
	defer ch.c.mu.Unlock()
	delete(ch.c.children, ch.key)
}

// mustEnd waits for a reason to end, and reports if it still applies.
func (ch *child) mustEnd() bool {
	idle := false
	select {
	case <-ch.lease.Lost():
	case <-ch.c.ctx.Done():
	case <-ch.unused:
		idle = true
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ending = !idle || len(ch.users) == 0
	return ch.ending
}

// release gives the lease back. If that fails, other nodes wait until it counts as lost.
func (ch *child) release() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := ch.lease.Release(ctx); err != nil {
		ch.c.log.Warn("the lease of an upstream was not released", "upstream", ch.name, "error", fmt.Sprint(err))
	}
}

package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"mcpwire/cluster"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/internal/base/coordination"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
)

const (
	// topic is the topic of the messages between nodes.
	topic = "gateway children"
	// searchTime limits the search for the node of a process.
	searchTime = 25 * time.Second
	// searchInterval is the time between steps of a search.
	searchInterval = 100 * time.Millisecond
	// holderInterval is the time between questions who has a lease, while this node waits for it.
	holderInterval = 500 * time.Millisecond
	// maxLeaseWait limits the wait for a lease. It is longer than it takes to notice that the lease
	// is no longer renewed.
	maxLeaseWait = 8 * time.Second
	// leaveTime limits the time to give a lease back.
	leaveTime = 3 * time.Second
	// maxTunnels limits the connections with other nodes.
	maxTunnels = 10_000
)

// Children are the processes of upstreams as one node of a cluster sees them. Use [New] to make
// one, and close it before the node leaves.
type Children struct {
	node coordination.Node
	// members is cluster.Node.Members.
	members func() (list []cluster.Member, changed <-chan struct{})
	log     *slog.Logger
	// ctx ends with Close.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// children holds the processes of this node by key.
	children map[string]*child
	// searches holds the running searches by key.
	searches map[string]*search
	// tunnels holds the connections with other nodes by id.
	tunnels map[string]*tunnel
}

// New returns the processes of a node. logger may be nil.
func New(ctx context.Context, node *cluster.Node, logger *slog.Logger) (*Children, error) {
	c := &Children{node: coordination.Of(node), members: node.Members, log: cmp.Or(logger, slog.New(slog.DiscardHandler)), children: map[string]*child{}, searches: map[string]*search{}, tunnels: map[string]*tunnel{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if err := c.node.Handle(ctx, topic, c.receive); err != nil {
		return nil, fmt.Errorf("processes of upstreams: %w", err)
	}
	return c, nil
}

// Close ends the processes of this node, and its connections to others, and releases the leases. It
// waits for all of that.
func (c *Children) Close() {
	c.mu.Lock()
	c.closed = true
	tunnels := slices.Collect(maps.Values(c.tunnels))
	c.mu.Unlock()
	c.cancel()
	for _, t := range tunnels {
		if t.dialed { // the others end with their processes
			t.Close()
		}
	}
	c.wg.Wait()
}

// Share makes an upstream whose Bridge.Connect starts a process share it with other nodes whose
// upstream has the same Name and Fingerprint. It leaves an upstream alone whose clients do not
// share a process.
func (c *Children) Share(u *gateway.Upstream) {
	if u.Isolation == gateway.IsolateClients || u.PerPrincipal {
		return
	}
	conf := &config{name: u.Name, fingerprint: u.Fingerprint, options: u.Bridge, mixed: u.Isolation == gateway.IsolateNone}
	u.Bridge.Connect = func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return c.connect(ctx, conf) }
}

// A config is an upstream whose process is shared.
type config struct {
	name, fingerprint string
	options           bridge.Options
	// mixed says that principals share the process.
	mixed bool
}

// key returns what identifies a process. It names a lease.
func (conf *config) key(principal string) string {
	return nameOf(conf.name, conf.fingerprint, principal)
}

// nameOf returns a name for something of a gateway in the cluster, which differs for other parts.
func nameOf(parts ...string) string {
	text, err := json.Marshal(append([]string{"gateway"}, parts...))
	if err != nil {
		panic(err) // strings have a JSON text
	}
	return string(text)
}

// connect connects to the process, wherever it is, and starts it if necessary.
func (c *Children) connect(ctx context.Context, conf *config) (jsonrpc.Framer, error) {
	key := conf.key(bridge.PrincipalID(ctx))
	ctx, cancel := context.WithTimeoutCause(ctx, searchTime, fmt.Errorf("no node has started %s for %v: %w", conf.name, searchTime, context.DeadlineExceeded))
	defer cancel()
	avoid := ""
	for {
		found, err := c.find(ctx, conf, key, avoid)
		if err != nil {
			return nil, err
		}
		avoid = ""
		rw, err := c.open(ctx, found, conf, key)
		switch {
		case err == nil:
			return jsonrpc.NewFramer(rw, nil), nil
		case errors.Is(err, cluster.ErrNoNode), errors.Is(err, cluster.ErrUnavailable) && !c.node.HasMember(found.node):
			avoid = found.node
		}
		c.log.Debug("the process of an upstream is not where its lease is", "upstream", conf.name, "node", found.node, "error", err)
		if !wait.Sleep(ctx, searchInterval) {
			return nil, context.Cause(ctx)
		}
	}
}

// A place is where a process is: child at this node, or another node.
type place struct {
	child *child
	node  string
}

// A search looks for the place of a process, for all connections that need it.
type search struct {
	done chan struct{}
	// place and err are set before done is closed.
	place place
	err   error
}

var errClosed = errors.New("the node is shutting down")

// find returns the place of a process. It starts the process if no node has its lease, or if the
// node avoid has it and no longer renews it.
func (c *Children) find(ctx context.Context, conf *config, key, avoid string) (place, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return place{}, errClosed
	}
	if ch := c.children[key]; ch != nil {
		c.mu.Unlock()
		return place{child: ch}, nil
	}
	s := c.startSearchLocked(conf, key, avoid)
	c.mu.Unlock()
	select {
	case <-s.done:
		return s.place, s.err
	case <-ctx.Done():
		return place{}, context.Cause(ctx)
	}
}

// startSearchLocked returns the running search for a process, or starts one.
func (c *Children) startSearchLocked(conf *config, key, avoid string) *search {
	if s := c.searches[key]; s != nil {
		return s
	}
	s := &search{done: make(chan struct{})}
	c.searches[key] = s
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, searchTime)
		defer cancel()
		s.place, s.err = c.search(ctx, conf, key, avoid)
		c.mu.Lock()
		delete(c.searches, key)
		c.mu.Unlock()
		close(s.done)
	})
	return s
}

// suspect begins to wait for the lease of a process whose node does not answer. When the tunnel to
// it fails, the lease is free sooner. A node that is there after all keeps its lease.
func (c *Children) suspect(conf *config, key, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.children[key] == nil {
		c.startSearchLocked(conf, key, node)
	}
}

func (c *Children) search(ctx context.Context, conf *config, key, avoid string) (place, error) {
	for {
		lease, err := c.node.TryAcquire(ctx, key)
		if errors.Is(err, coordination.ErrLeaseHeld) {
			var holder string
			holder, err = c.node.LeaseHolder(ctx, key)
			switch {
			case err != nil: // it may have been released just now
			case holder != c.node.ID() && holder != avoid && c.node.HasMember(holder):
				return place{node: holder}, nil
			default:
				lease, err = c.waitForLease(ctx, key, holder)
			}
		}
		if err == nil {
			ch, err := c.start(conf, key, lease)
			return place{child: ch}, err
		}
		c.log.Debug("no lease for the process of an upstream", "upstream", conf.name, "error", err)
		avoid = ""
		if !wait.Sleep(ctx, searchInterval) {
			return place{}, fmt.Errorf("find the node that runs %s: %w", conf.name, err)
		}
	}
}

// waitForLease waits for a lease that its holder may no longer renew, until another node has it.
func (c *Children) waitForLease(ctx context.Context, key, holder string) (coordination.Lease, error) {
	ctx, stop := context.WithTimeout(ctx, maxLeaseWait)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		for wait.Sleep(ctx, holderInterval) {
			if now, err := c.node.LeaseHolder(ctx, key); err == nil && now != holder && now != c.node.ID() {
				cancel(coordination.ErrLeaseHeld)
			}
		}
	})
	return c.node.Acquire(ctx, key)
}

// open connects to a process at its place.
func (c *Children) open(ctx context.Context, at place, conf *config, key string) (io.ReadWriteCloser, error) {
	if at.child != nil {
		ours, theirs := newLocal(c.node.ID())
		if err := at.child.serve(theirs); err != nil {
			ours.Close()
			theirs.Close()
			return nil, err
		}
		return ours, nil
	}
	t, err := c.newTunnel(at.node, "")
	if err != nil {
		return nil, err
	}
	t.suspect = func() { c.suspect(conf, key, at.node) }
	request, err := json.Marshal(&openRequest{Key: key, Connection: t.id, Node: c.node.ID()})
	if err == nil {
		_, err = c.node.Request(ctx, at.node, topic, append([]byte{messageOpen}, request...))
	}
	if err != nil {
		t.fail(err)
		return nil, err
	}
	return t, t.start()
}

// The first byte of a message between nodes.
const (
	// messageOpen is followed by an openRequest. The reply is empty.
	messageOpen = 'o'
	// messageData is followed by a chunk. The reply is one byte, a chunkReply.
	messageData = 'd'
	// messageStatus is followed by nothing. The reply is that of statusMessage.
	messageStatus = 's'
)

// An openRequest opens a connection to a process of the receiver.
type openRequest struct {
	Key        string `json:"key"`
	Connection string `json:"connection"`
	// Node is the id of the sender.
	Node string `json:"node"`
}

var (
	errNotHere = errors.New("the process is not at this node")
	errMessage = errors.New("invalid message")
)

// receive handles a message of another node.
func (c *Children) receive(_ context.Context, data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, errMessage
	}
	switch data[0] {
	case messageData:
		return c.receiveChunk(data[1:])
	case messageOpen:
		var r openRequest
		if err := json.Unmarshal(data[1:], &r); err != nil || len(r.Connection) != idLength {
			return nil, errMessage
		}
		return nil, c.accept(&r)
	case messageStatus:
		return c.statusMessage()
	}
	return nil, errMessage
}

// accept connects another node to a process of this one.
func (c *Children) accept(r *openRequest) error {
	c.mu.Lock()
	ch := c.children[r.Key]
	c.mu.Unlock()
	if ch == nil {
		return errNotHere
	}
	t, err := c.newTunnel(r.Node, r.Connection)
	if err != nil {
		return err
	}
	if err := ch.serve(t); err != nil {
		t.fail(err)
		return err
	}
	return t.start()
}

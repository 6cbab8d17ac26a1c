package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mcpwire/client"
	"mcpwire/cluster"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/proxy/gateway"
	"mcpwire/internal/proxy/gateway/nodes"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A line is the backend of one node. It can be cut.
type line struct {
	*cluster.Memory
	down atomic.Bool
	// lossy drops the replies of every other request.
	lossy atomic.Bool
	// gone holds the id of a node whose process does not exist.
	gone     *sync.Map
	requests atomic.Int64
}

func (l *line) fault() error {
	if l.down.Load() {
		return cluster.ErrUnavailable
	}
	return nil
}

func (l *line) Records(ctx context.Context, name string, o cluster.RecordsOptions) (cluster.Records, error) {
	r, err := l.Memory.Records(ctx, name, o)
	return &lineRecords{r, l}, errors.Join(err, l.fault())
}

func (l *line) Bus() cluster.Bus { return &lineBus{l.Memory.Bus(), l} }

type lineRecords struct {
	cluster.Records
	l *line
}

func (r *lineRecords) Get(ctx context.Context, key string) (cluster.Record, error) {
	if err := r.l.fault(); err != nil {
		return cluster.Record{}, err
	}
	return r.Records.Get(ctx, key)
}

func (r *lineRecords) Put(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	if err := r.l.fault(); err != nil {
		return 0, err
	}
	return r.Records.Put(ctx, key, value, rev)
}

func (r *lineRecords) Delete(ctx context.Context, key string, rev uint64) error {
	if err := r.l.fault(); err != nil {
		return err
	}
	return r.Records.Delete(ctx, key, rev)
}

type lineBus struct {
	cluster.Bus
	l *line
}

func (b *lineBus) Publish(ctx context.Context, topic string, data []byte) error {
	if err := b.l.fault(); err != nil {
		return err
	}
	return b.Bus.Publish(ctx, topic, data)
}

func (b *lineBus) Request(ctx context.Context, node, topic string, data []byte) ([]byte, error) {
	if err := b.l.fault(); err != nil {
		return nil, err
	}
	if _, gone := b.l.gone.Load(node); gone {
		return nil, cluster.ErrNoNode
	}
	reply, err := b.Bus.Request(ctx, node, topic, data)
	if b.l.lossy.Load() && b.l.requests.Add(1)%2 == 0 {
		return nil, cluster.ErrUnavailable
	}
	return reply, err
}

func (b *lineBus) Handle(ctx context.Context, node, topic string, handle func(context.Context, []byte) []byte) (func(), error) {
	return b.Bus.Handle(ctx, node, topic, func(ctx context.Context, data []byte) []byte {
		if b.l.fault() != nil {
			<-ctx.Done() // as if it had not arrived
		}
		return handle(ctx, data)
	})
}

// A program is a server that nodes start as a process. It knows how many run.
type program struct {
	t         *testing.T
	revisions []mcp.Revision

	mu sync.Mutex
	// live has the nodes of the running processes.
	live   map[int]int
	starts int
	// calls holds the processes, which differ in the calls that they have seen.
	release chan struct{}
}

// start starts a process at a node.
func (p *program) start(node int) (jsonrpc.Framer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, n := range p.live {
		if other != node && n > 0 {
			p.t.Errorf("a process starts at node %d while one runs at node %d", node, other)
		}
	}
	p.starts++
	p.live[node]++
	count := 0
	srv := server.MustNew("counter", "1", &server.Options{Revisions: p.revisions})
	must(server.AddTool(srv, "count", "", func(context.Context, struct{}) (string, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		count++
		return fmt.Sprintf("%d at %d", count, node), nil
	}))
	must(server.AddTool(srv, "length", "", func(_ context.Context, in struct{ Text string }) (string, error) {
		return strings.Repeat("y", 2*len(in.Text)), nil
	}))
	must(server.AddTool(srv, "hang", "", func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case <-p.release:
			return "released", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}))
	ours, theirs := net.Pipe()
	go srv.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
	return &process{Framer: jsonrpc.NewFramer(ours, nil), end: func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.live[node]--
	}}, nil
}

type process struct {
	jsonrpc.Framer
	once sync.Once
	end  func()
}

func (p *process) Close() error {
	err := p.Framer.Close()
	p.once.Do(p.end)
	return err
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// A member is a node with a gateway.
type member struct {
	line     *line
	node     *cluster.Node
	children *nodes.Children
	gateway  *gateway.Gateway
}

// leave ends the member in order.
func (m *member) leave(t *testing.T) {
	t.Helper()
	m.gateway.Close()
	m.children.Close()
	if err := m.node.Leave(context.Background()); err != nil && !m.line.down.Load() {
		t.Error(err)
	}
}

// A testCluster has several members whose gateways have one upstream, "up".
type testCluster struct {
	t       *testing.T
	backend cluster.Memory
	gone    sync.Map
	program *program
	members []*member
}

func newCluster(t *testing.T, n int, isolation gateway.Isolation, revisions ...mcp.Revision) *testCluster {
	tc := &testCluster{t: t, program: &program{t: t, revisions: revisions, live: map[int]int{}, release: make(chan struct{})}}
	for i := range n {
		log := slog.New(slog.DiscardHandler)
		if testing.Verbose() {
			log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", i)
		}
		m := &member{line: &line{Memory: &tc.backend, gone: &tc.gone}}
		var err error
		if m.node, err = cluster.Join(t.Context(), m.line, &cluster.NodeOptions{Name: fmt.Sprint(i), Logger: log}); err != nil {
			t.Fatal(err)
		}
		if m.children, err = nodes.New(t.Context(), m.node, log); err != nil {
			t.Fatal(err)
		}
		up := gateway.Upstream{Name: "up", Fingerprint: "1", Isolation: isolation, Bridge: bridge.Options{Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) { return tc.program.start(i) }}}
		m.children.Share(&up)
		if m.gateway, err = gateway.New(&gateway.Options{Upstreams: []gateway.Upstream{up}, Logger: log}); err != nil {
			t.Fatal(err)
		}
		tc.members = append(tc.members, m)
	}
	return tc
}

// close ends all members, and checks that no process is left.
func (tc *testCluster) close() {
	tc.t.Helper()
	close(tc.program.release)
	for _, m := range tc.members {
		m.leave(tc.t)
	}
	for node, n := range tc.program.live {
		if n != 0 {
			tc.t.Errorf("%d processes are left at node %d", n, node)
		}
	}
}

// dial connects a client to the gateway of a member.
func (tc *testCluster) dial(i int, revision mcp.Revision) *client.Client {
	tc.t.Helper()
	c, err := client.Dial(tc.t.Context(), client.TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
		ours, theirs := net.Pipe()
		go tc.members[i].gateway.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
		return jsonrpc.NewFramer(ours, nil), nil
	}), &client.Options{Revisions: []mcp.Revision{revision}})
	if err != nil {
		tc.t.Fatal(err)
	}
	tc.t.Cleanup(func() { c.Close() })
	return c
}

func count(c *client.Client) (string, error) {
	return client.CallTool[string](context.Background(), c, "up__count", nil)
}

// where returns the node that answers the client.
func (tc *testCluster) where(c *client.Client) string {
	tc.t.Helper()
	got, err := count(c)
	if err != nil {
		tc.t.Fatal(err)
	}
	_, node, _ := strings.Cut(got, " at ")
	return node
}

var eras = []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision}

// TestShare checks that the clients of all nodes reach the same process, in all eras, with large
// messages and a bus that loses replies.
func TestShare(t *testing.T) {
	for _, clientEra := range eras {
		for _, serverEra := range eras {
			for _, isolation := range []gateway.Isolation{gateway.IsolatePrincipals, gateway.IsolateNone} {
				t.Run(fmt.Sprint(clientEra, " to ", serverEra, " ", isolation), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						tc := newCluster(t, 3, isolation, serverEra)
						defer tc.close()
						var clients []*client.Client
						for i := range tc.members {
							tc.members[i].line.lossy.Store(true)
							clients = append(clients, tc.dial(i, clientEra))
						}
						for n := range 6 {
							got, err := count(clients[n%3])
							if want := fmt.Sprintf("%d at 0", n+1); err != nil || got != want {
								t.Errorf("client %d: got %q, %v, want %q", n%3, got, err, want)
							}
						}
						text := strings.Repeat("x", 1<<20)
						var calls sync.WaitGroup
						for i, c := range clients {
							calls.Go(func() {
								got, err := client.CallTool[string](t.Context(), c, "up__length", map[string]string{"Text": text})
								if err != nil || len(got) != 2*len(text) {
									t.Errorf("client %d: got %d bytes, %v", i, len(got), err)
								}
							})
						}
						calls.Wait()
						for _, c := range clients {
							c.Close()
						}
					})
				})
			}
		}
	}
}

// TestNodeLost loses the node that runs the process. Its pending calls fail, further ones get
// another process at another node, and the old one has ended by then.
func TestNodeLost(t *testing.T) {
	for name, tt := range map[string]struct {
		lose func(*testCluster, *member)
		// within is when another node must run the process.
		within time.Duration
	}{
		"closed": {func(_ *testCluster, m *member) { m.node.Close() }, 2 * time.Second},
		"cut":    {func(_ *testCluster, m *member) { m.line.down.Store(true) }, 10 * time.Second},
		// The bus says at once that nobody is there.
		"killed": {func(tc *testCluster, m *member) {
			m.line.down.Store(true)
			tc.gone.Store(m.node.ID(), true)
		}, 6 * time.Second},
	} {
		for _, era := range eras {
			t.Run(fmt.Sprint(name, " ", era), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tc := newCluster(t, 3, gateway.IsolatePrincipals, era)
					defer tc.close()
					first := tc.dial(0, era)
					if got := tc.where(first); got != "0" {
						t.Fatalf("the process is at node %s", got)
					}
					clients := []*client.Client{tc.dial(1, era), tc.dial(2, era)}
					failed := make(chan error, len(clients))
					for _, c := range clients {
						tc.where(c)
						go func() {
							_, err := c.CallTool(t.Context(), "up__hang", nil)
							failed <- err
						}()
					}
					synctest.Wait()
					began := time.Now()
					tt.lose(tc, tc.members[0])
					for range clients {
						err := <-failed
						if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || !strings.Contains(e.Message, "node lost") || !strings.Contains(string(e.Data), `"reason":"node lost","mayHaveRun":true`) {
							t.Errorf("the pending call: %v", err)
						}
					}
					if d := time.Since(began); d > 12*time.Second {
						t.Errorf("pending calls have failed after %v", d)
					}
					at := tc.where(clients[0])
					if other := tc.where(clients[1]); at == "0" || other != at {
						t.Errorf("the process is at nodes %s and %s", at, other)
					}
					d := time.Since(began)
					if d > tt.within {
						t.Errorf("the process runs elsewhere after %v, want %v at most", d, tt.within)
					}
					if n := tc.program.live[0]; n != 0 {
						t.Errorf("%d processes run at the lost node", n)
					}
					for _, c := range append(clients, first) {
						c.Close()
					}
				})
			})
		}
	}
}

// TestLeave has the node of the process leave in order. Others take over at once.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tc := newCluster(t, 2, gateway.IsolatePrincipals, mcp.LatestRevision)
		first, second := tc.dial(0, mcp.LatestRevision), tc.dial(1, mcp.LatestRevision)
		if a, b := tc.where(first), tc.where(second); a != "0" || b != "0" {
			t.Errorf("the process is at nodes %s and %s", a, b)
		}
		first.Close()
		tc.members[0].leave(t)
		began := time.Now()
		if got := tc.where(second); got != "1" {
			t.Errorf("the process is at node %s", got)
		}
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("the process runs elsewhere after %v", d)
		}
		second.Close()
		tc.members = tc.members[1:]
		tc.close()
	})
}

// TestIdle checks that a process that nobody uses ends, and that its lease is free.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tc := newCluster(t, 2, gateway.IsolatePrincipals, mcp.LatestRevision)
		defer tc.close()
		first := tc.dial(0, mcp.LatestRevision)
		tc.where(first)
		first.Close()
		tc.members[0].gateway.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := tc.program.live[0]; n != 0 {
			t.Errorf("%d processes run without a client", n)
		}
		second := tc.dial(1, mcp.LatestRevision)
		if got := tc.where(second); got != "1" {
			t.Errorf("the process is at node %s", got)
		}
		second.Close()
	})
}

package nodes_test

import (
	"context"
	"encoding/json"
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
	"mcpwire/cluster/clustertest"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/nodes"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A nodeBackend is the backend as one node sees it. It can become unavailable for that node.
type nodeBackend struct {
	cluster.Backend
	down atomic.Bool
	// lossy drops the replies of every other request.
	lossy atomic.Bool
	// killed holds the ids of nodes whose process has ended.
	killed   *sync.Map
	requests atomic.Int64
}

func (b *nodeBackend) fault() error {
	if b.down.Load() {
		return cluster.ErrUnavailable
	}
	return nil
}

func (b *nodeBackend) Records(ctx context.Context, name string, o cluster.RecordsOptions) (cluster.Records, error) {
	r, err := b.Backend.Records(ctx, name, o)
	return &nodeRecords{r, b}, errors.Join(err, b.fault())
}

func (b *nodeBackend) Bus() cluster.Bus { return &nodeBus{b.Backend.Bus(), b} }

type nodeRecords struct {
	cluster.Records
	backend *nodeBackend
}

func (r *nodeRecords) Get(ctx context.Context, key string) (cluster.Record, error) {
	if err := r.backend.fault(); err != nil {
		return cluster.Record{}, err
	}
	return r.Records.Get(ctx, key)
}

func (r *nodeRecords) Absent(ctx context.Context, key string) error {
	if err := r.backend.fault(); err != nil {
		return err
	}
	return r.Records.Absent(ctx, key)
}

func (r *nodeRecords) Put(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	if err := r.backend.fault(); err != nil {
		return 0, err
	}
	return r.Records.Put(ctx, key, value, rev)
}

func (r *nodeRecords) Delete(ctx context.Context, key string, rev uint64) error {
	if err := r.backend.fault(); err != nil {
		return err
	}
	return r.Records.Delete(ctx, key, rev)
}

type nodeBus struct {
	cluster.Bus
	backend *nodeBackend
}

func (b *nodeBus) Publish(ctx context.Context, topic string, data []byte) error {
	if err := b.backend.fault(); err != nil {
		return err
	}
	return b.Bus.Publish(ctx, topic, data)
}

func (b *nodeBus) Request(ctx context.Context, node, topic string, data []byte) ([]byte, error) {
	if err := b.backend.fault(); err != nil {
		return nil, err
	}
	if _, killed := b.backend.killed.Load(node); killed {
		return nil, cluster.ErrNoNode
	}
	reply, err := b.Bus.Request(ctx, node, topic, data)
	if b.backend.lossy.Load() && b.backend.requests.Add(1)%2 == 0 {
		return nil, cluster.ErrUnavailable
	}
	return reply, err
}

func (b *nodeBus) Handle(ctx context.Context, node, topic string, handle func(context.Context, []byte) []byte) (func(), error) {
	return b.Bus.Handle(ctx, node, topic, func(ctx context.Context, data []byte) []byte {
		if b.backend.fault() != nil {
			<-ctx.Done() // simulate a lost request
		}
		return handle(ctx, data)
	})
}

// A program is a server that nodes start as a process. It counts the running processes.
type program struct {
	t         *testing.T
	revisions []mcp.Revision

	mu sync.Mutex
	// running has the number of running processes of each node.
	running map[int]int
	starts  int
	// release ends the calls of the tool hang.
	release chan struct{}
	// asking counts the calls of the tool ask, which ask when all of them are in flight. asked ends
	// those whose request was refused.
	asking sync.WaitGroup
	asked  chan struct{}
}

// start starts a process at a node.
func (p *program) start(node int) (jsonrpc.Framer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, n := range p.running {
		if other != node && n > 0 {
			p.t.Errorf("a process started at node %d while one runs at node %d", node, other)
		}
	}
	p.starts++
	p.running[node]++
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
	must(server.AddTool(srv, "ask", "", func(ctx context.Context, _ struct{}) (string, error) {
		p.asking.Done()
		p.asking.Wait() // all expected calls are in flight
		res, err := server.CallOf(ctx).Elicit(ctx, "q", &mcp.ElicitRequestParams{Message: "Name?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
		if err != nil {
			<-p.asked // so that the other call still is
			return "", err
		}
		return string(res.Content), nil
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
		p.running[node]--
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
	backend  *nodeBackend
	node     *cluster.Node
	children *nodes.Children
	gateway  *gateway.Gateway
}

// leave shuts the member down.
func (m *member) leave(t *testing.T) {
	t.Helper()
	m.gateway.Close()
	m.children.Close()
	if err := m.node.Leave(context.Background()); err != nil && !m.backend.down.Load() {
		t.Error(err)
	}
}

// A testCluster has several members whose gateways have one upstream, "up".
type testCluster struct {
	t       *testing.T
	backend cluster.Backend
	killed  sync.Map
	program *program
	members []*member
}

func newCluster(t *testing.T, n int, isolation gateway.Isolation, revisions ...mcp.Revision) *testCluster {
	tc := &testCluster{t: t, backend: clustertest.NewMemory(), program: &program{t: t, revisions: revisions, running: map[int]int{}, release: make(chan struct{}), asked: make(chan struct{})}}
	for i := range n {
		log := slog.New(slog.DiscardHandler)
		if testing.Verbose() {
			log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", i)
		}
		m := &member{backend: &nodeBackend{Backend: tc.backend, killed: &tc.killed}}
		var err error
		if m.node, err = cluster.Join(t.Context(), m.backend, &cluster.NodeOptions{Name: fmt.Sprint(i), Logger: log}); err != nil {
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

// close shuts all members down, and checks that no process runs.
func (tc *testCluster) close() {
	tc.t.Helper()
	close(tc.program.release)
	for _, m := range tc.members {
		m.leave(tc.t)
	}
	for node, n := range tc.program.running {
		if n != 0 {
			tc.t.Errorf("got %d processes at node %d, want 0", n, node)
		}
	}
}

// dial connects a client to the gateway of a member.
func (tc *testCluster) dial(i int, revision mcp.Revision) *client.Client {
	tc.t.Helper()
	return tc.dialWith(i, client.Options{Revisions: []mcp.Revision{revision}})
}

func (tc *testCluster) dialWith(i int, opts client.Options) *client.Client {
	tc.t.Helper()
	c, err := client.Dial(tc.t.Context(), client.TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
		ours, theirs := net.Pipe()
		go tc.members[i].gateway.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
		return jsonrpc.NewFramer(ours, nil), nil
	}), &opts)
	if err != nil {
		tc.t.Fatal(err)
	}
	tc.t.Cleanup(func() { c.Close() })
	return c
}

func count(c *client.Client) (string, error) {
	return client.CallTool[string](context.Background(), c, "up__count", nil)
}

// where returns the node that runs the process of the client's calls.
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

// TestShare checks that the clients of all nodes reach the same process, in all pairs of eras, with
// large messages and a bus that loses replies.
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
							tc.members[i].backend.lossy.Store(true)
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

// TestSharedInput checks that a shared process can only ask the client of the only call that is in
// flight at any node.
func TestSharedInput(t *testing.T) {
	const refused = "isolation: shared cannot tell whose call this request belongs to"
	for _, tt := range []struct {
		name      string
		isolation gateway.Isolation
		at        []int // the nodes with calls
		want      string
	}{
		{"one call", gateway.IsolateNone, []int{1}, `{"name":"1"}`},
		{"calls at two nodes", gateway.IsolateNone, []int{0, 1}, refused},
		{"calls of one principal at two nodes", gateway.IsolatePrincipals, []int{0, 1}, `{"name":`},
	} {
		for _, clientEra := range eras {
			t.Run(tt.name+" "+clientEra.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tc := newCluster(t, 2, tt.isolation, mcp.LatestLegacyRevision)
					defer tc.close()
					clients := make([]*client.Client, 2)
					for i := range clients {
						clients[i] = tc.dialWith(i, client.Options{Revisions: []mcp.Revision{clientEra}, Input: client.InputOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
							return &mcp.ElicitResult{Action: "accept", Content: json.RawMessage(fmt.Sprintf(`{"name":"%d"}`, i))}, nil
						}}})
						tc.where(clients[i]) // so that both use the process
					}
					tc.program.asking.Add(len(tt.at))
					answers := make([]string, len(tt.at))
					var calls sync.WaitGroup
					for n, i := range tt.at {
						calls.Go(func() {
							text, err := client.CallTool[string](t.Context(), clients[i], "up__ask", nil)
							answers[n] = fmt.Sprint(text, err)
						})
					}
					synctest.Wait()
					time.Sleep(time.Second)
					close(tc.program.asked)
					calls.Wait()
					for _, got := range answers {
						if !strings.Contains(got, tt.want) {
							t.Errorf("got %s, want %s in it", got, tt.want)
						}
					}
					for _, c := range clients {
						c.Close()
					}
				})
			})
		}
	}
}

// TestNodeLost checks the loss of the node that runs the process: pending calls fail, further calls
// reach a new process at another node, and the old process has ended by then.
func TestNodeLost(t *testing.T) {
	for name, tt := range map[string]struct {
		lose func(*testCluster, *member)
		// within limits the time until another node runs the process.
		within time.Duration
	}{
		"closed": {func(_ *testCluster, m *member) { m.node.Close() }, 2 * time.Second},
		"cut":    {func(_ *testCluster, m *member) { m.backend.down.Store(true) }, 10 * time.Second},
		// The bus reports at once that the node does not exist.
		"killed": {func(tc *testCluster, m *member) {
			m.backend.down.Store(true)
			tc.killed.Store(m.node.ID(), true)
		}, 6 * time.Second},
	} {
		for _, era := range eras {
			t.Run(fmt.Sprint(name, " ", era), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tc := newCluster(t, 3, gateway.IsolatePrincipals, era)
					defer tc.close()
					first := tc.dial(0, era)
					if got := tc.where(first); got != "0" {
						t.Fatalf("the process is at node %s, want 0", got)
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
							t.Errorf("pending call: got %v", err)
						}
					}
					if d := time.Since(began); d > 12*time.Second {
						t.Errorf("pending calls failed after %v, want 12s at most", d)
					}
					at := tc.where(clients[0])
					if other := tc.where(clients[1]); at == "0" || other != at {
						t.Errorf("the process is at nodes %s and %s", at, other)
					}
					d := time.Since(began)
					if d > tt.within {
						t.Errorf("another node runs the process after %v, want %v at most", d, tt.within)
					}
					if n := tc.program.running[0]; n != 0 {
						t.Errorf("got %d processes at the lost node, want 0", n)
					}
					for _, c := range append(clients, first) {
						c.Close()
					}
				})
			})
		}
	}
}

// TestLeave checks that another node takes over at once when the node of the process shuts down.
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
			t.Errorf("the process is at node %s, want 1", got)
		}
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("another node runs the process after %v, want 3s at most", d)
		}
		second.Close()
		tc.members = tc.members[1:]
		tc.close()
	})
}

// TestIdle checks that an unused process ends, and that its lease is released.
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
		if n := tc.program.running[0]; n != 0 {
			t.Errorf("got %d processes without a client, want 0", n)
		}
		second := tc.dial(1, mcp.LatestRevision)
		if got := tc.where(second); got != "1" {
			t.Errorf("the process is at node %s, want 1", got)
		}
		second.Close()
	})
}

// TestStatus checks that every node shows which node runs the process of an upstream, and that it
// names the nodes that do not answer.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tc := newCluster(t, 3, gateway.IsolateNone, mcp.LatestRevision)
		defer tc.close()
		status := func(i int) (nodes []gateway.NodeStatus, silent []string) {
			list := tc.members[i].gateway.Upstreams()
			silent = tc.members[i].children.Status(t.Context(), list)
			return list[0].Nodes, silent
		}
		for i := range tc.members {
			if nodes, silent := status(i); len(nodes)+len(silent) > 0 {
				t.Errorf("before the first call, node %d shows %v and %v", i, nodes, silent)
			}
		}
		owner := tc.where(tc.dial(1, mcp.LatestRevision))
		tc.where(tc.dial(2, mcp.LatestRevision))
		synctest.Wait()
		for i := range tc.members {
			nodes, silent := status(i)
			if len(nodes) == 1 && (nodes[0].InFlight != 0 || nodes[0].Subscriptions == 0) {
				t.Errorf("node %d shows %+v, want no request in flight, and the subscriptions of catalogs", i, nodes)
			}
			if len(silent) > 0 || len(nodes) != 1 || nodes[0].Node != owner || nodes[0].State != "up" || nodes[0].Processes != 1 || nodes[0].LastError != "" {
				t.Errorf("node %d shows %+v and %v, want node %s", i, nodes, silent, owner)
			}
		}
		tc.members[1].backend.down.Store(true)
		if nodes, silent := status(0); len(nodes) > 0 || fmt.Sprint(silent) != "[1]" {
			t.Errorf("without node %s, node 0 shows %+v and %v", owner, nodes, silent)
		}
		tc.members[1].backend.down.Store(false)
	})
}

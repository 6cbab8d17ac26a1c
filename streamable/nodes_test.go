package streamable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/test/buffer"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A network connects the nodes of a test.
type network struct {
	mu    sync.Mutex
	nodes map[string]func([]byte) []byte
	down  bool
	// silent is the time until which requests to unknown nodes get no response.
	silent time.Time
	// storeDown makes updates of sessions fail.
	storeDown atomic.Bool
	// storeLost makes the next update find no record.
	storeLost atomic.Bool
	storeLate atomic.Bool
}

// A networkNode is a node of a network.
type networkNode struct {
	*network
	name string
}

func (n *networkNode) Name() string { return n.name }

func (n *networkNode) Request(ctx context.Context, node string, message []byte) ([]byte, error) {
	n.mu.Lock()
	handle := n.nodes[node]
	down, silent := n.down, n.silent
	n.mu.Unlock()
	if handle == nil && time.Now().Before(silent) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if down {
		return nil, errors.New("the network is down")
	}
	if handle == nil {
		return nil, fmt.Errorf("%s: %w", node, streamable.ErrNoNode)
	}
	return handle(append([]byte(nil), message...)), nil
}

func (n *networkNode) Publish(ctx context.Context, message []byte) error {
	n.mu.Lock()
	var others []string
	for name := range n.nodes {
		if name != n.name {
			others = append(others, name)
		}
	}
	n.mu.Unlock()
	var err error
	for _, name := range others {
		_, failed := n.Request(ctx, name, message)
		err = errors.Join(err, failed)
	}
	return err
}

func (n *networkNode) Receive(handle func([]byte) []byte) (stop func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[n.name] = handle
	return n.stop, nil
}

func (n *networkNode) stop() { n.leave(n.name) }

func (n *network) leave(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.nodes, name)
}

// networkSessions is a session store that fails according to storeDown and storeLost, and reports
// changes late with storeLate.
type networkSessions struct {
	streamable.SessionWatcher
	*network
}

func (n *networkSessions) Update(ctx context.Context, key string, change func(*streamable.SavedSession)) error {
	if n.storeDown.Load() {
		return errors.New("the store is down")
	}
	if n.storeLost.Swap(false) {
		next := change
		change = func(s *streamable.SavedSession) {
			*s = streamable.SavedSession{}
			next(s)
		}
	}
	return n.SessionWatcher.Update(ctx, key, change)
}

func (n *networkSessions) Watch(ctx context.Context, ready func(), changed func(key string, saved *streamable.SavedSession)) error {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	return n.SessionWatcher.Watch(ctx, ready, func(key string, saved *streamable.SavedSession) {
		if !n.storeLate.Load() {
			changed(key, saved)
			return
		}
		waiting.Go(func() {
			<-time.After(20 * time.Millisecond)
			changed(key, saved)
		})
	})
}

// inNetwork runs a test with n connected handlers that share sessions.
func inNetwork(t *testing.T, n int, add func(*server.Server), test func(net *network, all []*endpoint)) {
	t.Helper()
	inNetworkWith(t, streamable.NewMemoryEvents(nil), n, add, test)
}

func inNetworkWith(t *testing.T, events streamable.EventStore, n int, add func(*server.Server), test func(net *network, all []*endpoint)) {
	t.Helper()
	inNetworkOf(t, nil, events, n, add, test)
}

func inNetworkOf(t *testing.T, so *server.Options, events streamable.EventStore, n int, add func(*server.Server), test func(net *network, all []*endpoint)) {
	t.Helper()
	net := &network{nodes: make(map[string]func([]byte) []byte)}
	sessions := &networkSessions{streamable.NewMemorySessions(), net}
	started := 0
	start := func(t *testing.T) (*server.Server, *streamable.Handler) {
		srv := server.MustNew("test", "1", so)
		t.Cleanup(func() {
			if err := srv.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		addTools(t, srv)
		add(srv)
		started++
		node := &networkNode{net, fmt.Sprintf("node%d", started)}
		return srv, streamable.MustHandler(srv, &streamable.Options{Sessions: sessions, Events: events, Nodes: node})
	}
	inBubbleWithAll(t, n, start, func(all []*endpoint) { test(net, all) })
}

// TestResponseElsewhere shows that the response to an input request reaches the node that has sent
// the request, whichever node the client sends it to. If that node is gone, it is dropped and
// counted.
func TestResponseElsewhere(t *testing.T) {
	add := func(srv *server.Server) {
		err := server.AddTool(srv, "roots", "", func(ctx context.Context, _ struct{}) (string, error) {
			roots, err := server.CallOf(ctx).Roots(ctx, "roots")
			if err != nil {
				return "", err
			}
			return roots[0].Name, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		inNetwork(t, 3, add, func(net *network, all []*endpoint) {
			v := all[0].visit(version, `{"roots":{}}`, nil)
			asked := func(f *eventReader) string {
				for {
					_, data := f.next()
					var m struct {
						ID     json.RawMessage
						Method string
					}
					if data == "" {
						continue
					}
					if err := json.Unmarshal([]byte(data), &m); err != nil || m.Method != "roots/list" {
						t.Fatalf("event %s (%v)", data, err)
					}
					return string(m.ID)
				}
			}
			post := func(e *endpoint, body string) {
				t.Helper()
				if got := (&legacySession{e, v.headers}).post(body); got.status != 202 {
					t.Errorf("%s: %d %s", version, got.status, got.body)
				}
				synctest.Wait()
			}
			response := func(id string) string {
				return `{"jsonrpc":"2.0","id":` + id + `,"result":{"roots":[{"uri":"file:///x","name":"mine"}]}}`
			}
			f := v.open(request(1, "tools/call", `{"name":"roots"}`))
			id := asked(f)
			post(all[2], response(`"node9.1.1"`)) // an unknown node
			body := response(id)
			if version == "2025-03-26" {
				body = "[" + body + "]"
			}
			post(all[1], body)
			if _, data := f.next(); !strings.Contains(data, `"text":"mine"`) {
				t.Errorf("%s: %s", version, data)
			}
			post(all[1], response(id)) // the second response has no effect
			g := v.open(request(2, "tools/call", `{"name":"roots"}`))
			id = asked(g)
			net.mu.Lock()
			net.down = true
			net.mu.Unlock()
			post(all[1], response(id))
			post(all[0], response(id)) // the node itself, without the network
			if _, data := g.next(); !strings.Contains(data, `"text":"mine"`) {
				t.Errorf("%s: %s", version, data)
			}
			advance(time.Minute)
			for i, want := range []struct{ forwarded, dropped uint64 }{{0, 0}, {2, 1}, {0, 1}} {
				if got := all[i].h.Stats(); got.Forwarded != want.forwarded || got.Unforwarded != want.dropped {
					t.Errorf("%s: node %d has forwarded %d messages and dropped %d, want %+v", version, i, got.Forwarded, got.Unforwarded, want)
				}
			}
		})
	}
}

// TestResponseLater shows that the response to an input request reaches a node after the network
// has reconnected it.
func TestResponseLater(t *testing.T) {
	add := func(srv *server.Server) {
		err := server.AddTool(srv, "roots", "", func(ctx context.Context, _ struct{}) (string, error) {
			_, err := server.CallOf(ctx).Roots(ctx, "roots")
			return "answered", err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	inNetwork(t, 2, add, func(net *network, all []*endpoint) {
		v := all[0].visit("2025-11-25", `{"roots":{}}`, nil)
		f := v.open(request(1, "tools/call", `{"name":"roots"}`))
		var m struct{ ID json.RawMessage }
		for m.ID == nil {
			if _, data := f.next(); data != "" {
				if err := json.Unmarshal([]byte(data), &m); err != nil {
					t.Fatal(err)
				}
			}
		}
		split := func(down bool) {
			net.mu.Lock()
			defer net.mu.Unlock()
			net.down = down
		}
		split(true)
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, m.ID)
		if got := (&legacySession{all[1], v.headers}).post(body); got.status != 202 {
			t.Errorf("%d %s", got.status, got.body)
		}
		advance(10 * time.Second)
		split(false)
		f.wantMessage(`"text":"answered"`)
		if got := all[1].h.Stats().Unforwarded; got != 0 {
			t.Errorf("%d messages were lost", got)
		}
	})
}

// TestCancellationElsewhere shows that a cancellation reaches the node that handles the call, and
// no call of another session.
func TestCancellationElsewhere(t *testing.T) {
	canceled := make(map[string]int)
	var mu sync.Mutex
	add := func(srv *server.Server) {
		err := server.AddTool(srv, "hang", "", func(ctx context.Context, in echoIn) (string, error) {
			server.CallOf(ctx).Progress(1, 0, "") // tells the client that the call runs
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			canceled[in.Text]++
			return "", ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	inNetwork(t, 2, add, func(_ *network, all []*endpoint) {
		one, two := all[0].visit("2025-06-18", "{}", nil), all[0].visit("2025-06-18", "{}", nil)
		for name, v := range map[string]*legacySession{"one": one, "two": two} {
			f := v.open(request(7, "tools/call", `{"name":"hang","arguments":{"text":"`+name+`"},"_meta":{"progressToken":1}}`))
			if _, data := f.next(); !strings.Contains(data, "notifications/progress") {
				t.Fatal(data)
			}
		}
		got := (&legacySession{all[1], one.headers}).post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		if got.status != 202 {
			t.Errorf("%d %s", got.status, got.body)
		}
		synctest.Wait()
		mu.Lock()
		if canceled["one"] != 1 || canceled["two"] != 0 {
			t.Errorf("canceled: %v", canceled)
		}
		mu.Unlock()
		one.do("DELETE", "", one.headers)
		two.do("DELETE", "", two.headers)
	})
}

// TestNodeNames checks which node names are valid, since they are parts of ids.
func TestNodeNames(t *testing.T) {
	for name, want := range map[string]bool{"a": true, "A7": true, strings.Repeat("x", 16): true, "": false, "a.b": false, "a b": false, strings.Repeat("x", 17): false} {
		o := &streamable.Options{Sessions: streamable.NewMemorySessions(), Nodes: &networkNode{&network{nodes: make(map[string]func([]byte) []byte)}, name}}
		h, err := streamable.NewHandler(server.MustNew("test", "1", nil), o)
		if (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil {
			if err := h.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestInitializedQuietly shows that there is no warning if a client confirms its session at another
// node than the one that opened it, which is normal with several nodes.
func TestInitializedQuietly(t *testing.T) {
	log := new(buffer.Buffer)
	so := &server.Options{Logger: slog.New(slog.NewTextHandler(log, nil))}
	inNetworkOf(t, so, streamable.NewMemoryEvents(nil), 2, func(*server.Server) {}, func(_ *network, all []*endpoint) {
		v := all[0].visit("2025-11-25", "{}", nil)
		for range 2 {
			got := (&legacySession{all[1], v.headers}).post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			if got.status != 202 {
				t.Errorf("%d %s", got.status, got.body)
			}
		}
	})
	if text := log.String(); strings.Contains(text, "initialized") {
		t.Errorf("logged: %s", text)
	}
}

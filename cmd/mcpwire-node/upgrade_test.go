package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/internal/net/loopback"
	"mcpwire/mcp"
)

// A traffic counts the requests of a client.
type traffic struct {
	next http.RoundTripper
	// opened counts handshakes, and streams the attempts to open a standing stream.
	opened, streams atomic.Int64
}

func (tr *traffic) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := tr.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	switch {
	case r.Method == http.MethodGet, r.Header.Get("Mcp-Method") == mcp.MethodSubscriptionsListen:
		tr.streams.Add(1)
	case r.Method == http.MethodPost && resp.Header.Get("Mcp-Session-Id") != "" && r.Header.Get("Mcp-Session-Id") == "":
		tr.opened.Add(1)
	}
	return resp, err
}

// A loader calls a tool again and again.
type loader struct {
	c       *client.Client
	traffic *traffic
	// news has an item for each change of the list of tools.
	news  chan struct{}
	calls int
	errs  []error
}

// newLoader connects a client that listens.
func newLoader(t *testing.T, url string, r mcp.Revision) *loader {
	t.Helper()
	l := &loader{traffic: &traffic{next: &http.Transport{}}, news: make(chan struct{}, 1)}
	l.c = connect(t, url, &client.Options{Revisions: []mcp.Revision{r}, OnNotification: func(method string, _ json.RawMessage) {
		if method == mcp.NotificationToolsChanged {
			select {
			case l.news <- struct{}{}:
			default:
			}
		}
	}}, &http.Client{Transport: l.traffic})
	if l.c.Revision().Modern() {
		subscribed := make(chan struct{})
		go l.keepListening(t, sync.OnceFunc(func() { close(subscribed) }))
		<-subscribed
	}
	return l
}

// keepListening subscribes until the client is closed. A server that shuts down ends the
// subscription.
func (l *loader) keepListening(t *testing.T, subscribed func()) {
	defer subscribed()
	for {
		sub, err := l.c.ListenFunc(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}, func(client.Event) {})
		if err != nil {
			t.Errorf("listen: %v", err)
			return
		}
		subscribed()
		select {
		case <-sub.Done():
		case <-l.c.Done():
			return
		}
		if sub.Err() != nil {
			t.Errorf("the subscription has failed: %v", sub.Err())
			return
		}
	}
}

// load calls the tool until stop is closed.
func (l *loader) load(ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		l.calls++
		id := fmt.Sprint(l.c.Revision(), l.calls)
		got, err := call(ctx, l.c, "work", map[string]any{"id": id, "ms": 20})
		if err == nil && !strings.Contains(got, `"id":"`+id+`","runs":1`) {
			err = fmt.Errorf("the call %s got %s", id, got)
		}
		if err != nil {
			l.errs = append(l.errs, fmt.Errorf("call %s: %w", id, err))
		}
	}
}

// A balancer is a load balancer that sends requests to the nodes that are ready.
type balancer struct {
	all []string

	mu      sync.Mutex
	skipped string
	next    int
}

// skip sends no requests to an address.
func (b *balancer) skip(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skipped = address
}

// dial connects to the next node.
func (b *balancer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	b.mu.Lock()
	b.next++
	at := b.all[b.next%len(b.all)]
	if at == b.skipped {
		b.next++
		at = b.all[b.next%len(b.all)]
	}
	b.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, at)
}

// TestRollingUpgrade replaces each of three nodes while a client of each era calls a tool through a
// load balancer that checks readiness. No call fails, no session is lost, and each stream is opened
// again at most once for each node.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	t.Parallel()
	const nodes = 3
	ports, err := loopback.FreeAddresses(2 * nodes)
	if err != nil {
		t.Fatal(err)
	}
	dir, core := t.TempDir(), make([]string, nodes)
	for i := range core {
		core[i] = fmt.Sprintf("n%d=%s", i, ports[nodes+i])
	}
	args := func(i int) []string {
		name := fmt.Sprint("n", i)
		return []string{"--name", name, "--listen", ports[i], "--dir", filepath.Join(dir, name), "--core", strings.Join(core, ","), "--test-tools", "--admin", "127.0.0.1:0", "--drain-delay", "1s"}
	}
	var all [nodes]*program
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() { all[i] = start(t, args(i)...) })
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	balancer := &balancer{all: ports[:nodes]}
	urls, proxied := make(chan string, 1), make(chan error, 1)
	proxying, stopProxy := context.WithCancel(t.Context())
	go func() {
		proxied <- serveProxy(proxying, "127.0.0.1:0", balancer.dial, func(a net.Addr) { urls <- "http://" + a.String() + endpointPath })
	}()
	url := <-urls
	loaders := []*loader{newLoader(t, url, mcp.LatestLegacyRevision), newLoader(t, url, mcp.LatestRevision)}
	stop := make(chan struct{})
	var loading sync.WaitGroup
	for _, l := range loaders {
		loading.Go(func() { l.load(t.Context(), stop) })
	}
	for i := range all {
		all[i].stdin.Close()
		for ready := true; ready; {
			status, _ := all[i].get("/readyz")
			ready = status == http.StatusOK
		}
		balancer.skip(ports[i])
		if status := all[i].wait(); status != 0 {
			t.Errorf("node %d: exit status %d", i, status)
		}
		all[i] = start(t, args(i)...)
		balancer.skip("")
	}
	close(stop)
	loading.Wait()
	for _, l := range loaders {
		t.Logf("%s: %d calls, %d errors, %d handshakes, %d streams", l.c.Revision(), l.calls, len(l.errs), l.traffic.opened.Load(), l.traffic.streams.Load())
		if l.errs != nil || l.calls < 100 {
			t.Errorf("%s: %d calls, errors %v", l.c.Revision(), l.calls, l.errs)
		}
		if n := l.traffic.streams.Load(); n > 1+nodes {
			t.Errorf("%s: %d streams were opened", l.c.Revision(), n)
		}
	}
	if diff := cmp.Diff([]int64{1, 0}, []int64{loaders[0].traffic.opened.Load(), loaders[1].traffic.opened.Load()}); diff != "" {
		t.Errorf("handshakes (-want +got):\n%s", diff)
	}
	if _, err := call(t.Context(), loaders[0].c, "add_tool", map[string]string{"name": "x"}); err != nil {
		t.Error(err)
	}
	for _, l := range loaders {
		select {
		case <-l.news:
		case <-time.After(testTimeout):
			t.Errorf("%s: the client got no notification of the new tool", l.c.Revision())
		}
		if err := l.c.Close(); err != nil {
			t.Error(err)
		}
		l.traffic.next.(*http.Transport).CloseIdleConnections()
	}
	stopProxy()
	if err := <-proxied; err != nil {
		t.Error(err)
	}
}

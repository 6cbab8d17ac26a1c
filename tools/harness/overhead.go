//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
	"mcpwire/server"
	"mcpwire/streamable"
)

const (
	overheadRounds = 60
	// callsPerRound is the number of calls whose processor time is measured together.
	callsPerRound = 500
	// eventsPerCall is the number of events of a stream, and eventCalls the number of streams.
	eventsPerCall = 20
	eventCalls    = 100
)

// overhead measures what the cluster costs a call that is answered in JSON, and an event of a
// stream. The calls are made in this process, which is a node, to a handler with and one without
// what nodes share, in turns, and the processor time is that of their thread. So neither the
// network nor other processes count.
func overhead(ctx context.Context, r *result) error {
	b, err := r.testbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	quiet := slog.New(slog.DiscardHandler)
	backend, err := natscluster.Open(ctx, natscluster.Options{URL: "nats://" + b.nodes[0].client, Connect: []nats.Option{nats.Token(engineToken)}, Logger: quiet})
	if err != nil {
		return err
	}
	defer backend.Close()
	var mu sync.Mutex
	var appends times
	n, err := cluster.Join(ctx, backend, &cluster.NodeOptions{Tenant: "overhead", InsecureKeys: true, Logger: quiet, OnAppend: func(d time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			appends = append(appends, d)
		} else {
			r.led.violation("an event was not stored: %v", err)
		}
	}})
	if err != nil {
		return err
	}
	defer n.Close()
	alone, err := newMeasured(ctx, nil)
	if err != nil {
		return err
	}
	defer alone.close()
	shared, err := newMeasured(ctx, n)
	if err != nil {
		return err
	}
	defer shared.close()

	// A separate thread, so that its processor time is that of the calls.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var alones, added times
	for range overheadRounds {
		without, err := alone.calls(callsPerRound)
		if err != nil {
			return err
		}
		with, err := shared.calls(callsPerRound)
		if err != nil {
			return err
		}
		alones, added = append(alones, without), append(added, with-without)
	}
	slices.Sort(alones)
	slices.Sort(added)
	r.figure("a call without the cluster %v of processor time", alones[len(alones)/2])
	r.bar("a call answered in JSON takes more, in the median of its rounds,", added[len(added)/2], 3*time.Microsecond)
	for range eventCalls {
		if err := shared.steps(eventsPerCall); err != nil {
			return err
		}
	}
	r.load = loadAverage()
	mu.Lock()
	defer mu.Unlock()
	r.figure("%d events", len(appends))
	r.bar("an event is stored, p50", appends.percentile(50), 600*time.Microsecond)
	r.bar("p99", appends.percentile(99), 5*time.Millisecond)
	return ctx.Err()
}

// A measured is a handler with a legacy session.
type measured struct {
	server  *server.Server
	handler *streamable.Handler
	session string
}

// newMeasured returns a handler that shares what nodes share, or nothing if n is nil.
func newMeasured(ctx context.Context, n *cluster.Node) (*measured, error) {
	so, ho := new(server.Options), new(streamable.Options)
	if n != nil {
		if err := n.Share(ctx, "overhead", so, ho); err != nil {
			return nil, err
		}
	}
	srv, err := server.New("overhead", "1", so)
	if err != nil {
		return nil, err
	}
	err = cmp.Or(
		server.AddTool(srv, "echo", "", func(_ context.Context, in struct{ Text string }) (string, error) { return in.Text, nil }),
		server.AddTool(srv, "steps", "", func(ctx context.Context, in struct{ Steps int }) (string, error) {
			for i := range in.Steps {
				if err := server.CallOf(ctx).Progress(float64(i+1), float64(in.Steps), ""); err != nil {
					return "", err
				}
			}
			return "done", nil
		}),
	)
	if err != nil {
		return nil, err
	}
	h, err := streamable.NewHandler(srv, ho)
	if err != nil {
		return nil, err
	}
	m := &measured{server: srv, handler: h}
	w := m.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + legacy + `","capabilities":{},"clientInfo":{"name":"harness","version":"1"}}}`)
	if m.session = w.Header().Get("Mcp-Session-Id"); m.session == "" {
		m.close()
		return nil, fmt.Errorf("initialize: status %d: %s", w.Code, w.Body)
	}
	m.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m, nil
}

// close ends the handler and the server.
func (m *measured) close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	_ = m.handler.Shutdown(ctx) // the process ends soon
	_ = m.server.Close(ctx)
}

func (m *measured) post(body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(body))
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	if m.session != "" {
		r.Header.Set("Mcp-Session-Id", m.session)
		r.Header.Set("MCP-Protocol-Version", legacy)
	}
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, r)
	return w
}

// calls makes calls that are answered in JSON, and returns the mean processor time of one.
func (m *measured) calls(count int) (time.Duration, error) {
	text := strings.Repeat("x", 1<<10)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"Text":"` + text + `"}}}`
	before, err := threadTime()
	if err != nil {
		return 0, err
	}
	for range count {
		w := m.post(body)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" || !bytes.Contains(w.Body.Bytes(), []byte(text)) {
			return 0, fmt.Errorf("a call: status %d: %.200s", w.Code, w.Body)
		}
	}
	after, err := threadTime()
	return (after - before) / time.Duration(count), err
}

// steps makes a call that reports progress, and is answered by an event stream.
func (m *measured) steps(count int) error {
	w := m.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"steps","arguments":{"Steps":%d},"_meta":{"progressToken":1}}}`, count))
	if got := strings.Count(w.Body.String(), "notifications/progress"); got != count || !strings.Contains(w.Body.String(), `"done"`) {
		return fmt.Errorf("a call with %d steps: status %d, %d events: %.200s", count, w.Code, got, w.Body)
	}
	return nil
}

// threadTime returns the processor time that this thread has used.
func threadTime() (time.Duration, error) {
	const thisThread = 1 // RUSAGE_THREAD, which package syscall does not have
	var use syscall.Rusage
	if err := syscall.Getrusage(thisThread, &use); err != nil {
		return 0, fmt.Errorf("read the processor time of a thread: %w", err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano()), nil
}

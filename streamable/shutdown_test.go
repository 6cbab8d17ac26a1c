package streamable_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/server"
	"mcpwire/streamable"
)

// addGate adds a tool that waits for goOn, and not for anything else.
func (e *endpoint) addGate(goOn <-chan struct{}) {
	e.t.Helper()
	err := server.AddTool(e.srv, "gate", "", func(context.Context, struct{}) (string, error) {
		<-goOn
		return "through", nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// withSSE serves the transport of 2024-11-05 at /sse beside the endpoint.
func withSSE(o *streamable.Options) func(e *endpoint) http.Handler {
	return func(e *endpoint) http.Handler {
		e.h = streamable.NewHandler(e.srv, o)
		mux := http.NewServeMux()
		mux.Handle("/", e.h)
		mux.Handle("/sse", e.h.SSE("/sse"))
		return mux
	}
}

// visitSSE opens a session of 2024-11-05, and returns where to post to, and its stream.
func (e *endpoint) visitSSE() (old *endpoint, f *flow) {
	e.t.Helper()
	old = &endpoint{t: e.t, url: e.url + "/sse", client: e.client}
	f = old.flow(old.start("GET", "", nil))
	_, address := f.next()
	old.url = e.url + address
	old.do("POST", initialize("2024-11-05", "{}"), nil)
	f.next()
	old.do("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
	return old, f
}

// Shutdown ends what would never end, and has everything that is under way answered.
func TestShutdown(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inBubbleOf(t, h2, nil, withSSE(&streamable.Options{NDJSON: true}), func(e *endpoint) {
			goOn := make(chan struct{})
			e.addGate(goOn)
			v := e.visit("2025-06-18", "{}", nil)
			news := v.listen("")
			gate, gateHeaders := callPost(1, "gate", "{}")
			answers := make(chan answer)
			go func() { answers <- e.do("POST", gate, gateHeaders) }()
			go func() { answers <- v.post(request(1, "tools/call", `{"name":"gate"}`)) }()
			go func() {
				answers <- e.do("POST", gate+"\n", map[string]string{"Content-Type": "application/x-ndjson"})
			}()
			old, sse := e.visitSSE()
			old.do("POST", request(1, "tools/call", `{"name":"gate"}`), nil)
			synctest.Wait()

			down := make(chan error)
			go func() { down <- e.h.Shutdown(context.Background()) }()
			news.want("EOF")
			for _, method := range []string{"POST", "GET"} {
				if got := e.do(method, gate, gateHeaders); got.status != 503 || got.header.Get("Retry-After") == "" {
					e.t.Errorf("%s meanwhile: %d %s", method, got.status, got.body)
				}
			}
			if got := v.post(request(2, "ping", "{}")); got.status != 503 {
				e.t.Errorf("a request of a session meanwhile: %d %s", got.status, got.body)
			}
			if got := v.post(`{"jsonrpc":"2.0","id":7,"result":{}}`); got.status != 202 {
				e.t.Errorf("an answer of a session meanwhile: %d %s", got.status, got.body)
			}
			select {
			case err := <-down:
				e.t.Errorf("Shutdown has returned (%v), while requests are under way", err)
			default:
			}
			close(goOn)
			for range 3 {
				if got := <-answers; got.status != 200 || !strings.Contains(got.body, "through") {
					e.t.Errorf("h2 %v: under way: %d %s", h2, got.status, got.body)
				}
			}
			if _, data := sse.next(); !strings.Contains(data, "through") {
				e.t.Errorf("h2 %v: event %s", h2, data)
			}
			sse.want("EOF")
			if err := <-down; err != nil {
				e.t.Error(err)
			}
			if err := e.h.Shutdown(context.Background()); err != nil {
				e.t.Error("again:", err)
			}
		})
	}
}

// Shutdown does not wait longer than it may.
func TestShutdownTooLate(t *testing.T) {
	inBubbleOf(t, false, nil, withSSE(nil), func(e *endpoint) {
		stubborn := make(chan struct{})
		e.addGate(stubborn)
		started, ended := make(chan struct{}), make(chan error, 2)
		addWaiter(e.t, e.srv, started, ended)
		v := e.visit("2025-06-18", "{}", nil)
		gate, headers := callPost(1, "gate", "{}")
		go func() { e.do("POST", gate, headers) }()
		go v.post(request(1, "tools/call", `{"name":"gate"}`))
		go v.post(request(2, "tools/call", `{"name":"wait"}`))
		<-started
		old, _ := e.visitSSE()
		old.do("POST", request(1, "tools/call", `{"name":"wait"}`), nil)
		<-started
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		var err error
		if d := took(func() { err = e.h.Shutdown(ctx) }); d != 3*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			e.t.Errorf("Shutdown returns %v after %v", err, d)
		}
		for range 2 {
			if err := <-ended; err == nil {
				e.t.Error("a legacy handler was not cancelled")
			}
		}
		close(stubborn)
	})
}

// A session that nobody uses ends; one with a stream, or requests from time to time, does not.
func TestIdleSessions(t *testing.T) {
	inBubble(t, false, nil, func(e *endpoint) {
		idle, pinged, listens := e.visit("2025-06-18", "{}", nil), e.visit("2025-06-18", "{}", nil), e.visit("2025-06-18", "{}", nil)
		f := listens.listen("")
		go io.Copy(io.Discard, f.resp.Body)
		for range 3 {
			pass(20 * time.Minute)
			if got := pinged.post(request(1, "ping", "{}")); got.status != 200 {
				e.t.Errorf("a session that is used: %d %s", got.status, got.body)
			}
		}
		if got := idle.post(request(1, "ping", "{}")); got.status != 404 {
			e.t.Errorf("an idle session: %d %s", got.status, got.body)
		}
		if got := listens.post(request(1, "ping", "{}")); got.status != 200 {
			e.t.Errorf("a session with a stream: %d %s", got.status, got.body)
		}
	})
}

// An idle session costs no more than 4 KiB.
func TestSessionMemory(t *testing.T) {
	const n = 500
	e := newEndpoint(t, nil, nil)
	memory := func() uint64 {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for range 20 {
		e.visit("2025-06-18", "{}", nil)
	}
	before := memory()
	for range n {
		e.visit("2025-06-18", "{}", nil)
	}
	if got := (int64(memory()) - int64(before)) / n; got > 4<<10 && !raceEnabled {
		t.Errorf("a session takes %d bytes", got)
	} else {
		t.Logf("a session takes %d bytes", got)
	}
}

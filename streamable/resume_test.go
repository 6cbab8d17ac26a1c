package streamable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/server"
	"mcpwire/streamable"
)

const listChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// announce changes the list of tools.
func (e *endpoint) announce() {
	e.t.Helper()
	e.announced++
	err := server.AddTool(e.srv, fmt.Sprint("news-", e.announced), "", func(context.Context, struct{}) (string, error) { return "", nil })
	if err != nil {
		e.t.Fatal(err)
	}
}

// TestResumeQuietStream shows that a stream that was idle for longer than events are kept can be
// resumed without a gap.
func TestResumeQuietStream(t *testing.T) {
	inBubble(t, false, nil, func(e *endpoint) {
		v := e.visit("2025-06-18", "{}", nil)
		f := v.listen("")
		e.announce()
		id, data := f.next()
		if data != listChanged {
			e.t.Fatalf("event %s", data)
		}
		quiet := make(chan string)
		go func() {
			_, data := f.next()
			quiet <- data
		}()
		advance(3 * time.Hour)
		g := v.listen(id) // replaces the other stream
		if data := <-quiet; data != "EOF" {
			e.t.Errorf("the stream that was replaced has event %s", data)
		}
		e.announce()
		next, data := g.next()
		if data != listChanged || next == id {
			e.t.Errorf("event %q %s", next, data)
		}
		g.resp.Body.Close()
		synctest.Wait()
		e.announce()
		if _, data := v.listen(next).next(); data != listChanged {
			e.t.Errorf("event %s", data)
		}
		// The events between have been evicted, so resuming from before them must fail.
		advance(20 * time.Minute)
		v.post(request(1, "ping", "{}"))
		if got := v.do("GET", "", with(v.headers, "Last-Event-ID", id)); got.status != 400 {
			e.t.Errorf("after an evicted event: %d", got.status)
		}
	})
}

// TestStandingStreamEventsKept shows that a limited number of messages that belong to no request is
// kept, in order, for a client without a standing stream.
func TestStandingStreamEventsKept(t *testing.T) {
	inBubble(t, false, nil, func(e *endpoint) {
		v := e.visit("2025-06-18", "{}", nil)
		v.post(request(1, "resources/subscribe", `{"uri":"test://a"}`))
		for range 200 {
			e.srv.ResourceUpdated("test://a")
			synctest.Wait()
		}
		f := v.listen("")
		ids := make(map[string]bool)
		for range 128 {
			id, data := f.next()
			if !strings.Contains(data, "notifications/resources/updated") || ids[id] {
				e.t.Fatalf("event %q %s", id, data)
			}
			ids[id] = true
		}
		e.announce()
		if _, data := f.next(); data != listChanged {
			e.t.Errorf("event %s", data)
		}
	})
}

// A panickingStore panics in Append.
type panickingStore struct{ streamable.EventStore }

func (panickingStore) Append(context.Context, string, string, []byte) (string, error) {
	panic("no store today")
}

// TestStorePanics shows that a panic of a store fails only the operation that needs it, on any
// goroutine.
func TestStorePanics(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inBubble(t, h2, &streamable.Options{Events: panickingStore{streamable.NewMemoryEvents(nil)}}, func(e *endpoint) {
			v := e.visit("2025-11-25", "{}", nil)
			got := v.post(request(1, "tools/call", `{"name":"steps","_meta":{"progressToken":1}}`))
			if got.status != 200 {
				e.t.Errorf("%d %s", got.status, got.body)
			}
			if got := v.post(request(1, "ping", "{}")); got.status != 200 {
				e.t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
}

// TestTakeOverStreams shows that two processes with the same stores keep the events of their
// streams apart, and that a stream that ends in one continues in the other.
//
// Spec: S78 S79
func TestTakeOverStreams(t *testing.T) {
	sessions, events := streamable.NewMemorySessions(), streamable.NewMemoryEvents(nil)
	o := &streamable.Options{Sessions: sessions, Events: events}
	first, second := newEndpoint(t, nil, o), newEndpoint(t, nil, o)
	goOn := make(chan struct{})
	for _, e := range []*endpoint{first, second} {
		err := server.AddTool(e.srv, "slow", "", func(ctx context.Context, _ struct{}) (string, error) {
			server.CallOf(ctx).Progress(1, 0, "")
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return "done", nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	v := first.visit("2025-06-18", "{}", nil)
	w := &legacySession{second, v.headers}
	f := v.open(request("1", "tools/call", `{"name":"slow","_meta":{"progressToken":"first"}}`))
	id, _ := f.next()
	var all sync.WaitGroup
	for range 10 { // at once, to a process that has not loaded the session
		all.Go(func() {
			if got := w.post(request(1, "nope", "{}")); got.status != 200 && !strings.Contains(got.body, "in flight") {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	all.Wait()
	g := w.open(request("2", "tools/call", `{"name":"slow","_meta":{"progressToken":"second"}}`))
	if _, data := g.next(); !strings.Contains(data, "second") {
		t.Fatalf("event %s", data)
	}
	h := w.listen(id) // an event of the first process's stream
	close(goOn)
	for {
		_, data := h.next()
		if data == "EOF" {
			break
		}
		if strings.Contains(data, "second") || strings.Contains(data, `"id":2`) {
			t.Errorf("event of another stream: %s", data)
		}
	}
	f.next()
	if err := first.h.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	i := w.listen(id)
	if _, data := i.next(); !strings.Contains(data, `"id":1,`) {
		t.Errorf("event %s", data)
	}
	i.want("EOF")
}

// TestInputWithoutStream shows that a client that accepts no stream cannot get input requests, and
// that the handler does not wait for it.
func TestInputWithoutStream(t *testing.T) {
	inBubble(t, false, nil, func(e *endpoint) {
		err := server.AddTool(e.srv, "ask", "", func(ctx context.Context, _ struct{}) (string, error) {
			_, err := server.CallOf(ctx).Roots(ctx, "roots")
			if err == nil {
				return "", errors.New("there was an answer")
			}
			return "asked in vain", nil
		})
		if err != nil {
			e.t.Fatal(err)
		}
		v := e.visit("2025-06-18", `{"roots":{}}`, nil)
		d := took(func() {
			got := v.do("POST", request(1, "tools/call", `{"name":"ask"}`), with(v.headers, "Accept", "application/json"))
			if got.status != 200 || !strings.Contains(got.body, "asked in vain") {
				e.t.Errorf("%d %s", got.status, got.body)
			}
		})
		if d > time.Second {
			e.t.Errorf("the handler waits for %v", d)
		}
	})
}

// TestCloseStreamAnyway shows that CloseStream ends the response early for every kind of client. An
// HTTP/1.0 client detects it by the end of the connection.
func TestCloseStreamAnyway(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	goOn := make(chan struct{})
	err := server.AddTool(e.srv, "later", "", func(ctx context.Context, _ struct{}) (string, error) {
		if err := streamable.CloseStream(ctx, 0); err != nil {
			return "", err
		}
		<-goOn
		return "done", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, v *legacySession, body io.Reader) {
		t.Helper()
		text, err := io.ReadAll(body)
		rest, ok := strings.CutPrefix(string(text), "id: ")
		id, _, _ := strings.Cut(rest, "\n")
		if err != nil || !ok {
			t.Fatalf("%q, %v", text, err)
		}
		g := v.listen(id)
		goOn <- struct{}{}
		if _, data := g.next(); !strings.Contains(data, "done") {
			t.Errorf("event %s", data)
		}
		g.want("EOF")
	}
	const call = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"later"}}`
	for _, tt := range []struct {
		name       string
		tls, http2 bool
	}{{"HTTP/1.1", false, false}, {"TLS", true, false}, {"HTTP/2", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			e := &endpoint{t: t, srv: e.srv, h: e.h}
			if tt.tls {
				e.serveTLS(e.h, tt.http2)
			} else {
				e.serve(e.h)
			}
			v := e.visit("2025-11-25", "{}", nil)
			resp := v.start("POST", call, v.headers)
			defer resp.Body.Close()
			check(t, v, resp.Body)
		})
	}
	t.Run("HTTP/1.0, pipelined", func(t *testing.T) {
		e := &endpoint{t: t, srv: e.srv, h: e.h}
		e.serve(e.h)
		v := e.visit("2025-11-25", "{}", nil)
		post := rawPost(call, "Mcp-Session-Id: "+v.headers["Mcp-Session-Id"])
		_, r := e.raw(strings.Replace(post, "HTTP/1.1", "HTTP/1.0", 1) + post)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == "\r\n" {
				break
			}
		}
		check(t, v, r)
	})
}

// TestAbandonedRequestsCount shows that a request whose client is gone continues, also over HTTP/2,
// and counts as in flight.
func TestAbandonedRequestsCount(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inBubble(t, h2, &streamable.Options{Limits: streamable.Limits{MaxInFlight: 2}}, func(e *endpoint) {
			started, ended := make(chan struct{}), make(chan error, 2)
			addWaiter(e.t, e.srv, started, ended)
			v := e.visit("2025-06-18", "{}", nil)
			for id := range 2 {
				r := newRequest(e.t, e, request(id+1, "tools/call", `{"name":"wait"}`), v.headers)
				go func() {
					<-started
					r.cancel()
				}()
				r.do()
			}
			synctest.Wait()
			if got := v.post(request(3, "ping", "{}")); got.status != 503 || got.header.Get("Retry-After") == "" {
				e.t.Errorf("h2 %v: with two in flight: %d %s", h2, got.status, got.body)
			}
			if got := v.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`); got.status != 202 {
				e.t.Errorf("h2 %v: a cancellation: %d %s", h2, got.status, got.body)
			}
			<-ended
			synctest.Wait()
			if got := v.post(request(3, "ping", "{}")); got.status != 200 {
				e.t.Errorf("h2 %v: with one in flight: %d %s", h2, got.status, got.body)
			}
		})
	}
}

// TestMaxInFlight shows that streams do not count as requests in flight, and that each request of a
// batch does.
func TestMaxInFlight(t *testing.T) {
	e := newEndpoint(t, nil, &streamable.Options{Limits: streamable.Limits{MaxInFlight: 2, MaxStreams: 4}, NDJSON: true})
	v := e.visit("2025-03-26", "{}", nil)
	body, headers := modernPost(1, "subscriptions/listen", `"notifications":{}`)
	for range 2 {
		e.flow(e.start("POST", body, headers)).next()
	}
	v.listen("")
	pipe, in := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", e.url, pipe)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	lines, err := e.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Body.Close()
	defer in.Close()
	if got := v.post("[" + request(1, "ping", "{}") + "," + request(2, "ping", "{}") + "]"); got.status != 200 {
		t.Errorf("beside streams: %d %s", got.status, got.body)
	}
	if got := v.post("[" + request(1, "ping", "{}") + "," + request(2, "ping", "{}") + "," + request(3, "ping", "{}") + "]"); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("a batch of too many: %d %s", got.status, got.body)
	}
	if got := e.do("POST", body, headers); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("too many streams: %d %s", got.status, got.body)
	}
}

package streamable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/test/race"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
	"mcpwire/streamable"
)

// addGate adds a tool that waits for goOn and ignores its context.
func (e *endpoint) addGate(goOn <-chan struct{}) {
	e.t.Helper()
	err := server.AddTool(e.srv, "gate", "", func(context.Context, struct{}) (string, error) {
		<-goOn
		return "through", nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
	err = server.AddTool(e.srv, "steps-and-gate", "", func(ctx context.Context, _ struct{}) (string, error) {
		if err := server.CallOf(ctx).Log(mcp.LevelError, "", "before"); err != nil {
			return "", err
		}
		<-goOn
		return "through", nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// withSSE serves the HTTP+SSE transport at /sse next to the endpoint.
func withSSE(o *streamable.Options) func(e *endpoint) http.Handler {
	return func(e *endpoint) http.Handler {
		e.h = streamable.MustHandler(e.srv, o)
		mux := http.NewServeMux()
		mux.Handle("/", e.h)
		mux.Handle("/sse", e.h.SSE("/sse"))
		return mux
	}
}

// visitSSE opens an HTTP+SSE session, and returns the URL for POST requests and the stream.
func (e *endpoint) visitSSE() (old *endpoint, f *eventReader) {
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

// TestShutdown shows that Shutdown ends streams and waits until all requests in flight have got
// their responses.
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
			news.want("", "EOF") // the delay before the client resumes
			for _, method := range []string{"POST", "GET"} {
				if got := e.do(method, gate, gateHeaders); got.status != 503 || got.header.Get("Retry-After") == "" {
					e.t.Errorf("%s meanwhile: %d %s", method, got.status, got.body)
				}
			}
			if got := v.post(request(2, "ping", "{}")); got.status != 503 {
				e.t.Errorf("a request of a session during shutdown: %d %s", got.status, got.body)
			}
			if got := v.post(`{"jsonrpc":"2.0","id":7,"result":{}}`); got.status != 400 { // not 503
				e.t.Errorf("a response of a session during shutdown: %d %s", got.status, got.body)
			}
			select {
			case err := <-down:
				e.t.Errorf("Shutdown has returned (%v), while requests are in flight", err)
			default:
			}
			close(goOn)
			for range 3 {
				if got := <-answers; got.status != 200 || !strings.Contains(got.body, "through") {
					e.t.Errorf("h2 %v: in flight: %d %s", h2, got.status, got.body)
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

// TestShutdownSession shows that a session that is opened, or taken over from another process, while
// Shutdown begins is rejected with the reason.
func TestShutdownSession(t *testing.T) {
	so := &server.Options{StateKeys: newStateKeys(t)}
	var hold atomic.Bool
	var goOn chan struct{}
	start := func(t *testing.T) (*server.Server, *streamable.Handler) {
		srv := server.MustNew("test", "1", so)
		t.Cleanup(func() { srv.Close(context.Background()) })
		srv.Use(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				if m.Method == mcp.MethodInitialize && hold.Load() {
					<-goOn
				}
				return next(ctx, m)
			}
		})
		return srv, streamable.MustHandler(srv, nil)
	}
	for _, what := range []string{"opened", "taken over"} {
		inBubbleWithAll(t, 2, start, func(all []*endpoint) {
			hold.Store(false)
			goOn = make(chan struct{})
			v := all[0].visit("2025-11-25", "{}", nil)
			hold.Store(true)
			answers, down := make(chan answer), make(chan error)
			go func() {
				if what == "opened" {
					answers <- all[1].do("POST", initialize("2025-11-25", "{}"), nil)
					return
				}
				answers <- (&legacySession{all[1], v.headers}).post(request(1, "tools/list", "{}"))
			}()
			synctest.Wait()
			go func() { down <- all[1].h.Shutdown(context.Background()) }()
			synctest.Wait()
			close(goOn)
			if got := <-answers; got.status != 503 || !strings.Contains(got.body, "shutting down") || got.header.Get("Retry-After") == "" {
				t.Errorf("a session that is %s: %d %s", what, got.status, got.body)
			}
			if err := <-down; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShutdownStreams shows that the end of a standing stream tells the client what to do: a
// subscription ends with its result, and the stream of a session with the delay before the client
// resumes.
func TestShutdownStreams(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inBubble(t, h2, &streamable.Options{Retry: 3 * time.Second}, func(e *endpoint) {
			read := func(resp *http.Response) <-chan string {
				text := make(chan string, 1)
				go func() {
					defer resp.Body.Close()
					b, err := io.ReadAll(resp.Body)
					text <- fmt.Sprint(string(b), err)
				}()
				return text
			}
			body, headers := modernPost(1, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
			subscription := read(e.start("POST", body, headers))
			legacy := make(map[string]<-chan string)
			for _, revision := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
				v := e.visit(revision, "{}", nil)
				legacy[revision] = read(v.start("GET", "", v.headers))
			}
			synctest.Wait()
			if err := e.h.Shutdown(context.Background()); err != nil {
				e.t.Error(err)
			}
			const result = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1,`
			if got := <-subscription; !strings.Contains(got, result) || !strings.HasSuffix(got, "\n\n<nil>") {
				e.t.Errorf("h2 %v: subscription: %q", h2, got)
			}
			for revision, text := range legacy {
				if got := <-text; !strings.HasSuffix(got, "\n\nretry: 3000\n\n<nil>") {
					e.t.Errorf("h2 %v: stream of %s: %q", h2, revision, got)
				}
			}
		})
	}
}

// TestShutdownInputSSE shows that an HTTP+SSE client can respond to an input request while Shutdown
// waits. Its session ends with its last request.
func TestShutdownInputSSE(t *testing.T) {
	inBubbleOf(t, false, nil, withSSE(nil), func(e *endpoint) {
		if err := server.AddTool(e.srv, "roots", "", func(ctx context.Context, _ struct{}) (string, error) {
			res, err := server.CallOf(ctx).Roots(ctx, "roots")
			if err != nil {
				return "", err
			}
			return fmt.Sprint(len(res), " roots"), nil
		}); err != nil {
			e.t.Fatal(err)
		}
		old := &endpoint{t: e.t, url: e.url + "/sse", client: e.client}
		f := old.flow(old.start("GET", "", nil))
		_, address := f.next()
		old.url = e.url + address
		old.do("POST", initialize("2024-11-05", `{"roots":{}}`), nil)
		f.next()
		old.do("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
		old.do("POST", request(1, "tools/call", `{"name":"roots"}`), nil)
		_, asked := f.next()
		var ask struct{ ID json.RawMessage }
		if err := json.Unmarshal([]byte(asked), &ask); err != nil || !strings.Contains(asked, "roots/list") {
			e.t.Fatalf("event %s, %v", asked, err)
		}
		down := make(chan error)
		go func() { down <- e.h.Shutdown(context.Background()) }()
		synctest.Wait()
		if got := old.do("POST", request(2, "ping", "{}"), nil); got.status != 503 {
			e.t.Errorf("a request during shutdown: %d %s", got.status, got.body)
		}
		if got := old.do("POST", `{"jsonrpc":"2.0","id":`+string(ask.ID)+`,"result":{"roots":[]}}`, nil); got.status != 202 {
			e.t.Fatalf("a response during shutdown: %d %s", got.status, got.body)
		}
		if _, data := f.next(); !strings.Contains(data, `0 roots`) {
			e.t.Errorf("event %s", data)
		}
		f.want("EOF")
		if err := <-down; err != nil {
			e.t.Error(err)
		}
		if got := old.do("POST", `{"jsonrpc":"2.0","id":7,"result":{}}`, nil); got.status != 404 {
			e.t.Errorf("a response after shutdown: %d %s", got.status, got.body)
		}
	})
}

// TestShutdownTooLate shows that Shutdown waits only until its context ends, and then responds to
// the remaining requests with an error.
func TestShutdownTooLate(t *testing.T) {
	inBubbleOf(t, false, nil, withSSE(nil), func(e *endpoint) {
		stubborn := make(chan struct{})
		e.addGate(stubborn)
		started, ended := make(chan struct{}), make(chan error, 2)
		addWaiter(e.t, e.srv, started, ended)
		v := e.visit("2025-06-18", "{}", nil)
		answers := make(chan string, 10)
		post := func(v *legacySession, body string, headers map[string]string) {
			got := v.do("POST", body, headers)
			answers <- fmt.Sprintln(got.status, got.header["Retry-After"], got.body)
		}
		gate, headers := callPost(1, "gate", "{}")
		go post(v, gate, headers)
		go post(v, request(2, "tools/call", `{"name":"gate"}`), v.headers)
		go post(v, request(3, "tools/call", `{"name":"wait"}`), v.headers)
		<-started
		batches := e.visit("2025-03-26", "{}", nil)
		go post(batches, "["+request(4, "tools/call", `{"name":"gate"}`)+`,{"jsonrpc":"2.0","method":"notifications/x"},`+request(5, "tools/call", `{"name":"gate"}`)+"]", batches.headers)
		streams := e.visit("2025-11-25", "{}", nil)
		streamed := streams.open(request(6, "tools/call", `{"name":"steps-and-gate"}`))
		streamed.next() // has only an id
		streamed.next()
		old, f := e.visitSSE()
		old.do("POST", request(7, "tools/call", `{"name":"wait"}`), nil)
		<-started
		go func() {
			_, data := streamed.next()
			answers <- "event " + data + "\n"
			_, data = f.next()
			answers <- "event " + data + "\n"
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		var err error
		if d := took(func() { err = e.h.Shutdown(ctx) }); d != 3*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			e.t.Errorf("Shutdown returns %v after %v", err, d)
		}
		for range 2 {
			if err := <-ended; err != jsonrpc.ErrShutdown {
				e.t.Errorf("a legacy handler was canceled because of %v, want the shutdown", err)
			}
		}
		const e1 = `,"error":{"code":-32603,"message":"the server is shutting down and no longer waits for this request; it may have been executed"}}`
		one := func(id int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d%s`, id, e1) }
		want := []string{
			"503 [] [" + one(4) + "," + one(5) + "]\n", "503 [] " + one(1) + "\n", "503 [] " + one(2) + "\n", "503 [] " + one(3) + "\n",
			"event " + one(6) + "\n", "event " + one(7) + "\n",
		}
		var got []string
		for range want {
			got = append(got, <-answers)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			e.t.Errorf("answers (-want +got):\n%s", diff)
		}
		close(stubborn)
	})
}

// TestIdleSessions shows that an idle session ends, and a session with a stream or with occasional
// requests does not.
func TestIdleSessions(t *testing.T) {
	inBubble(t, false, nil, func(e *endpoint) {
		idle, pinged, listens := e.visit("2025-06-18", "{}", nil), e.visit("2025-06-18", "{}", nil), e.visit("2025-06-18", "{}", nil)
		f := listens.listen("")
		go io.Copy(io.Discard, f.resp.Body)
		for range 3 {
			advance(20 * time.Minute)
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

// TestSessionMemory shows that an idle session takes no more than 4 KiB.
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
	if got := (int64(memory()) - int64(before)) / n; got > 4<<10 && !race.Enabled {
		t.Errorf("a session takes %d bytes", got)
	} else {
		t.Logf("a session takes %d bytes", got)
	}
}

// TestShutdownTooLateHTTP2 shows that a stream that is ended by shutdown gets a last event over
// HTTP/2, where the body ends when its handler returns. The handlers of session requests run on
// other goroutines.
func TestShutdownTooLateHTTP2(t *testing.T) {
	inBubble(t, true, nil, func(e *endpoint) {
		stubborn := make(chan struct{})
		e.addGate(stubborn)
		v := e.visit("2025-06-18", "{}", nil)
		gate, headers := callPost(1, "gate", "{}")
		modern := make(chan string, 1)
		go func() {
			_, data := e.flow(e.start("POST", gate, headers)).next()
			modern <- data
		}()
		legacy := make(chan answer, 1)
		go func() { legacy <- v.post(request(2, "tools/call", `{"name":"gate"}`)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := e.h.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			e.t.Errorf("Shutdown returns %v", err)
		}
		const cut = `"error":{"code":-32603,"message":"the server is shutting down and no longer waits for this request; it may have been executed"}}`
		if got := <-modern; got != `{"jsonrpc":"2.0","id":1,`+cut {
			e.t.Errorf("modern: %s", got)
		}
		// The same as for HTTP/1, but as an event.
		if got := <-legacy; !strings.Contains(got.body, `{"jsonrpc":"2.0","id":2,`+cut) {
			e.t.Errorf("legacy: %d %s", got.status, got.body)
		}
		close(stubborn)
	})
}

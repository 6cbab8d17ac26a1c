package streamable_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/server"
	"mcpwire/streamable"
)

// byHeader sets the remote address of a request from a header.
func byHeader(r *http.Request) netip.Addr {
	addr, _ := netip.ParseAddr(r.Header.Get("Test-Address"))
	return addr
}

func from(headers map[string]string, address string) map[string]string {
	return with(headers, "Test-Address", address)
}

// TestInFlightByCaller shows that a caller that has used its share gets 429, and that others are
// admitted until no slot is free. A request of a legacy session counts as long as it runs, even
// after its client is gone.
func TestInFlightByCaller(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inBubble(t, h2, &streamable.Options{Limits: streamable.Limits{MaxInFlight: 6, MaxInFlightPerCaller: 4}, ClientAddr: byHeader}, func(e *endpoint) {
			started, ended := make(chan struct{}), make(chan error, 8)
			addWaiter(e.t, e.srv, started, ended)
			park := func(address string, n int) *legacySession {
				v := e.visit("2025-06-18", "{}", from(nil, address))
				for id := range n {
					r := newRequest(e.t, e, request(id+1, "tools/call", `{"name":"wait"}`), v.headers)
					go func() {
						<-started
						r.cancel()
					}()
					r.do()
				}
				synctest.Wait()
				return v
			}
			var got []string
			try := func(what, address string) {
				body, headers := callPost(1, "echo", `{"text":"x"}`)
				a := e.do("POST", body, from(headers, address))
				got = append(got, fmt.Sprintln(what, a.status, a.header["Retry-After"]))
			}
			hog := park("192.0.2.1", 4)
			try("hog", "192.0.2.1")
			try("other", "192.0.2.2")
			try("no address", "")
			a := hog.post(request(9, "ping", "{}"))
			got = append(got, fmt.Sprintln("legacy hog", a.status, a.header["Retry-After"]))
			park("192.0.2.3", 2)
			try("all taken", "192.0.2.2")
			if a := hog.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`); a.status != 202 {
				e.t.Errorf("h2 %v: a cancellation: %d %s", h2, a.status, a.body)
			}
			<-ended
			synctest.Wait()
			try("one canceled", "192.0.2.2")
			want := []string{
				"hog 429 [1]\n", "other 200 []\n", "no address 200 []\n", "legacy hog 429 [1]\n", "all taken 503 [1]\n", "one canceled 200 []\n",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				e.t.Errorf("h2 %v (-want +got):\n%s", h2, diff)
			}
		})
	}
}

// TestStreamsAreNotInFlight shows that standing streams do not count as in flight.
func TestStreamsAreNotInFlight(t *testing.T) {
	inBubble(t, false, &streamable.Options{Limits: streamable.Limits{MaxInFlightPerCaller: 1}}, func(e *endpoint) {
		v := e.visit("2025-06-18", "{}", nil)
		v.listen("")
		body, headers := modernPost(1, "subscriptions/listen", `"notifications":{}`)
		for range 3 {
			e.flow(e.start("POST", body, headers)).next()
		}
		if got := v.post(request(1, "ping", "{}")); got.status != 200 {
			e.t.Errorf("beside streams: %d %s", got.status, got.body)
		}
	})
}

// TestLimitsOfServer shows that requests that exceed the server's limits get an HTTP status with
// Retry-After in each revision.
func TestLimitsOfServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refused = `"error":{"code":429,"message":"too many requests: 0.25 a second are allowed, try again in 4000 ms","data":{"limit":"rate","retryAfterMs":4000}}}`
		for _, tt := range []struct{ revision, want string }{
			{"2026-07-28", "429 application/json [4] " + `{"jsonrpc":"2.0","id":2,` + refused},
			{"2025-11-25", "429 application/json [4] " + `{"jsonrpc":"2.0","id":2,` + refused},
			{"2025-06-18", "429 application/json [4] " + `{"jsonrpc":"2.0","id":2,` + refused},
			{"2025-03-26 batch", "200 application/json [] " + `[{"jsonrpc":"2.0","id":2,` + refused + "]"},
		} {
			for _, always := range []bool{false, true} {
				srv := server.MustNew("test", "1", &server.Options{Callers: server.CallerLimits{PerSecond: 0.25, Burst: 1}})
				addTools(t, srv)
				h := streamable.MustHandler(srv, &streamable.Options{StreamAlways: always})
				e := &endpoint{t: t, srv: srv, h: h, url: "http://localhost", client: &http.Client{Transport: direct{h}}}
				revision, batch := strings.CutSuffix(tt.revision, " batch")
				if batch && always {
					continue
				}
				call := func(id int) answer {
					if revision == "2026-07-28" {
						body, headers := callPost(id, "echo", `{"text":"x"}`)
						return e.do("POST", body, headers)
					}
					body := request(id, "tools/call", `{"name":"echo","arguments":{"text":"x"}}`)
					if batch {
						body = "[" + body + "]"
					}
					return e.do("POST", body, nil)
				}
				if revision != "2026-07-28" {
					v := e.visit(revision, "{}", nil)
					plain := call
					call = func(id int) answer {
						e.client.Transport = direct{withHeaders(h, v.headers)}
						return plain(id)
					}
				}
				if got := call(1); got.status != 200 {
					t.Errorf("%s: %d %s", tt.revision, got.status, got.body)
				}
				got := call(2)
				if diff := cmp.Diff(tt.want, fmt.Sprint(got.status, " ", got.header.Get("Content-Type"), " ", got.header["Retry-After"], " ", got.body)); diff != "" {
					t.Errorf("%s, always a stream %v (-want +got):\n%s", tt.revision, always, diff)
				}
				if err := h.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// TestMaxInFlightPerCaller shows that the limit per caller applies even if slots are free.
func TestMaxInFlightPerCaller(t *testing.T) {
	inBubble(t, false, &streamable.Options{Limits: streamable.Limits{MaxInFlightPerCaller: 2}, ClientAddr: byHeader}, func(e *endpoint) {
		goOn := make(chan struct{})
		e.addGate(goOn)
		answers := make(chan int, 4)
		gate, gateHeaders := callPost(1, "gate", "{}")
		for range 2 {
			go func() { answers <- e.do("POST", gate, from(gateHeaders, "2001:db8::1")).status }()
		}
		synctest.Wait()
		var got []int
		// the second is in the network of the first
		for _, address := range []string{"2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"} {
			body, headers := callPost(1, "echo", `{"text":"x"}`)
			got = append(got, e.do("POST", body, from(headers, address)).status)
		}
		if stats := e.h.Stats(); stats.InFlight != 2 || stats.RateLimited != 2 || stats.Overloaded != 0 {
			e.t.Errorf("meanwhile: %+v", stats)
		}
		close(goOn)
		got = append(got, <-answers, <-answers)
		if diff := cmp.Diff([]int{429, 429, 200, 200, 200}, got); diff != "" {
			e.t.Errorf("statuses (-want +got):\n%s", diff)
		}
		synctest.Wait()
		if n := e.h.Stats().InFlight; n != 0 {
			e.t.Errorf("%d requests are in flight at the end", n)
		}
	})
}

// TestUnreadResponses shows that responses that clients do not read are limited, by caller and in
// total.
func TestUnreadResponses(t *testing.T) {
	const dropped = `"error":{"code":-32603,"message":"the response was dropped: the client has too many unread responses; the request was executed"}}`
	for _, kind := range []string{"modern", "legacy"} {
		o := &streamable.Options{Limits: streamable.Limits{MaxUnread: 1280 << 10}, ClientAddr: byHeader}
		inBubble(t, false, o, func(e *endpoint) {
			large := func(_ context.Context, in struct {
				KiB int `json:"kib"`
			}) (string, error) {
				return strings.Repeat("x", in.KiB<<10), nil
			}
			if err := server.AddTool(e.srv, "large", "", large); err != nil {
				e.t.Fatal(err)
			}
			visitors := map[string]*legacySession{}
			visit := func(address string) *legacySession {
				if visitors[address] == nil {
					visitors[address] = e.visit("2025-06-18", "{}", from(nil, address))
				}
				return visitors[address]
			}
			call := func(id, kib int, address string) (body string, headers map[string]string) {
				arguments := fmt.Sprintf(`{"kib":%d}`, kib)
				if kind == "modern" {
					body, headers = callPost(id, "large", arguments)
					return body, from(headers, address)
				}
				return request(id, "tools/call", `{"name":"large","arguments":`+arguments+`}`), visit(address).headers
			}
			unread := func(id, kib int, address string) {
				body, headers := call(id, kib, address)
				var lines []string
				for k, v := range headers {
					lines = append(lines, k+": "+v)
				}
				e.raw(rawPost(body, lines...))
				synctest.Wait()
			}
			var got []string
			try := func(what string, id, kib int, address string) {
				body, headers := call(id, kib, address)
				var a answer
				d := took(func() { a = e.do("POST", body, headers) })
				text := a.body
				if strings.Contains(text, "xxx") {
					text = fmt.Sprint(strings.Count(text, "x")>>10, " KiB")
				}
				got = append(got, fmt.Sprintln(what, a.status, d, text))
			}
			const a, b, c = "192.0.2.1", "192.0.2.2", "192.0.2.3"
			unread(1, 200, a)
			try("small", 2, 1, a)
			try("large", 3, 200, a)
			unread(4, 200, a) // waits
			try("while it waits", 5, 1, a)
			try("other", 6, 200, b)
			advance(2 * time.Second)
			unread(7, 600, b)
			try("little room", 8, 200, c)
			try("no room", 9, 300, c)
			advance(20 * time.Second) // the connections of clients that do not read are closed
			try("afterwards", 10, 200, a)
			want := []string{
				"small 200 0s 1 KiB\n",
				"large 500 3s " + `{"jsonrpc":"2.0","id":3,` + dropped + "\n",
				"while it waits 429 0s " + `{"jsonrpc":"2.0","error":{"code":-32603,"message":"too many: unread responses of one caller"}}` + "\n",
				"other 200 0s 200 KiB\n",
				"little room 200 0s 200 KiB\n",
				"no room 500 0s " + `{"jsonrpc":"2.0","id":9,` + dropped + "\n",
				"afterwards 200 0s 200 KiB\n",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				e.t.Errorf("%s (-want +got):\n%s", kind, diff)
			}
		})
	}
}

// TestSlotsReleased checks that each kind of request releases its slots once, however it ends: all
// counters are zero after it, before and after the shutdown.
func TestSlotsReleased(t *testing.T) {
	const text = "application/x-ndjson"
	echo, echoHeaders := callPost(1, "echo", `{"text":"x"}`)
	wait, waitHeaders := callPost(1, "wait", "{}")
	listen, listenHeaders := modernPost(1, "subscriptions/listen", `"notifications":{}`)
	legacyWait := request(1, "tools/call", `{"name":"wait"}`)
	started, ended := make(chan struct{}), make(chan error)
	// answered sends a request and checks the status of the response.
	answered := func(status int, method, body string, headers map[string]string) func(e *endpoint) {
		return func(e *endpoint) {
			if got := e.do(method, body, headers); got.status != status {
				e.t.Errorf("status %d, want %d: %s", got.status, status, got.body)
			}
		}
	}
	// posted sends a POST in a session.
	posted := func(status int, revision, body string) func(e *endpoint) {
		return func(e *endpoint) {
			if got := e.visit(revision, "{}", nil).post(body); got.status != status {
				e.t.Errorf("status %d, want %d: %s", got.status, status, got.body)
			}
		}
	}
	// abandon sends a request and disconnects when the handler has started.
	abandon := func(e *endpoint, body string, headers map[string]string) {
		r := newRequest(e.t, e, body, headers)
		go func() {
			<-started
			r.cancel()
		}()
		if resp, err := r.do(); err == nil {
			resp.Body.Close()
			e.t.Errorf("status %d", resp.StatusCode)
		}
	}
	// cancel cancels the requests of a client that has disconnected.
	cancel := func(v *legacySession) {
		v.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		<-ended
	}
	kinds := []struct {
		name string
		do   func(e *endpoint)
	}{
		{"modern", answered(200, "POST", echo, echoHeaders)},
		{"modern notification", func(e *endpoint) {
			e.do("POST", strings.Replace(listen, `"id":1,`, "", 1), listenHeaders)
		}},
		{"handler panics", func(e *endpoint) {
			body, headers := callPost(1, "panic", "{}")
			answered(200, "POST", body, headers)(e)
		}},
		{"headers differ", answered(400, "POST", echo, with(echoHeaders, "Mcp-Name", "other"))},
		{"unknown type", answered(415, "POST", echo, with(echoHeaders, "Content-Type", "text/plain"))},
		{"encoded", answered(415, "POST", echo, with(echoHeaders, "Content-Encoding", "gzip"))},
		{"not acceptable", answered(406, "POST", echo, with(echoHeaders, "Accept", "text/html"))},
		{"no JSON", answered(400, "POST", "{", echoHeaders)},
		{"too large", answered(413, "POST", strings.Repeat(" ", 5<<20), echoHeaders)},
		{"other method", answered(405, "PUT", "", nil)},
		{"no session", answered(400, "GET", "", nil)},
		{"unknown session", answered(404, "POST", request(1, "ping", "{}"), map[string]string{"Mcp-Session-Id": "unknown"})},
		{"bad initialize", answered(200, "POST", request(1, "initialize", `{"protocolVersion":7}`), nil)},
		{"modern abandoned", func(e *endpoint) {
			abandon(e, wait, waitHeaders)
			<-ended
		}},
		{"above MaxInFlight", func(e *endpoint) {
			var all sync.WaitGroup
			for id := 1; id <= 3; id++ {
				r := newRequest(e.t, e, strings.Replace(wait, `"id":1`, fmt.Sprint(`"id":`, id), 1), waitHeaders)
				all.Go(func() { r.do() })
				defer r.cancel()
				<-started
			}
			answered(429, "POST", echo, echoHeaders)(e)
			e.client.CloseIdleConnections()
			go func() {
				for range 3 {
					<-ended
				}
			}()
		}},
		{"legacy", posted(200, "2025-06-18", request(1, "ping", "{}"))},
		{"legacy notification", posted(202, "2025-06-18", `{"jsonrpc":"2.0","method":"notifications/x"}`)},
		{"legacy response", posted(400, "2025-06-18", `{"jsonrpc":"2.0","id":7,"result":{}}`)},
		{"legacy abandoned", func(e *endpoint) {
			v := e.visit("2025-06-18", "{}", nil)
			abandon(e, legacyWait, v.headers)
			cancel(v)
		}},
		{"legacy stream abandoned", func(e *endpoint) {
			v := e.visit("2025-11-25", "{}", nil)
			r := newRequest(e.t, e, legacyWait, v.headers)
			go func() {
				<-started
				advance(20 * time.Second) // a keep-alive turns the response into a stream
				r.cancel()
			}()
			if resp, err := r.do(); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			cancel(v)
		}},
		{"batch", posted(200, "2025-03-26", "["+request(1, "ping", "{}")+","+request(2, "ping", "{}")+"]")},
		{"batch of notifications", posted(202, "2025-03-26", `[{"jsonrpc":"2.0","method":"notifications/x"}]`)},
		{"batch above MaxInFlight", posted(429, "2025-03-26", "["+strings.Repeat(request(1, "ping", "{}")+",", 8)+request(9, "ping", "{}")+"]")},
		{"no batches", posted(400, "2025-06-18", "["+request(1, "ping", "{}")+"]")},
		{"batch abandoned", func(e *endpoint) {
			v := e.visit("2025-03-26", "{}", nil)
			abandon(e, "["+legacyWait+","+request(2, "ping", "{}")+"]", v.headers)
			cancel(v)
		}},
		{"session ended during a request", func(e *endpoint) {
			v := e.visit("2025-06-18", "{}", nil)
			r := newRequest(e.t, e, legacyWait, v.headers)
			var all sync.WaitGroup
			all.Go(func() {
				if resp, err := r.do(); err == nil {
					resp.Body.Close()
				}
			})
			<-started
			answered(204, "DELETE", "", v.headers)(e)
			<-ended
			all.Wait()
		}},
		{"GET, abandoned", func(e *endpoint) { e.visit("2025-06-18", "{}", nil).listen("").resp.Body.Close() }},
		{"GET, replaced", func(e *endpoint) {
			v := e.visit("2025-06-18", "{}", nil)
			first, second := v.listen(""), v.listen("")
			io.Copy(io.Discard, first.resp.Body)
			second.resp.Body.Close()
		}},
		{"GET, session ended", func(e *endpoint) {
			v := e.visit("2025-06-18", "{}", nil)
			f := v.listen("")
			answered(204, "DELETE", "", v.headers)(e)
			io.Copy(io.Discard, f.resp.Body)
		}},
		{"GET of an unknown event", func(e *endpoint) {
			answered(400, "GET", "", with(e.visit("2025-06-18", "{}", nil).headers, "Last-Event-ID", "unknown"))(e)
		}},
		{"GET without a stream", func(e *endpoint) {
			answered(406, "GET", "", with(e.visit("2025-06-18", "{}", nil).headers, "Accept", "application/json"))(e)
		}},
		{"streams above MaxPerCaller", func(e *endpoint) {
			v := e.visit("2025-06-18", "{}", nil)
			f := v.listen("")
			var flows []*eventReader
			for range 3 {
				flows = append(flows, e.flow(e.start("POST", listen, listenHeaders)))
			}
			answered(429, "POST", listen, listenHeaders)(e)
			answered(429, "GET", "", v.headers)(e)
			answered(429, "POST", "", with(nil, "Content-Type", text))(e)
			for _, f := range append(flows, f) {
				f.resp.Body.Close()
			}
		}},
		{"subscription, abandoned", func(e *endpoint) {
			f := e.flow(e.start("POST", listen, listenHeaders))
			f.next()
			f.resp.Body.Close()
		}},
		{"subscription, not acceptable", answered(406, "POST", listen, with(listenHeaders, "Accept", "application/json"))},
		{"subscription, rejected", func(e *endpoint) {
			body, headers := modernPost(1, "subscriptions/listen", `"notifications":7`)
			if got := e.do("POST", body, headers); !strings.Contains(got.body, `"error"`) {
				e.t.Error(got.body)
			}
		}},
		{"lines", answered(200, "POST", request(1, "ping", "{}")+"\n", with(nil, "Content-Type", text))},
		{"lines, abandoned", func(e *endpoint) {
			ctx, hangUp := context.WithCancel(e.t.Context())
			defer hangUp()
			body, client := io.Pipe()
			r, err := http.NewRequestWithContext(ctx, "POST", e.url, body)
			if err != nil {
				e.t.Fatal(err)
			}
			r.Header.Set("Content-Type", text)
			resp, err := e.client.Do(r)
			if err != nil {
				e.t.Fatal(err)
			}
			io.WriteString(client, wait+"\n")
			<-started
			hangUp()
			resp.Body.Close()
			client.Close()
			<-ended
		}},
		{"HTTP+SSE", func(e *endpoint) {
			old, f := e.visitSSE()
			old.do("POST", request(1, "ping", "{}"), nil)
			f.next()
			old.do("POST", "{", nil)
			old.do("POST", `{"jsonrpc":"2.0","id":7,"result":{}}`, nil)
			old.do("PUT", "", nil)
			f.resp.Body.Close()
		}},
		{"HTTP+SSE, abandoned", func(e *endpoint) {
			old, f := e.visitSSE()
			old.do("POST", legacyWait, nil)
			<-started
			f.resp.Body.Close()
			<-ended
		}},
	}
	for _, h2 := range []bool{false, true} {
		for _, tt := range kinds {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", tt.name, h2), func(t *testing.T) {
				o := &streamable.Options{Limits: streamable.Limits{MaxInFlight: 8, MaxInFlightPerCaller: 3, MaxPerCaller: 4}, NDJSON: true}
				inBubbleOf(t, h2, nil, withSSE(o), func(e *endpoint) {
					// must belong to the bubble
					started, ended = make(chan struct{}), make(chan error)
					addWaiter(e.t, e.srv, started, ended)
					tt.do(e)
					synctest.Wait()
					e.checkNothingInUse("when it is over")
				})
			})
		}
	}
}

package streamable_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/server"
	"mcpwire/streamable"
)

// byHeader lets a test come from any address.
func byHeader(r *http.Request) netip.Addr {
	addr, _ := netip.ParseAddr(r.Header.Get("Test-Address"))
	return addr
}

func from(headers map[string]string, address string) map[string]string {
	return with(headers, "Test-Address", address)
}

// A caller that has its share in flight gets 429; others still get in, until everything is taken.
// Requests of a legacy session count for as long as they run, also when their client has gone.
func TestInFlightByCaller(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inBubble(t, h2, &streamable.Options{MaxInFlight: 6, MaxInFlightPerCaller: 4, ClientAddr: byHeader}, func(e *endpoint) {
			started, ended := make(chan struct{}), make(chan error, 8)
			addWaiter(e.t, e.srv, started, ended)
			park := func(address string, n int) *visitor {
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

// Standing streams are not in flight.
func TestStreamsAreNotInFlight(t *testing.T) {
	inBubble(t, false, &streamable.Options{MaxInFlightPerCaller: 1}, func(e *endpoint) {
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

// What the limits of the server refuse is a status of HTTP, with Retry-After, in each revision.
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
				srv := server.MustNew("test", "1", &server.Options{RateLimit: server.RateLimit{PerSecond: 0.25, Burst: 1}})
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

// The limit by caller holds however much is free.
func TestMaxInFlightPerCaller(t *testing.T) {
	inBubble(t, false, &streamable.Options{MaxInFlightPerCaller: 2, ClientAddr: byHeader}, func(e *endpoint) {
		goOn := make(chan struct{})
		e.addGate(goOn)
		answers := make(chan int, 4)
		gate, gateHeaders := callPost(1, "gate", "{}")
		for range 2 {
			go func() { answers <- e.do("POST", gate, from(gateHeaders, "2001:db8::1")).status }()
		}
		synctest.Wait()
		var got []int
		for _, address := range []string{"2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"} { // the second is of the same network
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
			e.t.Errorf("%d requests are in flight afterwards", n)
		}
	})
}

// Answers that clients do not read are bounded, by caller and in all.
func TestUnreadAnswers(t *testing.T) {
	const dropped = `"error":{"code":-32603,"message":"the answer was dropped: the client has not read too many others yet; the request was carried out"}}`
	for _, kind := range []string{"modern", "legacy"} {
		o := &streamable.Options{MaxUnread: 1 << 20, ClientAddr: byHeader}
		inBubble(t, false, o, func(e *endpoint) {
			large := func(_ context.Context, in struct {
				KiB int `json:"kib"`
			}) (string, error) {
				return strings.Repeat("x", in.KiB<<10), nil
			}
			if err := server.AddTool(e.srv, "large", "", large); err != nil {
				e.t.Fatal(err)
			}
			visitors := map[string]*visitor{}
			visit := func(address string) *visitor {
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
			pass(2 * time.Second)
			unread(7, 600, b)
			try("little room", 8, 200, c)
			try("no room", 9, 300, c)
			pass(20 * time.Second) // those that do not read are cut
			try("afterwards", 10, 200, a)
			want := []string{
				"small 200 0s 1 KiB\n",
				"large 500 3s " + `{"jsonrpc":"2.0","id":3,` + dropped + "\n",
				"while it waits 429 0s " + `{"jsonrpc":"2.0","error":{"code":-32603,"message":"too many: answers of one caller are not read"}}` + "\n",
				"other 200 0s 200 KiB\n",
				"little room 200 0s 200 KiB\n",
				"no room 500 3s " + `{"jsonrpc":"2.0","id":9,` + dropped + "\n",
				"afterwards 200 0s 200 KiB\n",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				e.t.Errorf("%s (-want +got):\n%s", kind, diff)
			}
		})
	}
}

package streamable_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

func flush(w http.ResponseWriter) { http.NewResponseController(w).Flush() }

// events returns a handler that responds with a stream of the given text, in which $ID is the
// request's id.
func events(text string) http.HandlerFunc {
	return raw(http.StatusOK, "text/event-stream", text)
}

// held returns a handler that responds with the given text and keeps the stream open.
func held(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		events(text)(w, r)
		flush(w)
		<-r.Context().Done()
	}
}

// Spec: C49
func TestClientSessionGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := raw(http.StatusNotFound, jsonType, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
		f := newPiped(t, legacy(map[string]http.HandlerFunc{
			"tools/call": func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Session-Id") == "session-1" {
					gone(w, r)
					return
				}
				reply(oldDone)(w, r)
			},
			"resources/subscribe":   reply(`{}`),
			"resources/unsubscribe": reply(`{}`),
		}))
		c := f.dial(nil, nil)
		defer f.end(c)
		s, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ResourceSubscriptions: []string{"x:1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if text, err := client.CallTool[string](t.Context(), c, "x", nil); text != "done" {
			t.Errorf("CallTool = %q, %v", text, err)
		}
		synctest.Wait()
		inits := f.requests("initialize")
		if len(inits) != 2 || inits[1].Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("initialize: %v", inits)
		}
		if n := len(f.requests("tools/call")); n != 2 {
			t.Errorf("tools/call was sent %d times, want 2", n)
		}
		if n := len(f.requests("resources/subscribe")); n != 2 {
			t.Errorf("resources/subscribe was sent %d times, want 2", n)
		}
		if len(f.requests("server/discover")) != 1 {
			t.Errorf("the server was probed again: %q", f.methods())
		}
	})
}

func TestClientSessionAlwaysGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPiped(t, legacy(map[string]http.HandlerFunc{"tools/call": raw(http.StatusNotFound, "text/plain", "no")}))
		c := f.dial(nil, nil)
		defer f.end(c)
		_, err := c.CallTool(t.Context(), "x", nil)
		if e, ok := errors.AsType[*jsonrpc.CallError](err); !ok || e.Outcome != jsonrpc.OutcomeUnprocessed {
			t.Errorf("CallTool: %v", err)
		}
		if n := len(f.requests("tools/call")); n != 2 {
			t.Errorf("tools/call was sent %d times, want 2", n)
		}
	})
}

// TestClientResume checks the rules of 2025-11-25 for streams that end early.
//
// Spec: C52
func TestClientResume(t *testing.T) {
	const answer = "data: {\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":" + oldDone + "}\n\n"
	for _, test := range []struct {
		name  string
		first string        // body of the response to the POST
		again []string      // bodies of the responses to GETs
		want  string        // Last-Event-ID of the last GET
		wait  time.Duration // in total
	}{
		{"not interrupted", "id: a\nretry: 3000\ndata:\n\n" + answer, nil, "", 0},
		{"after the priming event", "id: a\nretry: 3000\ndata:\n\n", []string{"id: b\n" + answer}, "a", 3 * time.Second},
		{"without retry", "id: a\ndata:\n\n", []string{answer}, "a", time.Second},
		{"within an event", "id: a\nretry: 3000\ndata:\n\nid: b\ndata: {\"jsonrpc\"", []string{answer}, "a", 0},
		{"within an event, then 502", "id: a\nretry: 3000\ndata:\n\nid: b\ndata: {\"jsonrpc\"", []string{"502", "502", answer}, "a", (0 + 3 + 6) * time.Second},
		{"within an event, then 503", "id: a\nretry: 3000\ndata:\n\nid: b\ndata: {\"jsonrpc\"", []string{"503", answer}, "a", 7 * time.Second},
		{"within an event, several times", "id: a\nretry: 3000\ndata:\n\nid: b\ndata: {", []string{"id: b\ndata:\n\nid: c\ndata: {", "id: c\ndata:\n\nid: d\ndata: {", answer}, "c", 200 * time.Millisecond},
		{"several times", "id: a\nretry: 100\n\n", []string{"id: b\ndata:\n\n", "id: c\ndata:\n\n", answer}, "c", 300 * time.Millisecond},
		{"retry of zero", "id: a\nretry: 0\n\n", []string{answer}, "a", 100 * time.Millisecond},
		{"retry of a year", "id: a\nretry: 31536000000\n\n", []string{answer}, "a", time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var id string
				var gets []http.HandlerFunc
				for _, text := range test.again {
					gets = append(gets, func(w http.ResponseWriter, r *http.Request) {
						if status, err := strconv.Atoi(text); err == nil {
							if status == http.StatusServiceUnavailable {
								w.Header().Set("Retry-After", "7")
							}
							w.WriteHeader(status)
							return
						}
						events(strings.ReplaceAll(text, "$ID", id))(w, r)
					})
				}
				next := inTurn(append(gets, raw(500, "", ""))...)
				f := newPiped(t, legacy(map[string]http.HandlerFunc{
					"tools/call": func(w http.ResponseWriter, r *http.Request) {
						id = string(message(r).ID)
						events(test.first)(w, r)
					},
					"GET": func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Last-Event-Id") == "" {
							w.WriteHeader(http.StatusMethodNotAllowed)
							return
						}
						next(w, r)
					},
				}))
				c := f.dial(nil, nil)
				defer f.end(c)
				began := time.Now()
				text, err := client.CallTool[string](t.Context(), c, "x", nil)
				if text != "done" || time.Since(began) != test.wait {
					t.Errorf("CallTool = %q, %v after %v, want success after %v", text, err, time.Since(began), test.wait)
				}
				synctest.Wait()
				// Last-Event-ID of the last GET that resumes; the GET of the standing stream may
				// come at any time
				got := ""
				for _, r := range f.requests("GET") {
					got = cmp.Or(r.Header.Get("Last-Event-Id"), got)
				}
				if got != test.want {
					t.Errorf("Last-Event-ID is %q, want %q", got, test.want)
				}
				if n := len(f.requests("tools/call")); n != 1 {
					t.Errorf("tools/call was sent %d times", n)
				}
			})
		})
	}
}

// TestClientStreamLost checks streams that cannot be resumed, or fail too often.
func TestClientStreamLost(t *testing.T) {
	for _, test := range []struct {
		name    string
		stream  string
		get     http.HandlerFunc
		wantGET int
	}{
		{"without ids", "data:\n\n", nil, 1},
		{"id not allowed in a header", "id: \x01\ndata:\n\n", nil, 1},
		{"GET rejected", "id: a\n\n", raw(405, "", ""), 2},
		{"GET returns no message", "id: a\nretry: 100\n\n", events(": nothing\n\n"), 9},
		{"GET fails", "id: a\nretry: 100\n\n", raw(500, "", ""), 9},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newPiped(t, legacy(map[string]http.HandlerFunc{
					"tools/call": events(test.stream),
					"GET":        inTurn(raw(405, "", ""), test.get),
				}))
				c := f.dial(nil, nil)
				defer f.end(c)
				_, err := c.CallTool(t.Context(), "x", nil)
				if e, ok := errors.AsType[*jsonrpc.CallError](err); !ok || e.Outcome != jsonrpc.OutcomeUnknown {
					t.Errorf("CallTool: %v, want a CallError with outcome lost", err)
				}
				synctest.Wait()
				if n := len(f.requests("GET")); n != test.wantGET {
					t.Errorf("%d GET, want %d", n, test.wantGET)
				}
				if n := len(f.requests("tools/call")); n != 1 {
					t.Errorf("tools/call was sent %d times", n)
				}
			})
		})
	}
}

// TestClientListens checks the standing stream that a client opens at a legacy server.
//
// Spec: C47
func TestClientListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPiped(t, legacy(map[string]http.HandlerFunc{
			"GET": inTurn(
				events("id: 1\nretry: 2000\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"),
				raw(503, "", ""),
				held("id: 2\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"ping\"}\n\n")),
		}))
		var mu sync.Mutex
		var heard []string
		c := f.dial(nil, &client.Options{OnNotification: func(method string, _ json.RawMessage) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, method)
		}})
		defer f.end(c)
		<-time.After(time.Minute)
		synctest.Wait()
		if want := []string{"notifications/tools/list_changed"}; !slices.Equal(heard, want) {
			t.Errorf("heard %q, want %q", heard, want)
		}
		gets := f.requests("GET")
		if len(gets) != 3 || gets[0].Header.Get("Accept") != "text/event-stream" || gets[2].Header.Get("Last-Event-Id") != "1" {
			t.Errorf("GET: %v", gets)
		}
		if answers := f.requests("answer"); len(answers) != 1 || !strings.Contains(answers[0].Body, `"id":"q","result"`) {
			t.Errorf("response to ping: %v", answers)
		}
	})
}

// TestClientListenUnsupported shows that the client stops opening a standing stream that never has
// events.
func TestClientListenUnsupported(t *testing.T) {
	for name, test := range map[string]struct {
		get  http.HandlerFunc
		most int
	}{
		"405":         {raw(405, "", ""), 1},
		"404":         {raw(404, "text/html", "no"), 1},
		"400":         {raw(400, "", ""), 1},
		"200 in JSON": {raw(200, jsonType, "{}"), 1},
		"compressed": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			events("data: {}\n\n")(w, r)
		}, 1},
		"ends at once":  {events(""), 70},
		"502":           {raw(502, "", ""), 70},
		"retry of zero": {events("retry: 0\n\n"), 70},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// A 404 may also mean that the session has ended, so the client checks.
				f := newPiped(t, legacy(map[string]http.HandlerFunc{"GET": test.get, "ping": reply("{}")}))
				c := f.dial(nil, nil)
				defer f.end(c)
				<-time.After(time.Hour)
				if n := len(f.requests("GET")); n > test.most || n == 0 {
					t.Errorf("%d GET in an hour, want at most %d", n, test.most)
				}
				if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestClientOld checks the client side of HTTP+SSE (2024-11-05).
//
// Spec: C42
func TestClientOld(t *testing.T) {
	for _, refusal := range []int{400, 404, 405} {
		t.Run(fmt.Sprint(refusal), func(t *testing.T) {
			stream := make(chan string)
			var f *fakeServer
			answer := func(result string) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/messages" || r.URL.RawQuery != "session=1" {
						w.WriteHeader(refusal)
						return
					}
					w.WriteHeader(http.StatusAccepted)
					stream <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, message(r).ID, result)
				}
			}
			f = newFakeServer(t, map[string]http.HandlerFunc{
				"server/discover": raw(refusal, "text/html", "no"),
				"initialize":      answer(strings.ReplaceAll(initialzd, legacyDate, "2024-11-05")),
				"tools/call":      answer(oldDone),
				"GET": func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, "event: endpoint\ndata: /messages?session=1\n\n")
					for {
						flush(w)
						select {
						case text := <-stream:
							io.WriteString(w, "event: message\ndata: "+text+"\n\n")
						case <-r.Context().Done():
							return
						}
					}
				},
			})
			c := f.dial(nil, nil)
			if text, err := client.CallTool[string](t.Context(), c, "x", nil); text != "done" {
				t.Errorf("CallTool = %q, %v", text, err)
			}
			if got, want := c.Revision(), mcp.Revision20241105; got != want {
				t.Errorf("revision %v, want %v", got, want)
			}
			c.Close()
			if n := len(f.requests("DELETE")); n > 0 {
				t.Errorf("%d DELETE", n)
			}
		})
	}
}

// TestClientNotOld shows that responses to GET that are not HTTP+SSE are ignored, so that the
// response to initialize decides.
func TestClientNotOld(t *testing.T) {
	for name, get := range map[string]http.HandlerFunc{
		"405":                      raw(405, "", ""),
		"another event":            held("data: {}\n\n"),
		"nothing":                  held(""),
		"endpoint on another host": held("event: endpoint\ndata: http://169.254.169.254/x\n\n"),
		"endpoint with a file URL": held("event: endpoint\ndata: file:///etc/passwd\n\n"),
		"endpoint on another port": held("event: endpoint\ndata: //127.0.0.1:2/x\n\n"),
		"no URL":                   held("event: endpoint\ndata: http://[\n\n"),
		"empty stream":             events(""),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newPiped(t, map[string]http.HandlerFunc{
					"server/discover": raw(404, "text/plain", "nobody"),
					"initialize":      raw(404, "text/plain", "nobody"),
					"GET":             get,
				})
				_, err := f.tryDial(nil, nil)
				if s, ok := errors.AsType[*streamable.StatusError](err); !ok || s.StatusCode != 404 || s.Text != "nobody" {
					t.Errorf("Dial: %v", err)
				}
				f.transport.CloseIdleConnections()
				f.Server.Config.Close()
				if n := len(f.requests("initialize")); n != 1 {
					t.Errorf("initialize was sent %d times", n)
				}
			})
		})
	}
}

// TestClientCloses shows that Close returns soon, whatever the server does.
func TestClientCloses(t *testing.T) {
	hang := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	synctest.Test(t, func(t *testing.T) {
		f := newPiped(t, legacy(map[string]http.HandlerFunc{
			"DELETE": hang, "tools/call": hang, "GET": hang, "notifications/cancelled": hang,
		}))
		c := f.dial(nil, nil)
		result := make(chan error)
		go func() {
			_, err := c.CallTool(context.Background(), "x", nil)
			result <- err
		}()
		synctest.Wait()
		began := time.Now()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			f.end(c)
		}()
		if err := <-result; !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("CallTool: %v", err)
		}
		<-closed
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("Close took %v", d)
		}
	})
}

// TestClientForgottenEarly shows that a GET that fails because the server has lost the session does
// not mean that the server has no standing stream.
func TestClientForgottenEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := raw(http.StatusNotFound, "text/plain", "session not found")
		first := true
		f := newPiped(t, legacy(map[string]http.HandlerFunc{
			"GET": func(w http.ResponseWriter, r *http.Request) {
				if first {
					gone(w, r)
					return
				}
				events("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n")(w, r)
			},
			"ping": func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Content-Type"); got != jsonType {
					t.Errorf("the Content-Type of ping is %q", got)
				}
				first = false
				gone(w, r)
			},
		}))
		c := f.dial(nil, nil)
		defer f.end(c)
		<-time.After(time.Minute)
		if n := len(f.requests("initialize")); n != 2 {
			t.Errorf("%d handshakes, want 2: one for each session", n)
		}
	})
}

// TestClientAway shows that calls to an unreachable server fail after UnavailableTimeout, and that
// the client obeys the server's retry delay.
func TestClientAway(t *testing.T) {
	for _, test := range []struct {
		name  string
		first string // body of the response to the POST
		away  time.Duration
		want  time.Duration // in total
	}{
		{"for two seconds", "id: a\ndata:\n\n", 2 * time.Second, time.Second},
		{"for several attempts", "id: a\ndata:\n\n", 4 * time.Second, 3 * time.Second},
		{"with the server's retry delay", "id: a\nretry: 7000\ndata:\n\n", 2 * time.Second, 7 * time.Second},
		{"forever", "id: a\ndata:\n\n", 0, (1 + 2 + 4 + 8 + 16 + 32 + 60 + 60) * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newPiped(t, legacy(map[string]http.HandlerFunc{
					"tools/call": events(test.first),
					"GET": func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Last-Event-Id") == "" {
							w.WriteHeader(http.StatusMethodNotAllowed)
							return
						}
						w.WriteHeader(http.StatusBadGateway)
					},
				}))
				c := f.dial(&streamable.TransportOptions{UnavailableTimeout: test.away}, nil)
				defer f.end(c)
				began := time.Now()
				_, err := c.CallTool(t.Context(), "x", nil)
				if err == nil || time.Since(began) != test.want {
					t.Errorf("CallTool: %v after %v, want an error after %v", err, time.Since(began), test.want)
				}
			})
		})
	}
}

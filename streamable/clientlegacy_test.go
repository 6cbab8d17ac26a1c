package streamable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// TestClientStandingStream shows that calls of a client that handles input requests wait, for a
// limited time, until the standing stream is open. Other requests do not wait.
func TestClientStandingStream(t *testing.T) {
	for _, canAnswer := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newPiped(t, legacy(map[string]http.HandlerFunc{
				"GET":        func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
				"tools/list": reply(`{"tools":[]}`),
			}))
			opts := &client.Options{}
			var want time.Duration
			if canAnswer {
				opts.Input.Roots = func(context.Context) ([]mcp.Root, error) { return nil, nil }
				want = time.Second
			}
			c := f.dial(nil, opts)
			defer f.end(c)
			began := time.Now()
			if _, err := c.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d != 0 {
				t.Errorf("with input handlers %v: ListTools took %v", canAnswer, d)
			}
			for range 2 {
				if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
					t.Fatal(err)
				}
			}
			if d := time.Since(began); d != want {
				t.Errorf("with input handlers %v: two calls took %v, want %v", canAnswer, d, want)
			}
		})
	}
}

// TestClientNotificationStream checks that a server that responds to a notification with an open
// stream does not block later messages.
func TestClientNotificationStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPiped(t, legacy(map[string]http.HandlerFunc{"notifications/initialized": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			flush(w)
			<-r.Context().Done()
		}}))
		c := f.dial(nil, nil)
		defer f.end(c)
		began := time.Now()
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("the call took %v", d)
		}
	})
}

// TestClientMissed shows that subscribers are notified that they may have missed something when the
// stream of notifications breaks and cannot be resumed.
func TestClientMissed(t *testing.T) {
	const initializeMessage = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n"
	for _, test := range []struct {
		name   string
		gets   []http.HandlerFunc
		missed int
	}{
		{"events without ids", []http.HandlerFunc{events(initializeMessage), events(initializeMessage), held(initializeMessage)}, 2},
		{"events with ids", []http.HandlerFunc{events("id: 1\n" + initializeMessage), held(initializeMessage)}, 0},
		{"event ids unknown to the server later", []http.HandlerFunc{events("id: 1\n" + initializeMessage), raw(400, "", ""), held(initializeMessage)}, 1},
		{"event above the limit", []http.HandlerFunc{events("id: 1\n" + initializeMessage), held("id: 2\ndata: " + strings.Repeat("x", 2000) + "\n\n" + initializeMessage)}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newPiped(t, legacy(map[string]http.HandlerFunc{
					"initialize": reply(strings.Replace(initialzd, `"tools":{}`, `"tools":{"listChanged":true}`, 1)),
					"GET":        inTurn(test.gets...),
				}))
				c := f.dial(&streamable.TransportOptions{MaxFrame: 1000}, nil)
				defer f.end(c)
				var missed atomic.Int32
				_, err := c.ListenFunc(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}, func(e client.Event) {
					if e.Kind == client.ToolsListChanged && e.Missed {
						missed.Add(1)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Minute)
				if n := int(missed.Load()); n != test.missed {
					t.Errorf("%d notifications of possible gaps, want %d", n, test.missed)
				}
			})
		})
	}
}

// TestClientNoSuchMethod shows that 404 with a JSON-RPC error is the response to an unknown method
// and does not end the session.
func TestClientNoSuchMethod(t *testing.T) {
	f := newFakeServer(t, legacy(map[string]http.HandlerFunc{
		"tools/call": raw(404, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"no tools here"}}`),
	}))
	c := f.dial(nil, nil)
	_, err := c.CallTool(t.Context(), "x", nil)
	if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != jsonrpc.CodeMethodNotFound {
		t.Errorf("CallTool: %v", err)
	}
	if n := len(f.requests("initialize")); n != 1 {
		t.Errorf("initialize was sent %d times", n)
	}
}

// TestClientAnotherInitialize shows that the next handshake does not use the session of a failed
// one.
func TestClientAnotherInitialize(t *testing.T) {
	f := newFakeServer(t, legacy(map[string]http.HandlerFunc{"initialize": inTurn(
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Mcp-Session-Id", "first")
			raw(200, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32602,"message":"no","data":{"supported":["2025-03-26"],"requested":"2025-11-25"}}}`)(w, r)
		},
		reply(strings.ReplaceAll(initialzd, legacyDate, "2025-03-26")),
	)}))
	c := f.dial(nil, nil)
	if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
		t.Error(err)
	}
	for i, s := range f.requests("initialize") {
		if got := s.Header.Get("Mcp-Session-Id"); got != "" {
			t.Errorf("initialize %d has the session %q", i, got)
		}
	}
	if got := f.requests("tools/call")[0].Header.Get("Mcp-Session-Id"); got != "" {
		t.Errorf("the call has the session %q", got)
	}
}

// TestClientIsPinged checks that a server that sends endless requests and reads no responses has a
// limited cost.
func TestClientIsPinged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := newPiped(t, legacy(map[string]http.HandlerFunc{
			"GET": func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range 3000 {
					fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}\n\n", i)
				}
				flush(w)
				<-r.Context().Done()
			},
			"answer": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		}))
		c := f.dial(&streamable.TransportOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
		defer f.end(c)
		<-time.After(25 * time.Second)
		if n := len(f.requests("answer")); n != 64 {
			t.Errorf("%d responses are in flight, want 64", n)
		}
		if n := strings.Count(log.String(), "dropped"); n != 1 {
			t.Errorf("%d log entries about dropped responses, want 1", n)
		}
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Error(err)
		}
		<-time.After(time.Hour)
		if n := len(f.requests("answer")); n > 1024 {
			t.Errorf("%d responses were sent, want at most 1024", n)
		}
	})
}

// A bodyCounter is a RoundTripper that counts open response bodies.
type bodyCounter struct {
	http.RoundTripper
	open, most atomic.Int32
}

type countedBody struct {
	io.ReadCloser
	once sync.Once
	c    *bodyCounter
}

func (b *countedBody) Close() error {
	b.once.Do(func() { b.c.open.Add(-1) })
	return b.ReadCloser.Close()
}

func (c *bodyCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.most.Store(max(c.most.Load(), c.open.Add(1)))
		resp.Body = &countedBody{ReadCloser: resp.Body, c: c}
	}
	return resp, err
}

// TestClientClosesBodies shows that the client closes every body, and that it closes each body of a
// resumed stream before it opens the next.
func TestClientClosesBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gets atomic.Int32
		f := newPiped(t, legacy(map[string]http.HandlerFunc{
			"tools/call": events("id: 0\nretry: 100\ndata:\n\n"),
			"tools/list": raw(503, "text/plain", "x"),
			"GET": func(w http.ResponseWriter, r *http.Request) {
				switch n := gets.Add(1); {
				case r.Header.Get("Last-Event-Id") == "":
					w.WriteHeader(http.StatusMethodNotAllowed)
				case n < 100:
					events(fmt.Sprintf("id: %d\ndata:\n\n", n))(w, r)
				default:
					w.WriteHeader(http.StatusGone)
				}
			},
		}))
		count := &bodyCounter{RoundTripper: f.transport}
		c := f.dial(&streamable.TransportOptions{HTTPClient: &http.Client{Transport: count}}, nil)
		if _, err := c.CallTool(t.Context(), "x", nil); err == nil {
			t.Error("CallTool succeeded")
		}
		if _, err := c.ListTools(t.Context(), nil); err == nil {
			t.Error("ListTools succeeded")
		}
		f.end(c)
		if n := count.most.Load(); n > 2 {
			t.Errorf("%d responses were open at once", n)
		}
		if n := count.open.Load(); n != 0 {
			t.Errorf("%d responses were left open", n)
		}
	})
}

type key struct{}

// A contextRecorder is a RoundTripper that records the value of a key in each request's context.
type contextRecorder struct {
	http.RoundTripper
	mu   sync.Mutex
	seen map[string]any // by Mcp-Method
}

func (s *contextRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.seen[r.Header.Get("Mcp-Method")] = r.Context().Value(key{})
	s.mu.Unlock()
	return s.RoundTripper.RoundTrip(r)
}

// TestClientContext shows that the RoundTripper gets the values of the caller's context, which one
// that logs in needs.
func TestClientContext(t *testing.T) {
	f := newFakeServer(t, modern(nil))
	s := &contextRecorder{RoundTripper: http.DefaultTransport, seen: make(map[string]any)}
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	c := f.dial(&streamable.TransportOptions{HTTPClient: &http.Client{Transport: s}}, nil)
	ctx := context.WithValue(t.Context(), key{}, "mine")
	if _, err := c.CallTool(ctx, "x", nil); err != nil {
		t.Error(err)
	}
	if err := c.Notify(ctx, "notifications/x", nil); err != nil {
		t.Error(err)
	}
	c.Close()
	for method, want := range map[string]any{"server/discover": nil, "tools/call": "mine", "notifications/x": "mine"} {
		if got := s.seen[method]; got != want {
			t.Errorf("the context of %s has %v, want %v", method, got, want)
		}
	}
}

// TestClientCookies shows that the client sends the cookies of the Jar and keeps those that the
// server sets, also in a redirect.
func TestClientCookies(t *testing.T) {
	f := newFakeServer(t, modern(map[string]http.HandlerFunc{"tools/call": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/other" {
			http.SetCookie(w, &http.Cookie{Name: "from", Value: "mcp", Path: "/"})
			w.Header().Set("Location", "/other")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		reply(done)(w, r)
	}}))
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	c := f.dial(&streamable.TransportOptions{HTTPClient: &http.Client{Transport: own, Jar: jar}}, nil)
	for range 2 {
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Error(err)
		}
	}
	var got []string
	for _, s := range f.requests("tools/call") {
		got = append(got, strings.Join(s.Header["Cookie"], "; "))
	}
	if want := []string{"", "from=mcp", "from=mcp", "from=mcp"}; !slices.Equal(got, want) {
		t.Errorf("the cookies were %q, want %q", got, want)
	}
}

// TestClientOldSessionGone shows that a call uses a new session if an HTTP+SSE server has lost the
// session while its stream is still open.
func TestClientOldSessionGone(t *testing.T) {
	var streams atomic.Int32
	answers := make(chan string, 1)
	f := newFakeServer(t, nil)
	answer := func(result string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !strings.HasPrefix(r.URL.Path, "/session/"):
				w.WriteHeader(http.StatusMethodNotAllowed)
			case r.URL.Path != fmt.Sprintf("/session/%d", streams.Load()):
				raw(404, jsonType, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32600,"message":"no such session"}}`)(w, r)
			default:
				w.WriteHeader(http.StatusAccepted)
				answers <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, message(r).ID, result)
			}
		}
	}
	f.answers = map[string]http.HandlerFunc{
		"server/discover": raw(405, "", ""),
		"initialize":      answer(strings.ReplaceAll(initialzd, legacyDate, "2024-11-05")),
		"tools/call":      answer(oldDone),
		"GET": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: endpoint\ndata: /session/%d\n\n", streams.Add(1))
			for {
				flush(w)
				select {
				case text := <-answers:
					io.WriteString(w, "data: "+text+"\n\n")
				case <-r.Context().Done():
					return
				}
			}
		},
	}
	c := f.dial(nil, nil)
	streams.Add(1) // the server has another session now
	if text, err := client.CallTool[string](t.Context(), c, "x", nil); text != "done" {
		t.Errorf("CallTool = %q, %v", text, err)
	}
	if n := len(f.requests("tools/call")); n != 2 {
		t.Errorf("tools/call was sent %d times, want 2", n)
	}
}

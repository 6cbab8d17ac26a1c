package streamable_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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

// TestClientBadResponses shows that a call with an invalid response fails and is not repeated, and
// that the next call succeeds.
func TestClientBadResponses(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":$ID,"result":` + done + `}`
	zip := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		io.WriteString(w, text)
		w.Close()
		return b.String()
	}
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   string // text of the error; empty if the call succeeds
		// whether the error is a CallError with outcome lost, else it is a ProtocolError
		lost bool
	}{
		{"no content type", raw(200, "", answer), "content type", false},
		{"HTML", raw(200, "text/html", answer), "content type", false},
		{"JSON with a parameter", raw(200, `Application/JSON; charset="utf-8"`, answer), "", false},
		{"byte order mark", raw(200, jsonType, "\xef\xbb\xbf"+answer), "", false},
		{"nothing", raw(200, jsonType, ""), "", false},
		{"no JSON", raw(200, jsonType, "{"), "parse", false},
		{"two responses", raw(200, jsonType, answer+answer), "parse", false},
		{"an array", raw(200, jsonType, "["+answer+"]"), "object", false},
		{"null", raw(200, jsonType, "null"), "object", false},
		{"no jsonrpc member", raw(200, jsonType, `{"result":{}}`), "jsonrpc", false},
		{"another id", raw(200, jsonType, `{"jsonrpc":"2.0","id":777,"result":{}}`), "another request", false},
		{"the id as a string", raw(200, jsonType, `{"jsonrpc":"2.0","id":"$ID","result":{}}`), "another request", false},
		{"a request", raw(200, jsonType, `{"jsonrpc":"2.0","id":$ID,"method":"x"}`), "another request", false},
		{"a notification", raw(200, jsonType, `{"jsonrpc":"2.0","method":"x"}`), "another request", false},
		{"too large", raw(200, jsonType, answer+strings.Repeat(" ", 1<<20)), "larger", true},
		{"too large, in chunks", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			for range 1 << 8 {
				io.WriteString(w, strings.Repeat(" ", 1<<14))
			}
		}, "larger", true},
		{"compressed without Accept-Encoding", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			raw(200, jsonType, zip(answer))(w, r)
		}, "coding", false},
		{"202", raw(202, "", ""), "notification", false},
		{"204", raw(204, "", ""), "notification", false},
		{"an empty stream", events(""), "ended before", true},
		{"a stream without a response", events("data: {}\n\nevent: x\ndata: " + answer + "\n\n: " + answer + "\n\n"), "ended before", true},
		{"a stream that ends within an event", events("data: " + answer + "\n"), "ended before", true},
		{"a stream with a response above the limit", events("data: " + strings.Repeat(" ", 1<<20) + answer + "\n\n"), "larger", true},
		{"a stream with an event above the limit before the response", events("data: " + strings.Repeat(" ", 1<<20) + "\n\ndata: " + answer + "\n\n"), "", false},
		{"a stream with other messages before the response", events("data: {}\n\ndata:x\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":777,\"result\":{}}\n\n" +
			"data: {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"sampling/createMessage\"}\n\ndata: " + answer + "\n\n"), "", false},
		{"a stream with an event id, which modern streams cannot use", events("id: 1\nretry: 1\n\n"), "ended before", true},
		{"truncated body", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			raw(200, jsonType, answer)(w, r)
		}, "EOF", true},
		{"connection closed", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, "EOF", true},
		{"endless informational responses", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<10))
			for range 1000 {
				w.WriteHeader(http.StatusEarlyHints)
			}
			raw(200, jsonType, answer)(w, r)
		}, "headers exceeded", true},
		{"header above the limit", func(w http.ResponseWriter, r *http.Request) {
			for i := range 10 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1<<17))
			}
			raw(200, jsonType, answer)(w, r)
		}, "header", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			f := newFakeServer(t, modern(map[string]http.HandlerFunc{"tools/call": inTurn(test.answer, reply(done))}))
			f.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(&log, nil), slog.LevelInfo)
			c := f.dial(&streamable.TransportOptions{MaxFrame: 1 << 19}, nil)
			_, err := c.CallTool(t.Context(), "x", nil)
			protocol, odd := errors.AsType[*client.ProtocolError](err)
			lost, ok := errors.AsType[*jsonrpc.CallError](err)
			if large, ok := errors.AsType[*jsonrpc.TooLargeError](err); ok != (test.want == "larger") || ok && (large.Limit != 1<<19 || !large.ID.Equal(lost.ID)) {
				t.Errorf("CallTool: %#v of %v", large, err)
			}
			switch {
			case test.name == "nothing":
				if err == nil {
					t.Error("CallTool succeeded")
				}
			case test.want == "":
				if err != nil {
					t.Error(err)
				}
			case err == nil || !strings.Contains(err.Error(), test.want):
				t.Errorf("CallTool: %v, want an error with %q", err, test.want)
			case test.lost && (!ok || odd || lost.Outcome != jsonrpc.OutcomeUnknown):
				t.Errorf("CallTool: %v, want a CallError", err)
			case !test.lost && !odd:
				t.Errorf("CallTool: %v, want a ProtocolError: %v", err, protocol)
			}
			if n := len(f.requests("tools/call")); n != 1 {
				t.Errorf("tools/call was sent %d times", n)
			}
			if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
				t.Errorf("the call after it: %v", err)
			}
		})
	}
}

// TestClientBadSession shows that a session id that is not allowed in a header is an error.
//
// Spec: C50
func TestClientBadSession(t *testing.T) {
	for _, id := range []string{"a b", "caf\xe9", "a\tb", strings.Repeat("x", 5000)} {
		f := newFakeServer(t, legacy(map[string]http.HandlerFunc{"initialize": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Mcp-Session-Id", id)
			reply(initialzd)(w, r)
		}}))
		if c, err := f.tryDial(nil, nil); err == nil || !strings.Contains(err.Error(), "session") {
			t.Errorf("Dial: %v, %v", c, err)
		}
	}
}

// TestClientRedirects shows that the client follows only redirects that repeat the request at the
// same server.
func TestClientRedirects(t *testing.T) {
	var stolen atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { stolen.Add(1) }))
	defer other.Close()
	for _, test := range []struct {
		status int
		to     string
		ok     bool
	}{
		{307, "/other", true}, {308, "/other", true},
		{301, "/other", false}, {302, "/other", false}, {303, "/other", false},
		{307, other.URL, false}, {308, other.URL, false}, {302, other.URL, false},
		{307, "file:///etc/passwd", false}, {307, "http://169.254.169.254/", false}, {307, "", false},
		{307, "/mcp", false}, // endless
		{307, "//user:password@HOST/other", false},
	} {
		t.Run(fmt.Sprint(test.status, test.to), func(t *testing.T) {
			call := func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/other" {
					reply(done)(w, r)
					return
				}
				if test.to != "" {
					w.Header().Set("Location", strings.ReplaceAll(test.to, "HOST", r.Host))
				}
				w.WriteHeader(test.status)
			}
			f := newFakeServer(t, modern(map[string]http.HandlerFunc{"tools/call": call}))
			c := f.dial(&streamable.TransportOptions{Header: http.Header{"Authorization": {"Bearer secret"}}}, nil)
			_, err := c.CallTool(t.Context(), "x", nil)
			if (err == nil) != test.ok {
				t.Errorf("CallTool: %v", err)
			}
			if s, ok := errors.AsType[*streamable.StatusError](err); !test.ok && (!ok || s.StatusCode != test.status || s.Location == "" || strings.Contains(err.Error(), "secret")) {
				t.Errorf("CallTool: %v", err)
			}
			if e, ok := errors.AsType[*jsonrpc.CallError](err); !test.ok && (!ok || e.Outcome != jsonrpc.OutcomeRejected) {
				t.Errorf("CallTool: %v, want an error", err)
			}
			calls := f.requests("tools/call")
			if last := calls[len(calls)-1]; test.ok && (last.Header.Get("Authorization") == "" || last.Header.Get("Mcp-Name") != "x") {
				t.Errorf("the redirected request has the header %v", last.Header)
			}
			if n := stolen.Load(); n > 0 {
				t.Errorf("the other server got %d requests", n)
			}
		})
	}
}

func TestClientTLS(t *testing.T) {
	for _, two := range []bool{false, true} {
		f := &fakeServer{t: t, answers: modern(nil)}
		var proto atomic.Value
		f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			proto.Store(r.Proto)
			f.ServeHTTP(w, r)
		}))
		f.Server.EnableHTTP2 = two
		f.Server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		f.Server.StartTLS()
		defer f.Server.Close()
		roots := f.Server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		c := f.dial(&streamable.TransportOptions{TLS: &tls.Config{RootCAs: roots}}, nil)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := proto.Load(); (got == "HTTP/2.0") != two {
			t.Errorf("HTTP/2 %v: spoke %v", two, got)
		}
		c.Close()

		_, err := f.tryDial(nil, nil)
		if e, ok := errors.AsType[*jsonrpc.CallError](err); !ok || e.Outcome != jsonrpc.OutcomeDenied {
			t.Errorf("without the root certificate: %v, want an error", err)
		}
	}
}

// TestClientCancels shows how a call is canceled: the client closes the request to a modern server,
// and sends a notification to a legacy server.
func TestClientCancels(t *testing.T) {
	for _, isModern := range []bool{true, false} {
		for _, streams := range []bool{true, false} {
			t.Run(fmt.Sprint(isModern, streams), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var ended atomic.Bool
					hang := func(w http.ResponseWriter, r *http.Request) {
						if streams {
							events(": x\n\n")(w, r)
							flush(w)
						}
						<-r.Context().Done()
						ended.Store(true)
					}
					more := map[string]http.HandlerFunc{"tools/call": hang}
					answers := legacy(more)
					if isModern {
						answers = modern(more)
					}
					f := newPiped(t, answers)
					c := f.dial(nil, nil)
					defer f.end(c)
					ctx, cancel := context.WithCancel(t.Context())
					go func() {
						synctest.Wait()
						cancel()
					}()
					if _, err := c.CallTool(ctx, "x", nil); !errors.Is(err, context.Canceled) {
						t.Errorf("CallTool: %v", err)
					}
					synctest.Wait()
					if ended.Load() != isModern {
						t.Errorf("the request was closed: %v", ended.Load())
					}
					if n := len(f.requests("notifications/cancelled")); (n == 1) == isModern {
						t.Errorf("%d notifications/cancelled", n)
					}
					<-time.After(time.Minute)
					if !ended.Load() {
						t.Error("the request was not closed within a minute")
					}
				})
			})
		}
	}
}

// TestClientListen shows that the client repeats subscriptions/listen when its stream is lost.
//
// Spec: C34
func TestClientListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ack = `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":$ID},"notifications":{"toolsListChanged":true}}}` + "\n\n"
		const change = `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":$ID}}}` + "\n\n"
		f := newPiped(t, modern(map[string]http.HandlerFunc{"subscriptions/listen": inTurn(events(ack), raw(502, "", ""), held(ack+": alive\n\n"+change))}))
		c := f.dial(nil, nil)
		defer f.end(c)
		s, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true})
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range s.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == client.ToolsListChanged && !e.Missed {
				break
			}
		}
		s.Close()
		ids := map[string]bool{}
		for _, s := range f.requests("subscriptions/listen") {
			ids[string(s.ID)] = true
		}
		if len(ids) != 3 {
			t.Errorf("subscriptions/listen came with the ids %v, want 3", ids)
		}
	})
}

type failingTransport struct{ err error }

func (r failingTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, r.err }

type deniedError struct{}

func (deniedError) Error() string { return "log in first" }
func (deniedError) Denied() bool  { return true }

// TestClientTransportDenies shows that an error of an OAuth client is not evidence of the era, and
// is not retried.
func TestClientTransportDenies(t *testing.T) {
	hc := &http.Client{Transport: failingTransport{deniedError{}}, Timeout: 1}
	_, err := client.Dial(t.Context(), streamable.NewTransport("http://x/", &streamable.TransportOptions{HTTPClient: hc}), nil)
	if e, ok := errors.AsType[*jsonrpc.CallError](err); !ok || e.Outcome != jsonrpc.OutcomeDenied || !errors.As(err, new(deniedError)) {
		t.Errorf("Dial: %v", err)
	}
}

// TestClientManyCalls makes more concurrent calls than the transport's limit, and checks that they
// do not block cancellations and responses.
func TestClientManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var now, most atomic.Int32
		f := newPiped(t, legacy(map[string]http.HandlerFunc{"tools/call": func(w http.ResponseWriter, r *http.Request) {
			most.Store(max(most.Load(), now.Add(1)))
			<-release
			now.Add(-1)
			reply(oldDone)(w, r)
		}}))
		c := f.dial(&streamable.TransportOptions{MaxRequests: 3}, nil)
		defer f.end(c)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if _, err := c.CallTool(ctx, "waits", nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(release)
		wg.Wait()
		if most.Load() != 3 {
			t.Errorf("%d calls at once, want 3", most.Load())
		}
		if calls := f.requests("tools/call"); len(calls) != 10 {
			t.Errorf("%d calls, want 10", len(calls))
		}
		if n := len(f.requests("notifications/cancelled")); n != 0 {
			t.Errorf("%d cancellations of unsent calls", n)
		}
	})
}

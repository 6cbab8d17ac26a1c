package streamable_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// busy returns a handler that responds with a status, Retry-After in seconds, and a body.
func busy(status, after int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if after >= 0 {
			w.Header().Set("Retry-After", strconv.Itoa(after))
		}
		raw(status, jsonType, body)(w, r)
	}
}

// rateLimited is the JSON-RPC error of a server that limits its callers, which may also be the body
// of a 429.
const rateLimited = `{"jsonrpc":"2.0","id":$ID,"error":{"code":429,"message":"too many requests","data":{"limit":"rate","retryAfterMs":2000}}}`

// TestClientObeysRetryAfter shows that a call that was certainly not carried out is repeated when
// the server allows it, within the time limits of the call and a limited number of times.
func TestClientObeysRetryAfter(t *testing.T) {
	deadline := func(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}
	for _, test := range []struct {
		name    string
		answers []http.HandlerFunc // responses before the result
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		opts    []client.CallOption
		sent    int           // number of requests
		wait    time.Duration // minimum; the maximum is a second longer
		status  int           // HTTP status in the error, or zero for success
	}{
		{name: "429", answers: []http.HandlerFunc{busy(429, 2, "")}, sent: 2, wait: 2 * time.Second},
		{name: "429 with a JSON-RPC error", answers: []http.HandlerFunc{busy(429, 2, rateLimited)}, sent: 2, wait: 2 * time.Second},
		{name: "503", answers: []http.HandlerFunc{busy(503, 3, "")}, sent: 2, wait: 3 * time.Second},
		{name: "503 with a JSON-RPC error", answers: []http.HandlerFunc{busy(503, 3, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32603,"message":"overloaded"}}`)}, sent: 2, wait: 3 * time.Second},
		{name: "both", answers: []http.HandlerFunc{busy(503, 3, ""), busy(429, 2, rateLimited)}, sent: 3, wait: 5 * time.Second},
		{name: "three rejections", answers: []http.HandlerFunc{busy(429, 1, ""), busy(429, 1, ""), busy(429, 1, rateLimited)}, sent: 3, wait: 2 * time.Second, status: 429},
		{name: "longer than the maximum", answers: []http.HandlerFunc{busy(429, 31, rateLimited)}, sent: 1, status: 429},
		{name: "longer than the context", answers: []http.HandlerFunc{busy(429, 10, rateLimited)}, ctx: deadline(9 * time.Second), sent: 1, status: 429},
		{name: "longer than WithTotalTimeout", answers: []http.HandlerFunc{busy(503, 10, "")}, opts: []client.CallOption{client.WithTotalTimeout(9 * time.Second)}, sent: 1, status: 503},
		{name: "longer than WithTimeout", answers: []http.HandlerFunc{busy(503, 10, "")}, opts: []client.CallOption{client.WithTimeout(9 * time.Second)}, sent: 1, status: 503},
		{name: "within the context", answers: []http.HandlerFunc{busy(429, 8, rateLimited)}, ctx: deadline(9 * time.Second), sent: 2, wait: 8 * time.Second},
		{name: "WithRetry(false)", answers: []http.HandlerFunc{busy(429, 1, "")}, opts: []client.CallOption{client.WithRetry(false)}, sent: 1, status: 429},
		{name: "503 without Retry-After", answers: []http.HandlerFunc{busy(503, -1, "")}, sent: 1, status: 503},
	} {
		for _, era := range []struct {
			name   string
			server func(map[string]http.HandlerFunc) map[string]http.HandlerFunc
			result string
		}{{"modern", modern, done}, {"legacy", legacy, oldDone}} {
			t.Run(test.name+", "+era.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newPiped(t, era.server(map[string]http.HandlerFunc{
						"tools/call": inTurn(append(append([]http.HandlerFunc(nil), test.answers...), reply(era.result))...),
						"GET":        raw(405, "", ""),
					}))
					c := f.dial(nil, nil)
					defer f.end(c)
					ctx := t.Context()
					if test.ctx != nil {
						var cancel context.CancelFunc
						ctx, cancel = test.ctx(ctx)
						defer cancel()
					}
					began := time.Now()
					_, err := c.CallTool(ctx, "x", nil, test.opts...)
					if d := time.Since(began); d < test.wait || d >= test.wait+time.Second {
						t.Errorf("it took %v, want %v", d, test.wait)
					}
					if n := len(f.requests("tools/call")); n != test.sent {
						t.Errorf("it was sent %d times, want %d", n, test.sent)
					}
					status, ok := errors.AsType[*streamable.StatusError](err)
					if (err != nil) != (test.status > 0) || ok && status.StatusCode != test.status || err != nil && !ok || client.IsServerError(err) {
						t.Errorf("CallTool: %v, want HTTP status %d", err, test.status)
					}
				})
			})
		}
	}
}

// TestClientOpeningObeysRetryAfter shows that the client also obeys Retry-After for the requests
// that open a connection, and for notifications/initialized.
func TestClientOpeningObeysRetryAfter(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers map[string]http.HandlerFunc
	}{
		{"discover", modern(map[string]http.HandlerFunc{"server/discover": inTurn(busy(429, 2, rateLimited), reply(discovered))})},
		{"initialize", legacy(map[string]http.HandlerFunc{"initialize": inTurn(busy(429, 2, rateLimited), reply(initialzd))})},
		{"initialized", legacy(map[string]http.HandlerFunc{"notifications/initialized": inTurn(busy(503, 2, ""), raw(202, "", ""))})},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if test.answers["GET"] == nil {
					test.answers["GET"] = raw(405, "", "")
				}
				f := newPiped(t, test.answers)
				began := time.Now()
				c := f.dial(nil, nil)
				defer f.end(c)
				// waits for notifications/initialized
				if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
					t.Error(err)
				}
				if d := time.Since(began); d < 2*time.Second || d > 4*time.Second {
					t.Errorf("it took %v", d)
				}
			})
		})
	}
}

// TestClientListenObeysRetryAfter shows that a subscription that the server rejects temporarily is
// repeated later.
func TestClientListenObeysRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ack = `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":$ID}}}` + "\n\n"
		listening := func(w http.ResponseWriter, r *http.Request) {
			held(strings.ReplaceAll(ack, "$ID", string(message(r).ID)))(w, r)
		}
		f := newPiped(t, modern(map[string]http.HandlerFunc{"subscriptions/listen": inTurn(busy(429, 5, rateLimited), busy(503, 5, ""), listening)}))
		c := f.dial(nil, nil)
		defer f.end(c)
		began := time.Now()
		s, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if d := time.Since(began); d < 10*time.Second || d > 12*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestClientSessionRejected shows that a call is repeated in a new session if the server rejects
// the old session with 400 instead of 404, as many servers do. Other bad requests are not repeated.
func TestClientSessionRejected(t *testing.T) {
	const noSession = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`
	ping := func(w http.ResponseWriter, r *http.Request) { reply("{}")(w, r) }
	for _, test := range []struct {
		name     string
		first    bool             // whether a call succeeded before
		refusal  http.HandlerFunc // response to calls in the first session
		ping     http.HandlerFunc // response to pings in the first session
		sessions int              // number of sessions at the end
		ok       bool
	}{
		{"TypeScript", true, raw(400, jsonType, noSession), raw(400, jsonType, noSession), 2, true},
		{"Python", true, raw(400, jsonType, strings.Replace(noSession, "null", `"server-error"`, 1)), raw(400, jsonType, strings.Replace(noSession, "null", `"server-error"`, 1)), 2, true},
		{"text", true, raw(400, "text/plain", "no such session"), raw(400, "text/plain", "no such session"), 2, true},
		{"404 for ping", true, raw(400, "text/plain", "what?"), raw(404, "", ""), 2, true},
		{"ping succeeds", true, raw(400, jsonType, noSession), ping, 1, false},
		{"JSON-RPC error with the id of the call", true, raw(400, jsonType, strings.Replace(noSession, "null", "$ID", 1)), raw(400, jsonType, noSession), 1, false},
		{"JSON-RPC error with the id of the ping", true, raw(400, jsonType, noSession), raw(400, jsonType, strings.Replace(noSession, "null", "$ID", 1)), 1, false},
		{"no earlier success", false, raw(400, jsonType, noSession), raw(400, jsonType, noSession), 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Mcp-Session-Id") == "session-1" {
						test.refusal(w, r)
						return
					}
					reply(oldDone)(w, r)
				}
				if test.first {
					answers = inTurn(reply(oldDone), answers)
				}
				f := newPiped(t, legacy(map[string]http.HandlerFunc{"tools/call": answers, "ping": test.ping, "GET": raw(405, "", "")}))
				c := f.dial(nil, nil)
				defer f.end(c)
				if test.first {
					if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
						t.Fatal(err)
					}
				}
				_, err := c.CallTool(t.Context(), "x", nil)
				if (err == nil) != test.ok || err != nil && !test.ok && strings.Contains(err.Error(), "refuses the session") {
					t.Errorf("CallTool: %v", err)
				}
				if n := len(f.requests("initialize")); n != test.sessions {
					t.Errorf("%d sessions, want %d", n, test.sessions)
				}
			})
		})
	}
}

// TestClientIdleSessionRejected shows that an idle client also opens a new session if the server
// rejects its standing stream with 400.
func TestClientIdleSessionRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := raw(400, "text/plain", "no such session")
		listens := inTurn(events("id: a\ndata:\n\n"), refuse, refuse, held(": here\n\n"))
		f := newPiped(t, legacy(map[string]http.HandlerFunc{"GET": listens, "ping": refuse}))
		c := f.dial(nil, nil)
		defer f.end(c)
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		if n := len(f.requests("initialize")); n != 2 {
			t.Errorf("%d sessions, want 2", n)
		}
	})
}

// TestClientOldTooLarge shows that a response above the limit over HTTP+SSE fails the only pending
// call, and that the stream continues.
func TestClientOldTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := make(chan string, 1)
		answer := func(result string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/messages" {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				w.WriteHeader(http.StatusAccepted)
				stream <- `{"result":` + result + `,"jsonrpc":"2.0","id":` + string(message(r).ID) + `}`
			}
		}
		f := newPiped(t, map[string]http.HandlerFunc{
			"server/discover": raw(405, "", ""),
			"initialize":      answer(strings.ReplaceAll(initialzd, legacyDate, "2024-11-05")),
			"tools/call":      inTurn(answer(strings.Replace(oldDone, "done", strings.Repeat("x", 2000), 1)), answer(oldDone)),
			"GET": func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, "event: endpoint\ndata: /messages\n\n")
				for {
					flush(w)
					select {
					case text := <-stream:
						io.WriteString(w, "data: "+text+"\n\n")
					case <-r.Context().Done():
						return
					}
				}
			},
		})
		c := f.dial(&streamable.TransportOptions{MaxFrame: 1000}, nil)
		defer f.end(c)
		began := time.Now()
		_, err := c.CallTool(t.Context(), "x", nil)
		if large, ok := errors.AsType[*jsonrpc.TooLargeError](err); !ok || large.Limit != 1000 {
			t.Errorf("CallTool: %v", err)
		}
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil || time.Since(began) != 0 {
			t.Errorf("the next call: %v, after %v", err, time.Since(began))
		}
	})
}

// A bareHTTP2 is a server that sends HTTP/2 frames that net/http would not send: it responds to the
// first request, and rejects each further one as the test says. Of HPACK it encodes only what the
// response needs.
type bareHTTP2 struct {
	net.Listener
	t      *testing.T
	refuse func(w io.Writer, stream uint32) // nil responds

	mu       sync.Mutex
	requests int // complete requests
}

const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway = 0, 1, 3, 4, 6, 7

	flagEnd, flagEndHeaders, flagAck = 1, 4, 1
)

func writeFrame(w io.Writer, kind, flags byte, stream uint32, payload []byte) {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[5:], stream)
	w.Write(append(head, payload...))
}

func (s *bareHTTP2) serve() {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer c.Close()
			s.serveConn(c)
		})
	}
}

func (s *bareHTTP2) serveConn(c net.Conn) {
	preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	writeFrame(c, frameSettings, 0, 0, nil)
	var body bytes.Buffer
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return
		}
		stream := binary.BigEndian.Uint32(head[5:])
		switch {
		case head[3] == frameSettings && head[4]&flagAck == 0:
			writeFrame(c, frameSettings, flagAck, 0, nil)
		case head[3] == framePing && head[4]&flagAck == 0:
			writeFrame(c, framePing, flagAck, 0, payload)
		case head[3] == frameData:
			body.Write(payload)
			if head[4]&flagEnd != 0 {
				s.request(c, stream, body.String())
				body.Reset()
			}
		}
	}
}

func (s *bareHTTP2) request(w io.Writer, stream uint32, body string) {
	s.mu.Lock()
	s.requests++
	n := s.requests
	s.mu.Unlock()
	if n == 2 && s.refuse != nil {
		s.refuse(w, stream)
		return
	}
	result := done
	if strings.Contains(body, "server/discover") {
		result = discovered
	}
	_, id, _ := strings.Cut(body, `"id":`)
	id, _, _ = strings.Cut(id, ",")
	// :status 200, content-type
	writeFrame(w, frameHeaders, flagEndHeaders, stream, append([]byte{0x88, 0x0f, 0x10, byte(len(jsonType))}, jsonType...))
	writeFrame(w, frameData, flagEnd, stream, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

// TestClientHTTP2Repeats shows which requests are repeated over HTTP/2: a request with a side
// effect is carried out at most once, and a request that the server certainly has not processed is
// sent again.
func TestClientHTTP2Repeats(t *testing.T) {
	reset := func(code uint32) func(io.Writer, uint32) {
		return func(w io.Writer, stream uint32) {
			writeFrame(w, frameReset, 0, stream, binary.BigEndian.AppendUint32(nil, code))
		}
	}
	for _, test := range []struct {
		name   string
		refuse func(io.Writer, uint32)
		calls  int // number of calls that arrive
	}{
		{"nothing", nil, 1},
		{"PROTOCOL_ERROR", reset(1), 1},
		{"INTERNAL_ERROR", reset(2), 1},
		{"CANCEL", reset(8), 1},
		{"REFUSED_STREAM", reset(7), 2},
		{"GOAWAY with a lower stream id", func(w io.Writer, stream uint32) {
			writeFrame(w, frameGoAway, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, stream-2), 0))
		}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			web := httptest.NewTLSServer(nil)
			web.Close()
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates, NextProtos: []string{"h2"}})
			if err != nil {
				t.Fatal(err)
			}
			s := &bareHTTP2{Listener: l, t: t, refuse: test.refuse}
			var wg sync.WaitGroup
			wg.Go(s.serve)
			defer wg.Wait()
			defer l.Close()
			roots := x509.NewCertPool()
			roots.AddCert(web.Certificate())
			transport := streamable.NewTransport("https://"+l.Addr().String(), &streamable.TransportOptions{TLS: &tls.Config{RootCAs: roots}})
			c, err := client.Dial(t.Context(), transport, &client.Options{Retry: client.RetryPolicy{MinBackoff: 1, MaxBackoff: 1}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.CallTool(t.Context(), "x", nil)
			if lost := test.refuse != nil && test.calls == 1; lost {
				if e, ok := errors.AsType[*jsonrpc.CallError](err); !ok || e.Outcome != jsonrpc.OutcomeUnknown {
					t.Errorf("CallTool: %v, want outcome lost", err)
				}
			} else if err != nil {
				t.Errorf("CallTool: %v", err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if n := s.requests - 1; n != test.calls {
				t.Errorf("the server got %d calls, want %d", n, test.calls)
			}
		})
	}
}

// TestClientSessionsRefused checks that a client gives up if the server refuses each session, and
// says with which status.
func TestClientSessionsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPiped(t, legacy(map[string]http.HandlerFunc{"tools/call": raw(404, "text/plain", "unknown session"), "GET": raw(405, "", "")}))
		c := f.dial(nil, &client.Options{Reconnect: client.ReconnectPolicy{MaxFailures: 2}})
		defer f.end(c)
		_, err := c.CallTool(t.Context(), "x", nil)
		status, ok := errors.AsType[*streamable.StatusError](err)
		if !ok || status.StatusCode != http.StatusNotFound || !strings.Contains(err.Error(), "the server refuses the session with HTTP status 404 Not Found") {
			t.Errorf("the call: got %v, want the status", err)
		}
		<-c.Done()
		if !strings.Contains(fmt.Sprint(c.Err()), "refuses the session with HTTP status 404") {
			t.Errorf("the client ended with %v, want the status", c.Err())
		}
	})
}

package streamable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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
	"mcpwire/server"
	"mcpwire/streamable"
)

// onlyResumed calls f for a GET that resumes a stream, and responds with 405 to other requests.
func onlyResumed(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-Id") == "" {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		answer(w, r)
	}
}

// TestClientResumeRejected shows that the error says how the stream ended and why it could not be
// resumed.
func TestClientResumeRejected(t *testing.T) {
	const cut = "id: a\ndata:\n\ndata: {"
	for _, test := range []struct {
		name, stream string
		get          http.HandlerFunc
		status       int    // HTTP status in the error, or zero
		want         string // text of the error
	}{
		{"gone", cut, raw(400, "text/plain", "its events were deleted"), 400, `the stream ended before the response: unexpected EOF; it could not be resumed: refused: HTTP status 400 Bad Request: "its events were deleted"`},
		{"fails without a content type", cut, raw(500, "", "stream is not readable"), 500, `: "stream is not readable"`},
		{"denied", cut, raw(403, "", ""), 403, "403 Forbidden"},
		{"fails", cut, raw(500, "text/plain", "out of order"), 500, "out of order"},
		{"no ids", "data: {", nil, 0, "its events have no ids"},
		{"streams without messages", cut, events(": nothing\n\n"), 0, "ended repeatedly"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newPiped(t, legacy(map[string]http.HandlerFunc{
					"tools/call": events(test.stream),
					"GET":        onlyResumed(test.get),
				}))
				c := f.dial(nil, nil)
				defer f.end(c)
				_, err := c.CallTool(t.Context(), "x", nil)
				if ended := errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF); !ended || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("CallTool: %v, want %q", err, test.want)
				}
				status := fmt.Sprintf("HTTP status %d", test.status)
				if strings.Contains(err.Error(), "HTTP status") != (test.status > 0) || test.status > 0 && !strings.Contains(err.Error(), status) {
					t.Errorf("CallTool: %v, want %q", err, status)
				}
				if e, ok := errors.AsType[*jsonrpc.CallError](err); !ok || e.Outcome != jsonrpc.OutcomeUnknown {
					t.Errorf("CallTool: %v, want a CallError with outcome lost", err)
				}
				if status, ok := errors.AsType[*streamable.StatusError](err); ok {
					t.Errorf("%v counts as the response to the call", status)
				}
			})
		})
	}
}

// TestClientStreamTooLarge shows that the client does not resume a stream after a response above
// the size limit.
func TestClientStreamTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPiped(t, legacy(map[string]http.HandlerFunc{
			"tools/call": events("id: a\ndata:\n\nid: b\ndata: " + strings.Repeat(" ", 2000) + "{}\n\n"),
			"GET":        onlyResumed(events("")),
		}))
		c := f.dial(&streamable.TransportOptions{MaxFrame: 1000}, nil)
		defer f.end(c)
		began := time.Now()
		_, err := c.CallTool(t.Context(), "x", nil)
		if large, ok := errors.AsType[*jsonrpc.TooLargeError](err); !ok || large.Limit != 1000 || time.Since(began) != 0 {
			t.Errorf("CallTool: %v after %v", err, time.Since(began))
		}
	})
}

// A streamCutter is a proxy that cuts streams at random after their first event with an id.
type streamCutter struct {
	to   http.Handler
	cuts atomic.Int32

	mu   sync.Mutex
	rand *rand.Rand
}

func (c *streamCutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	after := c.rand.IntN(1500)
	c.mu.Unlock()
	if r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "" || r.Method == http.MethodDelete {
		after = -1
	}
	c.to.ServeHTTP(&cutStream{ResponseWriter: w, cutter: c, after: after}, r)
}

// A cutStream forwards a limited number of bytes after the first event with an id.
type cutStream struct {
	http.ResponseWriter
	cutter *streamCutter
	after  int // in bytes; -1 means all
	head   []byte
	begun  bool
}

func (s *cutStream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *cutStream) Write(p []byte) (int, error) {
	if s.after < 0 || !strings.HasPrefix(s.Header().Get("Content-Type"), "text/event-stream") {
		return s.ResponseWriter.Write(p)
	}
	if !s.begun {
		s.head = append(s.head, p...)
		at := bytes.Index(s.head, []byte("id: "))
		if s.begun = at >= 0 && bytes.Contains(s.head[at:], []byte("\n\n")); s.begun {
			s.head = nil
		}
		return s.ResponseWriter.Write(p)
	}
	n := min(len(p), s.after)
	s.ResponseWriter.Write(p[:n])
	if s.after -= n; s.after > 0 {
		return len(p), nil
	}
	s.cutter.cuts.Add(1)
	http.NewResponseController(s.ResponseWriter).Flush()
	conn, _, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err == nil {
		conn.Close()
	}
	return 0, io.ErrClosedPipe
}

// TestClientCut makes 500 calls in one session, 16 at a time, through a proxy that cuts streams,
// and shows that no response and no progress is lost.
func TestClientCut(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.Revision20250618, mcp.Revision20251125} {
		t.Run(revision.String(), func(t *testing.T) {
			srv := server.MustNew("cut", "1", nil)
			type args struct {
				N int `json:"n"`
			}
			err := server.AddTool(srv, "steps", "", func(ctx context.Context, in args) (string, error) {
				for i := range 5 {
					server.CallOf(ctx).Progress(float64(i+1), 5, strings.Repeat("x", in.N%200))
				}
				return fmt.Sprint(in.N), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			h := streamable.MustHandler(srv, &streamable.Options{
				Events: streamable.NewMemoryEvents(&streamable.MemoryEventsOptions{MaxSessionEvents: 1 << 20, MaxSessionBytes: 1 << 30, MaxBytes: 1 << 30}),
			})
			proxy := &streamCutter{to: h, rand: rand.New(rand.NewPCG(1, 2))}
			web := httptest.NewServer(proxy)
			defer web.Close()
			c, err := client.Dial(t.Context(), streamable.NewTransport(web.URL, nil), &client.Options{Revisions: []mcp.Revision{revision}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var next atomic.Int64
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for n := int(next.Add(1)); n <= 500; n = int(next.Add(1)) {
						var steps []float64
						text, err := client.CallTool[string](t.Context(), c, "steps", args{n}, client.WithProgress(func(p *mcp.ProgressNotificationParams) { steps = append(steps, p.Progress) }))
						if err != nil || text != fmt.Sprint(n) || !slices.Equal(steps, []float64{1, 2, 3, 4, 5}) {
							t.Errorf("call %d: %q, %v, progress %v", n, text, err, steps)
						}
					}
				})
			}
			wg.Wait()
			if n := proxy.cuts.Load(); n < 200 {
				t.Errorf("only %d streams were cut", n)
			}
		})
	}
}

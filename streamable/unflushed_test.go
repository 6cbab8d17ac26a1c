package streamable_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/test/buffer"
	"mcpwire/server"
	"mcpwire/streamable"
)

// ResponseWriters of middleware, as people write them.
type (
	// statusWriter is the most copied one: it hides all optional methods.
	statusWriter struct {
		http.ResponseWriter
		status int
	}
	unwrappingWriter struct{ statusWriter }
	// flusherWriter has only the oldest optional method.
	flusherWriter struct{ statusWriter }
	// failingFlusher has the method, but what it wraps cannot flush.
	failingFlusher struct{ statusWriter }
	// bufferingWriter sends nothing before the handler has returned.
	bufferingWriter struct {
		http.ResponseWriter
		status int
		body   bytes.Buffer
	}
)

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
func (w *unwrappingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *flusherWriter) Flush()                         { http.NewResponseController(w.ResponseWriter).Flush() }
func (w *failingFlusher) FlushError() error             { return fmt.Errorf("flush: %w", http.ErrNotSupported) }
func (w *bufferingWriter) WriteHeader(status int)       { w.status = status }
func (w *bufferingWriter) Write(p []byte) (int, error)  { return w.body.Write(p) }

// wrappers are middleware by the kind of their ResponseWriter.
var wrappers = []struct {
	name string
	// flushes means that the client gets messages as they are written. known means that the handler
	// can tell before.
	flushes, known bool
	wrap           func(http.Handler) http.Handler
}{
	{"none", true, true, func(h http.Handler) http.Handler { return h }},
	{"status", false, true, wrapWriter(func(w http.ResponseWriter) http.ResponseWriter { return &statusWriter{ResponseWriter: w} })},
	{"two", false, true, wrapWriter(func(w http.ResponseWriter) http.ResponseWriter {
		return &unwrappingWriter{statusWriter{ResponseWriter: &statusWriter{ResponseWriter: w}}}
	})},
	{"unwrap", true, true, wrapWriter(func(w http.ResponseWriter) http.ResponseWriter {
		return &unwrappingWriter{statusWriter{ResponseWriter: w}}
	})},
	{"flusher", true, true, wrapWriter(func(w http.ResponseWriter) http.ResponseWriter {
		return &flusherWriter{statusWriter{ResponseWriter: w}}
	})},
	{"failing flusher", false, false, wrapWriter(func(w http.ResponseWriter) http.ResponseWriter {
		return &failingFlusher{statusWriter{ResponseWriter: w}}
	})},
	{"timeout", false, true, func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Minute, "late") }},
	{"buffer", false, true, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b := &bufferingWriter{ResponseWriter: w, status: http.StatusOK}
			h.ServeHTTP(b, r)
			w.WriteHeader(b.status)
			w.Write(b.body.Bytes())
		})
	}},
}

func wrapWriter(wrap func(http.ResponseWriter) http.ResponseWriter) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrap(w), r) })
	}
}

// TestWrappedWriters shows that the ResponseWriter of a middleware does not end a call, whatever
// methods it has: what cannot be flushed arrives with the result.
func TestWrappedWriters(t *testing.T) {
	for _, tt := range wrappers {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/h2=%v", tt.name, h2), func(t *testing.T) {
				log := new(buffer.Buffer)
				e := newEndpoint(t, nil, &streamable.Options{NDJSON: true, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
				old := e.h.SSE("/messages")
				mux := http.NewServeMux()
				mux.Handle("/", tt.wrap(e.h))
				mux.Handle("/sse", tt.wrap(old))
				e.serveTLS(mux, h2)
				large := strings.Repeat("x", 200<<10)
				err := server.AddTool(e.srv, "large", "", func(context.Context, struct{}) (string, error) { return large, nil })
				if err != nil {
					t.Fatal(err)
				}

				steps, headers := callPost(1, "steps", "{}")
				steps = strings.Replace(steps, `"_meta":{`, `"_meta":{"progressToken":1,`, 1)
				wantSteps := func(era string, got answer) {
					t.Helper()
					if got.status != 200 || strings.Count(got.body, "notifications/progress") != 3 || !strings.Contains(got.body, "done") {
						t.Errorf("%s call with progress: %d %s", era, got.status, got.body)
					}
				}
				wantSteps("modern", e.do("POST", steps, headers))
				v := e.visit("2025-11-25", `{"roots":{}}`, nil)
				wantSteps("legacy", v.post(request(1, "tools/call", `{"name":"steps","_meta":{"progressToken":1}}`)))
				for _, accept := range []string{"application/json", "text/event-stream"} {
					body, headers := callPost(1, "large", "{}")
					if got := e.do("POST", body, with(headers, "Accept", accept)); got.status != 200 || !strings.Contains(got.body, large) {
						t.Errorf("modern %s: status %d, %d bytes", accept, got.status, len(got.body))
					}
					if got := v.do("POST", request(2, "tools/call", `{"name":"large"}`), with(v.headers, "Accept", accept)); got.status != 200 || !strings.Contains(got.body, large) {
						t.Errorf("legacy %s: status %d, %d bytes", accept, got.status, len(got.body))
					}
				}
				lines := e.do("POST", initialize("2025-06-18", "{}")+"\n"+request(1, "ping", "{}")+"\n", map[string]string{"Content-Type": "application/x-ndjson"})
				// Over HTTP/1, net/http reads nothing more after a flush unless it is told to go on.
				if (h2 || tt.name != "flusher") && (lines.status != 200 || strings.Count(lines.body, `"result"`) != 2) {
					t.Errorf("lines: %d %s", lines.status, lines.body)
				}
				warned := strings.Count(log.String(), "Unwrap()")
				if want := map[bool]int{false: 1}[tt.flushes]; warned != want {
					t.Errorf("%d warnings, want %d: %s", warned, want, log.String())
				}
			})
		}
	}
}

// TestUnflushedStreams shows that a handler which knows that it cannot flush refuses what would hang:
// standing streams, and requests to a legacy client.
func TestUnflushedStreams(t *testing.T) {
	for _, tt := range wrappers {
		if tt.flushes || !tt.known {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			e := newEndpoint(t, nil, nil)
			mux := http.NewServeMux()
			mux.Handle("/", tt.wrap(e.h))
			mux.Handle("/sse", tt.wrap(e.h.SSE("/messages")))
			e.serve(mux)
			err := server.AddTool(e.srv, "ask", "", func(ctx context.Context, _ struct{}) (string, error) {
				_, err := server.CallOf(ctx).Roots(ctx, "roots")
				return "", err
			})
			if err != nil {
				t.Fatal(err)
			}
			v := e.visit("2025-11-25", `{"roots":{}}`, nil)
			if got := v.post(request(1, "tools/call", `{"name":"ask"}`)); got.status != 200 || !strings.Contains(got.body, `"isError":true`) || !strings.Contains(got.body, "Unwrap") {
				t.Errorf("a handler that asks: %d %s", got.status, got.body)
			}
			if got := v.do("GET", "", v.headers); got.status != 405 {
				t.Errorf("GET: %d %s", got.status, got.body)
			}
			body, headers := modernPost(1, "subscriptions/listen", `"notifications":{}`)
			if got := e.do("POST", body, headers); got.status != 501 || !strings.Contains(got.body, "Unwrap") || !strings.Contains(got.body, `"id":1`) {
				t.Errorf("subscriptions/listen: %d %s", got.status, got.body)
			}
			e.url += "/sse"
			if got := e.do("GET", "", nil); got.status != 501 || !strings.Contains(got.body, "Unwrap") {
				t.Errorf("SSE: %d %s", got.status, got.body)
			}
		})
	}
}

// TestCanFlush shows that the optional methods of wrapped ResponseWriters are found.
func TestCanFlush(t *testing.T) {
	for _, tt := range wrappers {
		var can bool
		tt.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { can = httpserve.CanFlush(w) })).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
		if want := tt.flushes || !tt.known; can != want {
			t.Errorf("%s: %v, want %v", tt.name, can, want)
		}
	}
}

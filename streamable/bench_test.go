package streamable_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"mcpwire/server"
	"mcpwire/streamable"
)

// A sink is a ResponseWriter without a connection.
type sink struct {
	header http.Header
	status int
	n      int
}

func (s *sink) Header() http.Header               { return s.header }
func (s *sink) WriteHeader(status int)            { s.status = status }
func (s *sink) Write(p []byte) (int, error)       { s.n += len(p); return len(p), nil }
func (s *sink) Flush()                            {}
func (s *sink) SetReadDeadline(t time.Time) error { return nil }

// BenchmarkPost is what this package adds to net/http, for an echo of 64 bytes.
func BenchmarkPost(b *testing.B) {
	srv := server.New("bench", "1", nil)
	if err := server.AddTool(srv, "echo", "", func(_ context.Context, in echoIn) (string, error) { return in.Text, nil }); err != nil {
		b.Fatal(err)
	}
	h := streamable.NewHandler(srv, nil)
	defer h.Shutdown(context.Background())
	const text = `{"text":"0123456789012345678901234567890123456789012345678901234567890123"}`
	modern, modernHeaders := callPost(1, "echo", text)
	w := &sink{header: make(http.Header)}
	r, _ := http.NewRequest("POST", "http://127.0.0.1:1", bytes.NewReader([]byte(initialize("2025-06-18", "{}"))))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "127.0.0.1:2"
	h.ServeHTTP(w, r)
	session := w.header.Get("Mcp-Session-Id")
	legacyHeaders := map[string]string{"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-06-18"}
	do := func(b *testing.B, body string, headers map[string]string) {
		r, _ := http.NewRequestWithContext(b.Context(), "POST", "http://127.0.0.1:1", nil)
		r.RemoteAddr = "127.0.0.1:2"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for k, v := range headers {
			r.Header.Set(k, v)
		}
		r.ContentLength = int64(len(body))
		text := bytes.NewReader([]byte(body))
		r.Body = io.NopCloser(text)
		b.ReportAllocs()
		for b.Loop() {
			text.Seek(0, io.SeekStart)
			clear(w.header)
			w.status = 0
			h.ServeHTTP(w, r)
		}
		if w.status > 202 {
			b.Fatalf("status %d", w.status)
		}
	}
	do2 := func() {
		r, _ := http.NewRequest("POST", "http://127.0.0.1:1", bytes.NewReader([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)))
		r.Header.Set("Content-Type", "application/json")
		for k, v := range legacyHeaders {
			r.Header.Set(k, v)
		}
		h.ServeHTTP(w, r)
	}
	do2()
	b.Run("modern", func(b *testing.B) { do(b, modern, modernHeaders) })
	b.Run("legacy", func(b *testing.B) {
		do(b, request(1, "tools/call", `{"name":"echo","arguments":`+text+`}`), legacyHeaders)
	})
}

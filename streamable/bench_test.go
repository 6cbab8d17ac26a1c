package streamable_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A discardWriter is a ResponseWriter that discards the body.
type discardWriter struct {
	header http.Header
	status int
	n      int
}

func (s *discardWriter) Header() http.Header               { return s.header }
func (s *discardWriter) WriteHeader(status int)            { s.status = status }
func (s *discardWriter) Write(p []byte) (int, error)       { s.n += len(p); return len(p), nil }
func (s *discardWriter) Flush()                            {}
func (s *discardWriter) SetReadDeadline(t time.Time) error { return nil }

// BenchmarkPost measures what this package adds to net/http, for an echo of 64 bytes.
func BenchmarkPost(b *testing.B) {
	srv := server.MustNew("bench", "1", nil)
	if err := server.AddTool(srv, "echo", "", func(_ context.Context, in echoIn) (string, error) { return in.Text, nil }); err != nil {
		b.Fatal(err)
	}
	h := streamable.MustHandler(srv, nil)
	defer h.Shutdown(context.Background())
	const text = `{"text":"0123456789012345678901234567890123456789012345678901234567890123"}`
	modern, modernHeaders := callPost(1, "echo", text)
	w := &discardWriter{header: make(http.Header)}
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

// benchURL starts the server process of TestMain and returns its URL.
func benchURL(b *testing.B) string {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MCPWIRE_BENCH_SERVER=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return "http://" + strings.TrimSpace(line) + "/mcp"
}

// benchCall returns a function that calls a fast tool.
func benchCall(b *testing.B, url string) func() {
	c, err := client.Dial(b.Context(), streamable.NewTransport(url, nil), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return func() {
		if _, err := client.CallTool[string](context.Background(), c, "x", nil); err != nil {
			b.Error(err)
		}
	}
}

// benchBare returns a function that posts the same bytes with net/http alone.
func benchBare(b *testing.B, url string) func() {
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	hc := &http.Client{Transport: tr}
	b.Cleanup(tr.CloseIdleConnections)
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"mcpwire","version":"0"}},"name":"x","arguments":{}}}`)
	return func() {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Mcp-Method", "tools/call")
		req.Header.Set("Mcp-Name", "x")
		req.Header.Set("Mcp-Protocol-Version", modernDate)
		resp, err := hc.Do(req)
		if err != nil {
			b.Error(err)
			return
		}
		io.ReadAll(resp.Body)
		resp.Body.Close()
	}
}

func BenchmarkClientCall(b *testing.B) {
	call := benchCall(b, benchURL(b))
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}

func BenchmarkBarePost(b *testing.B) {
	call := benchBare(b, benchURL(b))
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}

// BenchmarkClientRatio measures the duration of a call relative to a bare POST, with one and with
// 64 in flight: the median of the ratios of many short alternating rounds, which is meaningful on a
// noisy machine too.
func BenchmarkClientRatio(b *testing.B) {
	for _, test := range []struct {
		name    string
		workers int
	}{{"1", 1}, {"64", 64}} {
		b.Run(test.name, func(b *testing.B) {
			url := benchURL(b)
			call, bare := benchCall(b, url), benchBare(b, url)
			round := func(f func()) time.Duration {
				var wg sync.WaitGroup
				began := time.Now()
				for range test.workers {
					wg.Go(func() {
						for range max(128/test.workers, 8) {
							f()
						}
					})
				}
				wg.Wait()
				return time.Since(began)
			}
			var ratios []float64
			for b.Loop() {
				ratios = append(ratios, float64(round(call))/float64(round(bare)))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "calls/post")
		})
	}
}

package taphttp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/taphttp"
	"mcpwire/internal/test/race"
	"mcpwire/internal/test/wait"
)

// early answers a POST by an event stream before it has read the body.
func early(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).EnableFullDuplex()
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 3 {
		fmt.Fprintf(w, "id: %d\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n", i)
		w.(http.Flusher).Flush()
	}
	io.WriteString(w, "data: "+message+"\n\n")
	w.(http.Flusher).Flush()
	io.Copy(io.Discard, r.Body)
}

// unread answers without ever reading the body.
func unread(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
	w.(http.Flusher).Flush()
	io.WriteString(w, "data: "+message+"\n\n")
}

// TestNothingIsCutOff sends 3,000 responses by event streams (fewer with the race detector), of a
// server that begins to answer before it has read the request, and of one that never reads it. A
// plain httputil.ReverseProxy loses the end of about one in a hundred.
func TestNothingIsCutOff(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		each    int
	}{{"early", early, race.Choose(75, 375)}, {"unread", unread, race.Choose(25, 125)}} {
		t.Run(tt.name, func(t *testing.T) {
			p := tapHandler(t, tt.handler, nil)
			transport := &http.Transport{MaxIdleConnsPerHost: 16}
			defer transport.CloseIdleConnections()
			var cut atomic.Int32
			var wg sync.WaitGroup
			for worker := range 8 {
				wg.Go(func() {
					for i := range tt.each {
						size := 50
						if i%10 == 0 {
							size = 40_000
						}
						inputRequest := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"x":"%s"}}`, worker*tt.each+i, strings.Repeat("x", size))
						resp, err := transport.RoundTrip(must(http.NewRequest("POST", p.url, strings.NewReader(inputRequest))))
						if err != nil {
							t.Error(err)
							cut.Add(1)
							continue
						}
						text, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						if err != nil || !strings.HasSuffix(string(text), "data: "+message+"\n\n") {
							t.Errorf("%q, %v", text, err)
							cut.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if n := cut.Load(); n > 0 {
				t.Errorf("%d of %d were cut off", n, 8*tt.each)
			}
			ends := 0
			for _, e := range p.events() {
				if e.Kind == capture.KindEnd && len(e.Data) == 0 {
					ends++
				}
			}
			if ends != 8*tt.each {
				t.Errorf("%d normal ends in the capture", ends)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestManyStreams opens 200 streams at once, each with distinct events, and checks that nothing
// remains when their clients disconnect.
func TestManyStreams(t *testing.T) {
	const streams = 200
	var open atomic.Int32
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: {\"stream\":%q,\"n\":%d}\n\n", r.URL.Query().Get("n"), i)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}, nil)
	before := runtime.NumGoroutine()
	transport := &http.Transport{}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range streams {
		resp, err := transport.RoundTrip(must(http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s?n=%d", p.url, n), nil)))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			r := bufio.NewReader(resp.Body)
			for i := range 5 {
				line, err := r.ReadString('\n')
				if want := fmt.Sprintf("data: {\"stream\":\"%d\",\"n\":%d}\n", n, i); line != want || err != nil {
					t.Errorf("%q, want %q", line, want)
				}
				r.ReadString('\n')
			}
		})
	}
	wg.Wait()
	cancel()
	transport.CloseIdleConnections()
	wait.Until(t, "connections and goroutines to end", func() bool { return open.Load() == 0 && runtime.NumGoroutine() <= before+10 })
	gone := 0
	for _, e := range p.events() {
		if e.Kind == capture.KindEnd && string(e.Data) == "client closed" {
			gone++
		}
	}
	if gone != streams {
		t.Errorf("%d streams ended because the client closed", gone)
	}
}

// TestSameIDs shows that the capture does not confuse clients that all use the id 1 at once, and
// servers that answer in another order.
func TestSameIDs(t *testing.T) {
	const clients = 20
	var waiting sync.WaitGroup
	waiting.Add(clients)
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
		name := must(io.ReadAll(r.Body))
		waiting.Done()
		waiting.Wait()
		name = name[bytes.Index(name, []byte(`"me":"`))+6:]
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":{"you":%q}}`, name[:bytes.IndexByte(name, '"')])
	}, nil)
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			transport := &http.Transport{DisableKeepAlives: true}
			req := must(http.NewRequest("POST", p.url, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"me":"%d"}}`, n))))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("MCP-Protocol-Version", "2026-07-28")
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
	}
	wg.Wait()
	p.stop()
	seen, sessions := map[string]bool{}, map[uint64]bool{}
	for x, err := range capture.Pairs(capture.NewReader(bytes.NewReader(p.file.Bytes()), nil).Events()) {
		if err != nil || x.Response == nil {
			t.Fatal(x.Call, err)
		}
		_, me, _ := strings.Cut(string(x.Request.Data), `"me":"`)
		_, you, _ := strings.Cut(string(x.Response.Data), `"you":"`)
		if strings.Trim(me, `"}`) != strings.Trim(you, `"}`) {
			t.Errorf("%s was paired with %s", x.Request.Data, x.Response.Data)
		}
		seen[me], sessions[x.Call.Session] = true, true
	}
	if len(seen) != clients || len(sessions) != clients {
		t.Errorf("%d pairs in %d sessions, want %d", len(seen), len(sessions), clients)
	}
}

// certificate writes httptest's certificate and its key to files.
func certificate(t *testing.T, web *httptest.Server) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := web.TLS.Certificates[0]
	return write("cert.pem", "CERTIFICATE", c.Certificate[0]), write("key.pem", "PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(c.PrivateKey)))
}

// TestTLS checks TLS on both sides, with HTTP/2 and without it on either.
func TestTLS(t *testing.T) {
	for _, tt := range []struct {
		clientH2, noH2 bool
		client, server string
	}{{true, false, "HTTP/2.0", "HTTP/2.0"}, {false, false, "HTTP/1.1", "HTTP/2.0"}, {true, true, "HTTP/2.0", "HTTP/1.1"}, {false, true, "HTTP/1.1", "HTTP/1.1"}} {
		t.Run(tt.client+" to "+tt.server, func(t *testing.T) {
			web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Proto", r.Proto)
				w.Header().Set("Trailer", "X-Sum")
				early(w, r)
				w.Header().Set("X-Sum", "7")
			}))
			web.EnableHTTP2 = !tt.noH2
			web.StartTLS()
			defer web.Close()
			roots := x509.NewCertPool()
			roots.AddCert(web.Certificate())
			config := &tls.Config{RootCAs: roots, ServerName: "example.com"}
			cert, key := certificate(t, web)
			p := tap(t, web.URL+"/mcp", &taphttp.Options{TLS: config}, &taphttp.ServeOptions{CertFile: cert, KeyFile: key})
			transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: tt.clientH2}
			defer transport.CloseIdleConnections()
			req := must(http.NewRequest("POST", p.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"a"}`)))
			req.Header.Set("Content-Type", "application/json")
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !strings.HasSuffix(string(text), "data: "+message+"\n\n") {
				t.Errorf("%q, %v", text, err)
			}
			if got := resp.Header.Get("X-Proto"); got != tt.server || resp.Proto != tt.client {
				t.Errorf("%s to %s", resp.Proto, got)
			}
			if got := resp.Trailer.Get("X-Sum"); got != "7" {
				t.Errorf("trailer %q", got)
			}
			lines := p.lines()
			if diff := cmp.Diff([]string{"req POST /mcp", `msg: {"jsonrpc":"2.0","id":1,"method":"a"}`, "res OK"}, lines[:3]); diff != "" || len(lines) != 9 {
				t.Errorf("capture (-want +got):\n%s\n%q", diff, lines)
			}
			for _, e := range p.events() {
				if e.Kind == capture.KindRequest && (e.Request.Proto != tt.client || !slices.ContainsFunc(e.Request.Headers, func(h capture.Header) bool { return strings.EqualFold(h.Name, "content-type") })) {
					t.Errorf("request %+v", e.Request)
				}
			}
		})
	}
}

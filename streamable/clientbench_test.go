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
	"mcpwire/streamable"
)

// benchURL starts the server that TestMain has for benchmarks, and returns its URL.
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

// benchCall returns a function that calls a quick tool.
func benchCall(b *testing.B, url string) func() {
	c, err := client.Dial(b.Context(), streamable.Dial(url, nil), nil)
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

// benchBare returns a function that posts the same bytes by net/http alone.
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

// BenchmarkClientRatio is how many times as long a call takes as a bare POST, with one and with 64 under way: the median of the ratios of many short rounds, in which both take
// turns, so that it means something on a noisy machine.
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

//go:build unix

package policy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkGatewayPolicy measures what a JWT, views, limits, pins and the audit log add to the CPU
// time of a gateway, for a call with 1 KiB of arguments from HTTP to HTTP. Each round makes calls
// directly, through a plain gateway and through one with the policy, in turn. CPU/call is that of
// the plain gateway alone, and ratio is that of the gateways, both as medians of the rounds.
func BenchmarkGatewayPolicy(b *testing.B) {
	idp := newTokenIssuer()
	srv := server.MustNew("up", "1", &server.Options{Revisions: []mcp.Revision{mcp.LatestRevision}})
	b.Cleanup(func() { srv.Close(context.Background()) })
	must(b, server.AddTool(srv, "echo", "", func(_ context.Context, in struct {
		Text string `json:"text"`
	}) (string, error) {
		return in.Text, nil
	}))
	upURL := serveHTTP(b, srv, nil)
	through := func(o gateway.Options, v auth.Verifier) string {
		transport := streamable.NewTransport(upURL, &streamable.TransportOptions{HTTPClient: &http.Client{Transport: ownTransport(b)}})
		o.Upstreams = []gateway.Upstream{{Name: "up", Bridge: bridge.Options{HTTP: true, Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }}}}
		return front(b, &o, v)
	}
	var rules []config.View
	for i := range 20 {
		rules = append(rules, config.View{Match: config.Match{Claims: map[string]config.Texts{"team": {fmt.Sprint("team", i)}}}, Allow: []string{fmt.Sprintf("up%d__*", i), "up__echo*"}, Deny: []string{"*__delete*"}})
	}
	views, err := NewViews(rules, nil)
	must(b, err)
	limits := NewLimits(LimitOptions{Caller: Limit{Rate: 1e6, Concurrent: 100}, Upstreams: map[string]Limit{"up": {Rate: 1e6, Concurrent: 100}}})
	audit, err := OpenAudit(AuditOptions{Path: filepath.Join(b.TempDir(), "audit.jsonl")})
	must(b, err)
	defer audit.Close()
	pins, err := OpenPins(PinOptions{Path: filepath.Join(b.TempDir(), "pins.json"), Mode: func(string) PinMode { return PinHide }})
	must(b, err)
	defer pins.Close()
	plain := through(gateway.Options{}, nil)
	guarded := through(gateway.Options{View: views.Of, Admit: limits.Admit, Audit: audit.Record, Pin: pins.Decide}, idp.Verifier(b, testResource))
	token := idp.Token("alice", testResource, map[string]any{"team": "team19", "groups": []string{"a", "b", "c"}})

	hc := &http.Client{Transport: ownTransport(b)}
	call := func(url, tool string) {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"text":"` + strings.Repeat("x", 1000) +
			`"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(body))
		must(b, err)
		for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool, "Authorization": "Bearer " + token} {
			req.Header.Set(name, value)
		}
		resp, err := hc.Do(req)
		must(b, err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(text), `"content"`) {
			b.Fatalf("got %s, %v", text, err)
		}
	}
	sides := []func(){func() { call(upURL, "echo") }, func() { call(plain, "up__echo") }, func() { call(guarded, "up__echo") }}
	const calls = 100
	var bare, ratios []float64
	for round := 0; b.Loop(); round++ {
		var used [3]float64
		for k := range sides {
			i := (k + round) % len(sides) // rotate the order of the sides
			side := sides[i]
			side() // warm
			start := cpuTime(b)
			for range calls {
				side()
			}
			used[i] = float64(cpuTime(b)-start) / calls
		}
		bare = append(bare, used[1]-used[0])
		ratios = append(ratios, (used[2]-used[0])/(used[1]-used[0]))
	}
	slices.Sort(bare)
	slices.Sort(ratios)
	b.ReportMetric(bare[len(bare)/2]/1e3, "µs-CPU/call")
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(0, "ns/op")
}

package bridge

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	mcpclient "mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// upstreamHTTP returns a connect function to a modern server on HTTP, whose tool "where" wants its argument in a header too.
func upstreamHTTP(t *testing.T) func(context.Context, io.Writer) (jsonrpc.Framer, error) {
	srv := server.New("far", "1", &server.Options{Revisions: EraModern.revisions()})
	def := mcp.Tool{Name: "where", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)}
	err := server.AddToolWith(srv, def, func(_ context.Context, in struct {
		Region string `json:"region"`
	}) (string, error) {
		return in.Region, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := streamable.NewHandler(srv, nil)
	ts := httptest.NewServer(h)
	transport := streamable.Dial(ts.URL, nil)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		h.Shutdown(ctx)
		ts.Close()
	})
	return func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
}

// TestFarHeaders: a server on HTTP gets arguments in headers as it asks for, of clients of either era that have not listed its tools.
func TestFarHeaders(t *testing.T) {
	for _, clientEra := range []Era{EraLegacy, EraModern} {
		t.Run(clientEra.String(), func(t *testing.T) {
			b := newBridge(t, &Options{Connect: upstreamHTTP(t), HTTP: true})
			ours, theirs := net.Pipe()
			go b.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
			c, err := mcpclient.Dial(t.Context(), mcpclient.Over(jsonrpc.NewFramer(ours, nil)), &mcpclient.Options{Revisions: clientEra.revisions()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, region := range []string{"eu", "東京", "", " =?base64?eA==?= "} {
				got, err := mcpclient.CallTool[string](t.Context(), c, "where", map[string]string{"region": region})
				if err != nil || got != region {
					t.Errorf("got %q, %v, want %q", got, err, region)
				}
			}
		})
	}
}

// TestNearHeaders: clients over HTTP have to repeat arguments in headers of tools that they have seen in a list, whatever the server's era.
func TestNearHeaders(t *testing.T) {
	const tools = `{"tools":[{"name":"where","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]`
	for _, serverEra := range []Era{EraLegacy, EraModern} {
		t.Run(serverEra.String(), func(t *testing.T) {
			f := newFarm(t)
			url := served(t, newBridge(t, &Options{Connect: f.connect, ServerEra: serverEra}), nil).URL + "/mcp"
			go func() {
				p := f.next()
				for {
					frame, err := p.f.ReadFrame()
					if err != nil {
						return
					}
					var m jsonrpc.Message
					if jsonrpc.Parse(frame, &m, 0) != nil || m.Kind != jsonrpc.KindRequest {
						continue
					}
					result := `{"content":[],"resultType":"complete"}`
					switch string(m.Method) {
					case mcp.MethodInitialize:
						result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
					case mcp.MethodToolsList:
						result = tools + `,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
					}
					p.send(answering(string(m.ID), result))
				}
			}()
			const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
			call := func(header ...string) int {
				t.Helper()
				body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"where","arguments":{"region":"東京"},` + meta + `}}`
				status, _, answer := post(t, url, body, append([]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "where"}, header...)...)
				if bad := strings.Contains(answer, `"code":-32020`); bad != (status == 400) {
					t.Errorf("status %d: %s", status, answer)
				}
				return status
			}
			if got := call(); got != 200 {
				t.Errorf("before the list: status %d", got)
			}
			list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`
			if status, _, answer := post(t, url, list, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"); status != 200 || !strings.Contains(answer, "where") {
				t.Fatalf("status %d: %s", status, answer)
			}
			for _, tt := range []struct {
				header []string
				want   int
			}{
				{nil, 400},
				{[]string{"Mcp-Param-Region", "=?base64?5p2x5Lqs?="}, 200},
				{[]string{"Mcp-Param-Region", "=?base64?5p2x5Lqs?=", "Mcp-Param-Other", "x"}, 200},
				{[]string{"Mcp-Param-Region", "=?base64?eA==?="}, 400},
				{[]string{"Mcp-Param-Region", "=?base64?not base64?="}, 400},
				{[]string{"Mcp-Param-Region", "eu"}, 400},
			} {
				if got := call(tt.header...); got != tt.want {
					t.Errorf("%q: status %d, want %d", tt.header, got, tt.want)
				}
			}
		})
	}
}

package bridge

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// TestParamHeaders: headers that repeat arguments are held against these once the bridge has seen the tools, whatever the server is.
func TestParamHeaders(t *testing.T) {
	const schema = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`
	for _, far := range []Era{EraLegacy, EraModern} {
		t.Run(far.String(), func(t *testing.T) {
			srv := server.New("far", "1", &server.Options{Revisions: far.revisions()})
			err := srv.AddRawTool(mcp.Tool{Name: "t", InputSchema: json.RawMessage(schema)}, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			b := newBridge(t, &Options{Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) {
				ours, theirs := net.Pipe()
				go srv.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil)) // ends with the bridge's side
				return jsonrpc.NewFramer(ours, nil), nil
			}})
			url := served(t, b, nil).URL + "/mcp"
			ask := func(method, params string, header ...string) (int, string) {
				t.Helper()
				body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params +
					`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
				status, _, text := post(t, url, body, append([]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}, header...)...)
				return status, text
			}
			call := func(header ...string) (int, string) {
				t.Helper()
				return ask("tools/call", `"name":"t","arguments":{"region":"eu"},`, append(header, "Mcp-Name", "t")...)
			}
			if status, text := call("Mcp-Param-Region", "us"); status != http.StatusOK {
				t.Errorf("before the tools are known: %d %s", status, text)
			}
			if status, text := ask("tools/list", ""); status != http.StatusOK || !strings.Contains(text, "x-mcp-header") {
				t.Fatalf("tools/list: %d %s", status, text)
			}
			if status, text := call("Mcp-Param-Region", "eu"); status != http.StatusOK {
				t.Errorf("a header that is right: %d %s", status, text)
			}
			for _, header := range [][]string{{"Mcp-Param-Region", "us"}, {"Mcp-Param-Region", "=?base64?!?="}, {}} {
				if status, text := call(header...); status != http.StatusBadRequest || !strings.Contains(text, `"code":-32020`) {
					t.Errorf("%q: got %d %s, want 400 and -32020", header, status, text)
				}
			}
		})
	}
}

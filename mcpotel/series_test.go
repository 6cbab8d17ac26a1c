package mcpotel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcpotel"
	"mcpwire/middleware"
	"mcpwire/server"
)

// TestClientsMakeUpCodes shows that the codes that a client chooses for its answers to input
// requests are in spans and not in metrics.
func TestClientsMakeUpCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(mcpotel.Options{})
		srv := traced(t, r, func(ctx context.Context) (string, error) {
			server.CallOf(ctx).Roots(ctx, "where")
			return "ok", nil
		})
		codes := []jsonrpc.Code{1, 2, -31999, -32050, jsonrpc.CodeInternalError}
		n := 0
		c, end := dial(t, record(mcpotel.Options{}), srv, &client.Options{
			Revisions: []mcp.Revision{mcp.Revision20250618},
			Input: client.InputOptions{Roots: func(context.Context) ([]mcp.Root, error) {
				n++
				return nil, jsonrpc.Errorf(codes[n-1], "no")
			}},
		})
		for range codes {
			if _, err := c.CallTool(t.Context(), "t", nil); err != nil {
				t.Fatal(err)
			}
		}
		end()
		for _, code := range codes {
			if !slices.ContainsFunc(r.ended(), func(line string) bool {
				return strings.Contains(line, fmt.Sprintf("roots/list: error.type=%d ", code)) && strings.Contains(line, fmt.Sprintf("status_code=%d ", code))
			}) {
				t.Errorf("no span has the code %d: %q", code, r.ended())
			}
		}
		want := []string{
			"1: error.type=-32603 mcp.method.name=roots/list mcp.protocol.version=2025-06-18 rpc.response.status_code=-32603",
			"4: error.type=_OTHER mcp.method.name=roots/list mcp.protocol.version=2025-06-18",
		}
		if diff := gocmp.Diff(want, r.metrics(t)["mcp.client.operation.duration s"]); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}

// TestToolsThatDoNotExist shows that the client's metrics have the names of tools that have
// answered, and none that a model made up.
func TestToolsThatDoNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(mcpotel.Options{})
		c, end := dial(t, r, traced(t, record(mcpotel.Options{}), nothing), &client.Options{Revisions: []mcp.Revision{mcp.Revision20250618}})
		for i := range 3 {
			if _, err := c.CallTool(t.Context(), fmt.Sprint("made up ", i), nil); err == nil {
				t.Error("no error")
			}
			c.GetPrompt(t.Context(), fmt.Sprint("made up ", i), nil)
		}
		c.CallTool(t.Context(), "fail", nil)
		c.GetPrompt(t.Context(), "p", nil)
		end()
		tail := " mcp.protocol.version=2025-06-18"
		want := []string{
			"1: error.type=tool_error gen_ai.operation.name=execute_tool gen_ai.tool.name=fail mcp.method.name=tools/call" + tail,
			"1: gen_ai.prompt.name=p mcp.method.name=prompts/get" + tail,
			"3: error.type=-32602 gen_ai.operation.name=execute_tool mcp.method.name=tools/call" + tail + " rpc.response.status_code=-32602",
			"3: error.type=-32602 mcp.method.name=prompts/get" + tail + " rpc.response.status_code=-32602",
		}
		got := slices.DeleteFunc(r.metrics(t)["mcp.client.operation.duration s"], func(line string) bool {
			return !strings.Contains(line, "tools/call") && !strings.Contains(line, "prompts/get")
		})
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		if !slices.ContainsFunc(r.ended(), func(line string) bool { return strings.Contains(line, "gen_ai.tool.name=made up 0") }) {
			t.Error("the span does not have the name")
		}
	})
}

// TestErrorsOfHandlers shows that an error that is answered with a code is recorded with that code,
// whatever Go error it was, and that one that is not answered has none.
func TestErrorsOfHandlers(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"cancelled elsewhere", fmt.Errorf("backend: %w", context.Canceled), "error.type=-32603 status_code=-32603 ! internal error"},
		{"timed out elsewhere", fmt.Errorf("backend: %w", context.DeadlineExceeded), "error.type=-32603 status_code=-32603 ! request timed out"},
		{"panic", nil, "error.type=panic status_code=-32603 ! the handler panicked"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := record(mcpotel.Options{})
			srv := server.MustNew("test", "1", nil)
			srv.Use(r.Middleware)
			if err := srv.AddRawMethod("com.example/m", func(*server.Call, json.RawMessage) (json.RawMessage, error) {
				if tt.err == nil {
					panic("at the disco")
				}
				return nil, tt.err
			}); err != nil {
				t.Fatal(err)
			}
			c := connect(t.Context(), t, srv, modern)
			if err := c.call("com.example/m", ""); !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}) {
				t.Errorf("%s: got %v", tt.name, err)
			}
			c.close()
			got := ""
			for _, word := range strings.Fields(r.ended()[0]) {
				if strings.HasPrefix(word, "error.type=") || strings.HasPrefix(word, "rpc.response.") {
					got += strings.TrimPrefix(word, "rpc.response.") + " "
				}
			}
			_, status, _ := strings.Cut(r.ended()[0], " ! ")
			if got += "! " + status; got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
			}
		})
	}
}

// TestForwardedNames shows that a proxy's metrics have the names of tools that were answered, on
// both sides, and none that a model made up.
func TestForwardedNames(t *testing.T) {
	r := record(mcpotel.Options{})
	chain := middleware.NewChain(r.Middleware)
	for _, tt := range []struct {
		name string
		err  error
	}{{"t", nil}, {"made up", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown tool"}}, {"t", &jsonrpc.Error{Code: 4711, Message: "made up"}}} {
		m := middleware.Message{Direction: jsonrpc.Incoming, Method: mcp.MethodToolsCall, ID: jsonrpc.IntID(1), Params: []byte(`{"name":"` + tt.name + `"}`)}
		chain.Run(t.Context(), m, func(context.Context, *middleware.Message) (json.RawMessage, error) {
			return json.RawMessage(`{"content":[]}`), tt.err
		})
	}
	want := []string{
		"1: error.type=-32602 gen_ai.operation.name=execute_tool mcp.method.name=tools/call rpc.response.status_code=-32602",
		"1: error.type=_OTHER gen_ai.operation.name=execute_tool gen_ai.tool.name=t mcp.method.name=tools/call",
		"1: gen_ai.operation.name=execute_tool gen_ai.tool.name=t mcp.method.name=tools/call",
	}
	if diff := gocmp.Diff(want, r.metrics(t)["mcp.server.operation.duration s"]); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

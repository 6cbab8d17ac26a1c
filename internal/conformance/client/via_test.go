package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

const viaURL = "http://localhost:1/mcp"

// TestMain makes this program what a client connects through, if its last argument is the address that it would connect to.
func TestMain(m *testing.M) {
	if os.Args[len(os.Args)-1] != viaURL {
		os.Exit(m.Run())
	}
	srv := server.New("via", "1", nil)
	err := srv.AddRawTool(mcp.Tool{Name: "add_numbers", InputSchema: []byte(`{"type":"object"}`)}, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: "8"}}}, nil
	})
	if err == nil {
		err = (&stdio.Config{}).Serve(context.Background(), srv)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// What is before the URL is a command, which the client starts and talks to.
func TestVia(t *testing.T) {
	getenv := func(name string) string {
		return map[string]string{"MCP_CONFORMANCE_SCENARIO": "tools_call"}[name]
	}
	if err := run(t.Context(), []string{os.Args[0], "-test.v", viaURL}, getenv); err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), []string{viaURL}, getenv); err == nil {
		t.Error("where nobody listens, a call succeeds")
	}
}

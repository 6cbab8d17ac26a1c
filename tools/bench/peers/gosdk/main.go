//go:build unix

// Command gosdk is the benchmark's echo server on
// github.com/modelcontextprotocol/go-sdk, which validates by default: on stdio,
// or over HTTP, at /mcp.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpwire/tools/bench/probe"
)

type input struct {
	Text string `json:"text" jsonschema:"the text"`
}

func main() {
	addr := flag.String("http", "", "`ADDRESS` to serve HTTP at")
	stream := flag.Bool("sse", false, "answer with event streams")
	stateless := flag.Bool("stateless", false, "keep no sessions, as the modern era requires")
	flag.Parse()
	server := mcp.NewServer(&mcp.Implementation{Name: "gosdk", Version: "1.0.0"}, nil)
	tool := &mcp.Tool{Name: "echo", Description: "Returns the text it was given."}
	mcp.AddTool(server, tool, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	serve := func(ctx context.Context) error { return server.Run(ctx, &mcp.StdioTransport{}) }
	if *addr != "" {
		h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
			&mcp.StreamableHTTPOptions{JSONResponse: !*stream, Stateless: *stateless})
		serve = func(ctx context.Context) error { return probe.Serve(ctx, *addr, h) }
	}
	if err := probe.Run(serve); err != nil {
		log.Fatal(err)
	}
}

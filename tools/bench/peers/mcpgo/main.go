//go:build unix

// Command mcpgo is the benchmark's echo server on github.com/mark3labs/mcp-go,
// with the validation of arguments turned on, as the other entries have it: on
// stdio, or over HTTP, at /mcp.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcpwire/tools/bench/probe"
)

type input struct {
	Text string `json:"text" jsonschema:"the text"`
}

func main() {
	addr := flag.String("http", "", "`ADDRESS` to serve HTTP at")
	stateless := flag.Bool("stateless", false, "keep no sessions, as the modern era has none")
	flag.Parse()
	srv := server.NewMCPServer("mcpgo", "1.0.0", server.WithInputSchemaValidation())
	tool := mcp.NewTool("echo", mcp.WithDescription("Returns the text it was given."), mcp.WithInputSchema[input]())
	echo := func(_ context.Context, _ mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(in.Text), nil
	}
	srv.AddTool(tool, mcp.NewTypedToolHandler(echo))
	serve := func(context.Context) error { return server.ServeStdio(srv) }
	if *addr != "" {
		h := server.NewStreamableHTTPServer(srv, server.WithStateful(!*stateless))
		serve = func(ctx context.Context) error { return probe.Serve(ctx, *addr, h) }
	}
	if err := probe.Run(serve); err != nil {
		log.Fatal(err)
	}
}

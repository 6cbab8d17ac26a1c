// Command mcpgo is the benchmark's echo server on github.com/mark3labs/mcp-go,
// with the validation of arguments turned on, as the other entries have it.
package main

import (
	"context"
	"log"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

type input struct {
	Text string `json:"text" jsonschema:"the text"`
}

func main() {
	srv := server.NewMCPServer("mcpgo", "1.0.0", server.WithInputSchemaValidation())
	tool := mcp.NewTool("echo", mcp.WithDescription("Returns the text it was given."), mcp.WithInputSchema[input]())
	echo := func(_ context.Context, _ mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(in.Text), nil
	}
	srv.AddTool(tool, mcp.NewTypedToolHandler(echo))
	if err := server.ServeStdio(srv); err != nil {
		log.Fatal(err)
	}
}

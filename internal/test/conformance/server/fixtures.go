package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"mcpwire/internal/wait"
	"mcpwire/mcp"
	"mcpwire/schema/fullschema"
	"mcpwire/server"
)

// newServer returns a server with everything that the suite uses, for the given revisions. Nil
// means all revisions. logger may be nil.
func newServer(logger *slog.Logger, revisions []mcp.Revision) (*server.Server, error) {
	srv := server.MustNew("mcpwire-conformance", "1.0.0", &server.Options{
		Info:         server.Info{Title: "mcpwire conformance server"},
		Revisions:    revisions,
		SchemaEngine: fullschema.Engine,
		Tasks: &server.TaskOptions{
			TTL:          5 * time.Minute,
			PollInterval: 100 * time.Millisecond,
			After:        directTime,
		},
		Logger: logger,
	})
	return srv, errors.Join(
		addContent(srv),
		addSignals(srv),
		addSchemas(srv),
		addElicitTools(srv),
		addInputRequired(srv),
		addChanges(srv),
		addTasks(srv),
		addResources(srv),
		addPrompts(srv),
	)
}

type none = struct{}

// text returns a tool function that always returns s.
func text(s string) func(context.Context, none) (string, error) {
	return func(context.Context, none) (string, error) { return s, nil }
}

// blocks returns a tool function that always returns content.
func blocks(content ...mcp.ContentBlock) func(context.Context, none) ([]mcp.ContentBlock, error) {
	return func(context.Context, none) ([]mcp.ContentBlock, error) { return content, nil }
}

// pause waits for d, or returns the error of ctx when it ends.
func pause(ctx context.Context, d time.Duration) error {
	if !wait.Sleep(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// addRaw registers a tool that is listed with exactly inputSchema and returns its arguments.
func addRaw(srv *server.Server, name, description, inputSchema string) error {
	def := mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(inputSchema)}
	return srv.AddRawTool(def, func(_ *server.Call, args json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: name + " was called with " + string(args)}}}, nil
	})
}

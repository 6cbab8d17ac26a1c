package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"mcpwire/mcp"
	"mcpwire/schema/fullschema"
	"mcpwire/server"
)

// newServer makes the server with all that the suite asks for, in these revisions; nil is all. logger may be nil.
func newServer(logger *slog.Logger, revisions []mcp.Revision) (*server.Server, error) {
	srv := server.MustNew("mcpwire-conformance", "1.0.0", &server.Options{
		Title:        "mcpwire conformance server",
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
		addQuestions(srv),
		addInputRequired(srv),
		addChanges(srv),
		addTasks(srv),
		addResources(srv),
		addPrompts(srv),
	)
}

type none = struct{}

// text makes the function of a tool that always says the same.
func text(s string) func(context.Context, none) (string, error) {
	return func(context.Context, none) (string, error) { return s, nil }
}

// blocks makes the function of a tool that always has the same content.
func blocks(content ...mcp.ContentBlock) func(context.Context, none) ([]mcp.ContentBlock, error) {
	return func(context.Context, none) ([]mcp.ContentBlock, error) { return content, nil }
}

// pause waits, or fails when the call is over.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// addRaw registers a tool with a schema that is to be listed as it stands here, and that says how it was called.
func addRaw(srv *server.Server, name, description, inputSchema string) error {
	def := mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(inputSchema)}
	return srv.AddRawTool(def, func(_ *server.Call, args json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: name + " was called with " + string(args)}}}, nil
	})
}

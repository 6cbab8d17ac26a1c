package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"mcpwire/mcp"
	"mcpwire/server"
)

// addChanges registers tools that change the server's lists while it runs.
func addChanges(srv *server.Server) error {
	var count atomic.Int64 // unique names for concurrent calls
	return errors.Join(
		server.AddTool(srv, "test_trigger_tool_change", "Add a tool and take it out again.", func(context.Context, none) (string, error) {
			name := fmt.Sprintf("transient_%d", count.Add(1))
			if err := server.AddTool(srv, name, "Be there for a moment.", text("You were quick.")); err != nil {
				return "", err
			}
			srv.RemoveTools(name)
			return "The list of tools has changed.", nil
		}),
		server.AddTool(srv, "test_trigger_prompt_change", "Add a prompt and take it out again.", func(context.Context, none) (string, error) {
			name := fmt.Sprintf("transient_%d", count.Add(1))
			err := server.AddPrompt(srv, mcp.Prompt{Name: name, Description: "Be there for a moment."}, func(context.Context, map[string]string) (string, error) {
				return "You were quick.", nil
			})
			if err != nil {
				return "", err
			}
			srv.RemovePrompts(name)
			return "The list of prompts has changed.", nil
		}),
	)
}

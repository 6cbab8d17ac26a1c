package main

import (
	"context"
	"encoding/json"
	"fmt"

	"mcpwire/client"
	"mcpwire/mcp"
)

// tools lists the server's tools.
func tools(ctx context.Context, c *client.Client) ([]mcp.Tool, error) {
	var list []mcp.Tool
	for tool, err := range c.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		list = append(list, tool)
	}
	return list, nil
}

func listTools(ctx context.Context, s *stage) error {
	return s.with(ctx, func(c *client.Client) error {
		_, err := tools(ctx, c)
		return err
	})
}

// callEach lists the tools, then calls the named ones without arguments.
func callEach(names ...string) part {
	return func(ctx context.Context, s *stage) error {
		return s.with(ctx, func(c *client.Client) error {
			if _, err := tools(ctx, c); err != nil {
				return err
			}
			for _, name := range names {
				if err := call(ctx, c, name, struct{}{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// call calls a tool. Only the suite looks at the result.
func call(ctx context.Context, c *client.Client, name string, args any) error {
	if _, err := c.CallTool(ctx, name, args); err != nil {
		return fmt.Errorf("tool %s: %w", name, err)
	}
	return nil
}

func addNumbers(ctx context.Context, s *stage) error {
	return s.with(ctx, func(c *client.Client) error {
		if _, err := tools(ctx, c); err != nil {
			return err
		}
		return call(ctx, c, "add_numbers", map[string]int{"a": 5, "b": 3})
	})
}

// echoSchema sends a tool's input schema back to the server unchanged.
func echoSchema(ctx context.Context, s *stage) error {
	return s.with(ctx, func(c *client.Client) error {
		list, err := tools(ctx, c)
		if err != nil {
			return err
		}
		for _, tool := range list {
			if tool.Name == "json_schema_2020_12_tool" {
				return call(ctx, c, "json_schema_echo", map[string]json.RawMessage{"schema": tool.InputSchema})
			}
		}
		return fmt.Errorf("json_schema_2020_12_tool is not among %d tools", len(list))
	})
}

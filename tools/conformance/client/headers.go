package main

import (
	"context"
	"encoding/json"
	"fmt"

	"mcpwire/client"
)

// useEverything lists all tools, resources and prompts, and calls, reads and gets each of them.
func useEverything(ctx context.Context, s *stage) error {
	return s.with(ctx, func(c *client.Client) error {
		for tool, err := range c.Tools(ctx) {
			if err != nil {
				return err
			}
			if err := call(ctx, c, tool.Name, struct{}{}); err != nil {
				return err
			}
		}
		for resource, err := range c.Resources(ctx) {
			if err != nil {
				return err
			}
			if _, err := c.ReadResource(ctx, resource.URI); err != nil {
				return fmt.Errorf("resource %s: %w", resource.URI, err)
			}
		}
		for prompt, err := range c.Prompts(ctx) {
			if err != nil {
				return err
			}
			if _, err := c.GetPrompt(ctx, prompt.Name, nil); err != nil {
				return fmt.Errorf("prompt %s: %w", prompt.Name, err)
			}
		}
		return nil
	})
}

// callListedTools makes the calls that the scenario's context lists.
func callListedTools(ctx context.Context, s *stage) error {
	var scenario struct {
		ToolCalls []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"toolCalls"`
	}
	if err := s.context(&scenario); err != nil {
		return err
	}
	return s.with(ctx, func(c *client.Client) error {
		if _, err := tools(ctx, c); err != nil {
			return err
		}
		for _, t := range scenario.ToolCalls {
			if err := call(ctx, c, t.Name, t.Arguments); err != nil {
				return err
			}
		}
		return nil
	})
}

// callListed calls all tools that the client has not dropped from the list. The suite judges which
// of them it may call.
func callListed(ctx context.Context, s *stage) error {
	return s.with(ctx, func(c *client.Client) error {
		list, err := tools(ctx, c)
		if err != nil {
			return err
		}
		for _, tool := range list {
			if err := call(ctx, c, tool.Name, map[string]string{"region": "us-west1"}); err != nil {
				return err
			}
		}
		return nil
	})
}

package main

import (
	"context"
	"errors"
	"fmt"

	"mcpwire/mcp"
	"mcpwire/server"
)

type (
	twoArgs struct {
		Arg1 string `json:"arg1" jsonschema:"first test argument"`
		Arg2 string `json:"arg2" jsonschema:"second test argument"`
	}
	resourceArgs struct {
		ResourceURI string `json:"resourceUri" jsonschema:"the URI of the resource to embed"`
	}
	contextForm struct {
		Context string `json:"context" jsonschema:"what the prompt is about"`
	}
)

func addPrompts(srv *server.Server) error {
	return errors.Join(
		server.AddPrompt(srv, mcp.Prompt{Name: "test_simple_prompt", Description: "A text."}, func(context.Context, none) (string, error) {
			return "This is a simple prompt for testing.", nil
		}),
		server.AddPrompt(srv, mcp.Prompt{Name: "test_prompt_with_arguments", Description: "A text with two arguments."}, func(_ context.Context, in twoArgs) (string, error) {
			return fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", in.Arg1, in.Arg2), nil
		}, server.CompleteFrom("arg1", "test value 1", "test value 2", "other")),
		server.AddPrompt(srv, mcp.Prompt{Name: "test_prompt_with_embedded_resource", Description: "A resource, and a text about it."}, embed),
		server.AddPrompt(srv, mcp.Prompt{Name: "test_prompt_with_image", Description: "An image, and a text about it."}, func(context.Context, none) ([]mcp.PromptMessage, error) {
			return []mcp.PromptMessage{
				{Content: mcp.ImageContent{Data: png, MIMEType: "image/png"}},
				{Content: mcp.TextContent{Text: "Please analyze the image above."}},
			}, nil
		}),
		server.AddPrompt(srv, mcp.Prompt{Name: "test_input_required_result_prompt", Description: "A text with a context that the user is asked for first."}, func(ctx context.Context, _ none) (string, error) {
			got, err := server.Elicit[contextForm](ctx, "user_context", "What context should the prompt use?")
			return "Use this context: " + got.Value.Context, err
		}),
	)
}

func embed(_ context.Context, in resourceArgs) ([]mcp.PromptMessage, error) {
	return []mcp.PromptMessage{
		{Content: embedded(in.ResourceURI, "text/plain", "Embedded resource content for testing.")},
		{Content: mcp.TextContent{Text: "Please process the embedded resource above."}},
	}, nil
}

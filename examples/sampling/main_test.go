package main

import (
	"context"
	"errors"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

func TestSummarize(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.Revision20251125, mcp.Revision20260728} {
		t.Run(revision.String(), func(t *testing.T) {
			srv, err := newServer()
			if err != nil {
				t.Fatal(err)
			}
			args := map[string]string{"text": "a long text"}
			var refuse error
			c := mcptest.Connect(t, srv, &client.Options{
				Revisions: []mcp.Revision{revision},
				Input: client.InputOptions{Sample: func(_ context.Context, p *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
					text := p.Messages[0].Content[0].(mcp.TextContent).Text
					return &mcp.CreateMessageResult{
						Role:    mcp.RoleAssistant,
						Model:   "test",
						Content: mcp.SamplingContent{mcp.TextContent{Text: "In short: " + text}},
					}, refuse
				}},
			})
			got, err := client.CallTool[string](t.Context(), c, "summarize", args)
			if want := "In short: a long text"; got != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
			refuse = errors.New("not today")
			if got, err := client.CallTool[string](t.Context(), c, "summarize", args); err == nil {
				t.Errorf("the user refused, but the tool returned %q", got)
			}

			c = mcptest.Connect(t, srv, &client.Options{Revisions: []mcp.Revision{revision}})
			if got, err := client.CallTool[string](t.Context(), c, "summarize", args); err == nil {
				t.Errorf("without sampling: got %q, want an error", got)
			}
		})
	}
}

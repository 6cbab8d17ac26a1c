// Sampling is a server on standard input and output whose tool uses the model of the host. The
// server needs no key for a model; the host decides which one answers. Here, a file answers:
//
//	echo '{"role":"assistant","content":{"type":"text","text":"Short."},"model":"me"}' >said.json
//	mcpwire call summarize text='A long text.' --sampling @said.json -- go run ./examples/sampling
package main

import (
	"context"
	"errors"
	"log"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

func newServer() (*server.Server, error) {
	srv, err := server.New("summarizer", "1.0.0", nil)
	if err != nil {
		return nil, err
	}
	err = server.AddTool(srv, "summarize", "Summarize a text in one sentence.", func(ctx context.Context, in struct {
		Text string `json:"text" schema:"minLength=1"`
	}) (string, error) {
		// "summary" identifies the question when a modern client calls again with the answer. Many
		// hosts have no sampling; the error then says so to the client.
		said, err := server.CallOf(ctx).Sample(ctx, "summary", &mcp.CreateMessageRequestParams{
			SystemPrompt: "Summarize the user's text in one sentence.",
			Messages:     []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.TextContent{Text: in.Text}}}},
			MaxTokens:    200,
		})
		if err != nil {
			return "", err
		}
		for _, block := range said.Content {
			if text, ok := block.(mcp.TextContent); ok {
				return text.Text, nil
			}
		}
		return "", errors.New("the model answered without text")
	})
	return srv, err
}

func main() {
	srv, err := newServer()
	if err != nil {
		log.Fatal(err)
	}
	if err := stdio.Serve(context.Background(), srv); err != nil {
		log.Fatal(err)
	}
}

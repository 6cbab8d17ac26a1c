package offer

import (
	"context"
	"errors"

	"mcpwire/mcp"
	"mcpwire/server"
)

// Everything adds one of each primitive that a server can offer, except tools.
func Everything(srv *server.Server) error {
	return errors.Join(
		server.AddResource(srv, mcp.Resource{URI: "bench://text", Name: "text"}, server.Static("text")),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "bench://text/{id}", Name: "texts"},
			func(_ context.Context, vars server.Vars) (string, error) { return vars.Get("id"), nil },
			server.CompleteFrom("id", "one", "two")),
		server.AddPrompt(srv, mcp.Prompt{Name: "prompt"}, func(_ context.Context, in struct {
			Topic string `json:"topic"`
		}) (string, error) {
			return "Write about " + in.Topic + ".", nil
		}),
		server.AddMethod(srv, "bench/method", func(_ context.Context, in text) (text, error) { return in, nil }),
	)
}

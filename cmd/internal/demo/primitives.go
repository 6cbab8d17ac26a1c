package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"mcpwire/mcp"
	"mcpwire/server"
)

const aboutDemo = "This server is for testing clients. It is part of mcpwire, which speaks the Model Context Protocol at the wire level.\n"

// maxSquare is the largest number that thequares.
const maxSquare = 1000

// explainArgs holds the arguments of the prompt.
type explainArgs struct {
	Topic    string `json:"topic" jsonschema:"what to explain"`
	Audience string `json:"audience,omitempty" jsonschema:"whom to explain it to" schema:"enum=children|beginners|experts,default=beginners"`
}

func addPrimitives(srv *server.Server) error {
	return errors.Join(
		server.AddResource(srv, mcp.Resource{
			URI: "demo://about", Name: "about", Description: "Describes this server.", MIMEType: "text/plain",
		}, server.Static(aboutDemo)),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{
			URITemplate: "demo:///squares/{n}", Name: "square", Description: fmt.Sprintf("The square of n, from 0 to %d.", maxSquare), MIMEType: "text/plain",
		}, square, server.Complete("n", completeNumber)),
		server.AddPrompt(srv, mcp.Prompt{Name: "explain", Description: "Explain something."}, explain),
	)
}

func square(_ context.Context, vars server.Vars) (string, error) {
	n, err := strconv.Atoi(vars.Get("n"))
	if err != nil || n < 0 || n > maxSquare {
		return "", server.ErrNotFound
	}
	return strconv.Itoa(n * n), nil
}

// completeNumber returns the numbers that begin with the typed text.
func completeNumber(_ context.Context, req server.CompleteRequest) ([]string, error) {
	var list []string
	for n := range maxSquare + 1 {
		if text := strconv.Itoa(n); strings.HasPrefix(text, req.Value) {
			list = append(list, text)
		}
	}
	return list, nil
}

func explain(_ context.Context, in explainArgs) (string, error) {
	return fmt.Sprintf("Explain %s to %s.", in.Topic, in.Audience), nil
}

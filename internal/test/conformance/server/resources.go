package main

import (
	"context"
	"encoding/json"
	"errors"

	"mcpwire/mcp"
	"mcpwire/server"
)

func addResources(srv *server.Server) error {
	return errors.Join(
		server.AddResource(srv, mcp.Resource{
			URI: "test://static-text", Name: "static-text", Description: "A text that never changes.", MIMEType: "text/plain",
		}, server.Static("This is the content of the static text resource.")),
		server.AddResource(srv, mcp.Resource{
			URI: "test://static-binary", Name: "static-binary", Description: "An image that never changes.", MIMEType: "image/png",
		}, server.Static(png)),
		server.AddResource(srv, mcp.Resource{
			URI: "test://watched-resource", Name: "watched-resource", Description: "A text that clients may subscribe to.", MIMEType: "text/plain",
		}, server.Static("Watched resource content")),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{
			URITemplate: "test://template/{id}/data", Name: "template", Description: "The data of an id.", MIMEType: "application/json",
		}, func(_ context.Context, vars server.Vars) (string, error) {
			data, err := json.Marshal(map[string]any{"id": vars.Get("id"), "templateTest": true, "data": "Data for ID: " + vars.Get("id")})
			return string(data), err
		}),
	)
}

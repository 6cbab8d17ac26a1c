// Hello is a server on standard input and output with one tool.
//
//	mcpwire call greet name=Ada -- go run ./examples/hello
package main

import (
	"context"
	"log"

	"mcpwire/server"
	"mcpwire/stdio"
)

// A greeting is what the tool takes. The tags become its JSON Schema, and the server rejects
// arguments that don't match it.
type greeting struct {
	Name string `json:"name" jsonschema:"whom to greet" schema:"minLength=1"`
}

func newServer() (*server.Server, error) {
	srv, err := server.New("hello", "1.0.0", nil)
	if err != nil {
		return nil, err
	}
	err = server.AddTool(srv, "greet", "Greet somebody.", func(ctx context.Context, in greeting) (string, error) {
		return "Hello, " + in.Name + "!", nil
	})
	return srv, err
}

func main() {
	srv, err := newServer()
	if err != nil {
		log.Fatal(err)
	}
	// Serve returns when the host closes standard input, and on Ctrl-C or SIGTERM. In either case
	// it first answers the requests that it has accepted. Standard output belongs to the protocol;
	// log to standard error, as package log does.
	if err := stdio.Serve(context.Background(), srv); err != nil {
		log.Fatal(err)
	}
}

// Package demo has the server that mcpwire serve and mcpwire-node run, and tools to test clusters.
package demo

import (
	"errors"

	"mcpwire/server"
)

const instructions = "Tools to test a client: echo, word_count and add respond at once, slow reports progress, fail returns a tool error, and crash causes an internal error. The server also has a resource, a resource template and a prompt."

// New returns the server. It copies o, which may be nil, and replaces Info and Instructions.
func New(version string, o *server.Options) (*server.Server, error) {
	var opts server.Options
	if o != nil {
		opts = *o
	}
	opts.Info = server.Info{Title: "mcpwire demo server"}
	opts.Instructions = instructions
	srv, err := server.New("mcpwire-demo", version, &opts)
	if err != nil {
		return nil, err
	}
	return srv, errors.Join(addTools(srv), addPrimitives(srv))
}

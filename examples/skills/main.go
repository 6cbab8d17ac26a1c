// Skills is a server over HTTP that publishes the skills in a folder: instructions that a host
// loads for its model when they are needed.
//
//	go run ./examples/skills 127.0.0.1:8080
//	mcpwire skills http://127.0.0.1:8080/mcp
//	mcpwire skills http://127.0.0.1:8080/mcp commit-messages
package main

import (
	"context"
	"embed"
	"io/fs"
	"log"
	"os"

	"mcpwire/server"
	"mcpwire/skills"
	"mcpwire/streamable"
)

// The files are part of the program, so they cannot change while it runs.
//
//go:embed skills
var files embed.FS

func newServer() (*server.Server, error) {
	srv, err := server.New("skills", "1.0.0", nil)
	if err != nil {
		return nil, err
	}
	folder, err := fs.Sub(files, "skills")
	if err != nil {
		return nil, err
	}
	return srv, skills.Add(srv, folder)
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: skills ADDRESS")
	}
	srv, err := newServer()
	if err != nil {
		log.Fatal(err)
	}
	if err := streamable.Serve(context.Background(), os.Args[1], srv, nil); err != nil {
		log.Fatal(err)
	}
}

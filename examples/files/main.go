// Files is a server on standard input and output that lets clients read the files of a folder.
//
//	mcpwire read docs:///README.md -- go run ./examples/files .
package main

import (
	"context"
	"errors"
	"io/fs"
	"log"
	"os"
	"strings"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

// maxFiles limits the files that the list contains.
const maxFiles = 1000

func newServer(files fs.FS) (*server.Server, error) {
	srv, err := server.New("files", "1.0.0", nil)
	if err != nil {
		return nil, err
	}
	// A resource has a fixed URI. Clients find it in the list of resources.
	index := mcp.Resource{URI: "docs://index", Name: "index", Description: "The paths of all files.", MIMEType: "text/plain"}
	readIndex := func(ctx context.Context) (string, error) {
		paths, err := list(ctx, files, "")
		return strings.Join(paths, "\n"), err
	}
	// A template stands for many resources. The plus sign lets path contain slashes.
	doc := mcp.ResourceTemplate{URITemplate: "docs:///{+path}", Name: "file", Description: "A file of the folder."}
	// Hosts ask for this while the user types.
	complete := server.Complete("path", func(ctx context.Context, req server.CompleteRequest) ([]string, error) {
		return list(ctx, files, req.Value)
	})
	return srv, errors.Join(
		server.AddResource(srv, index, readIndex),
		server.AddResourceTemplate(srv, doc, server.Files(files), complete),
	)
}

// list returns the paths of the files whose path begins with prefix, at most maxFiles.
func list(ctx context.Context, files fs.FS, prefix string) ([]string, error) {
	var paths []string
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case len(paths) == maxFiles:
			return fs.SkipAll
		case d.Type().IsRegular() && strings.HasPrefix(path, prefix):
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: files FOLDER")
	}
	// Unlike os.DirFS, a Root has no path that leads out of the folder, not even a symbolic link.
	root, err := os.OpenRoot(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer root.Close()
	srv, err := newServer(root.FS())
	if err != nil {
		log.Fatal(err)
	}
	if err := stdio.Serve(context.Background(), srv); err != nil {
		log.Fatal(err)
	}
}

//go:build unix

package server_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// TestInvalidFiles shows that only regular files are read: opening a named pipe would block until
// something writes to it.
//
// Spec: S149
func TestInvalidFiles(t *testing.T) {
	dir := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644), os.Symlink("pipe", filepath.Join(dir, "link")), os.Symlink("/dev/zero", filepath.Join(dir, "device")),
		os.Symlink("loop", filepath.Join(dir, "loop")))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	srv := server.MustNew("test", "1", nil)
	must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "file:///{+path}", Name: "docs"}, server.Files(root.FS())))
	c := connect(t, srv, modern)
	for _, name := range []string{"pipe", "link", "device", "loop"} {
		if got, err := c.read("file:///" + name); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

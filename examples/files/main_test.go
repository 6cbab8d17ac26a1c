package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	shared := filepath.Join(dir, "shared")
	for name, text := range map[string]string{"secret.txt": "password", "shared/a.txt": "Alpha", "shared/guide/b.md": "# Beta"} {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret.txt", filepath.Join(shared, "link.txt")); err != nil {
		t.Logf("without a symbolic link: %v", err) // Windows permits them to administrators only
	}
	root, err := os.OpenRoot(shared)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	srv, err := newServer(root.FS())
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.Connect(t, srv, nil)

	for uri, want := range map[string]string{
		"docs://index":                "a.txt\nguide/b.md",
		"docs:///a.txt":               "Alpha",
		"docs:///guide/b.md":          "# Beta",
		"docs:///guide":               "", // a folder
		"docs:///none.txt":            "",
		"docs:///link.txt":            "",
		"docs:///../secret.txt":       "",
		"docs:///%2e%2e%2fsecret.txt": "",
	} {
		result, err := c.ReadResource(t.Context(), uri)
		if want == "" {
			if !client.IsNotFound(err) {
				t.Errorf("%s: got %v, %v, want that it doesn't exist", uri, result, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		if got := result.Contents[0].Text; got != want {
			t.Errorf("%s: got %+v, want the text %q", uri, result.Contents[0], want)
		}
	}

	ref := mcp.ResourceTemplateReference{URI: "docs:///{+path}"}
	completion, err := c.Complete(t.Context(), ref, mcp.CompleteArgument{Name: "path", Value: "gui"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"guide/b.md"}, completion.Values); diff != "" {
		t.Errorf("completions (-want +got):\n%s", diff)
	}
}

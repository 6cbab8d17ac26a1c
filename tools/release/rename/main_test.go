package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestRename(t *testing.T) {
	files := []struct{ name, before, after string }{
		{"go.mod", "module wire\n\ngo 1.26\n", "module example.com/you/wire\n\ngo 1.26\n"},
		{"cmd/go.mod", "module wire/cmd\n\nrequire (\n\twire v0.0.0\n\tother.org/wire v0.0.0\n)\n",
			"module example.com/you/wire/cmd\n\nrequire (\n\texample.com/you/wire v0.0.0\n\tother.org/wire v0.0.0\n)\n"},
		{"go.work", "use ./cmd\n\nreplace (\n\twire v0.0.0 => ./\n\twire/cmd v0.0.0 => ./cmd\n)\n",
			"use ./cmd\n\nreplace (\n\texample.com/you/wire v0.0.0 => ./\n\texample.com/you/wire/cmd v0.0.0 => ./cmd\n)\n"},
		{"server/server.go", "// Package server is for wire/cmd. See wire/none and @wire/cmd.\npackage server\n\nimport _ \"wire/cmd\"\n\nconst x = \"the program wire\"\n",
			"// Package server is for example.com/you/wire/cmd. See wire/none and @wire/cmd.\npackage server\n\nimport _ \"example.com/you/wire/cmd\"\n\nconst x = \"the program wire\"\n"},
		{"README.md", "`wire/server` and x/wire/server", "`example.com/you/wire/server` and x/wire/server"},
		{"picture.png", "\x00wire/server", "\x00wire/server"},
	}
	root := t.TempDir()
	for _, f := range files {
		path := filepath.Join(root, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.before), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}} {
		if out, err := exec.Command("git", append([]string{"-C", root}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git: %v: %s", err, out)
		}
	}
	got, err := rename(root, "example.com/you/wire")
	if err != nil {
		t.Fatal(err)
	}
	if want := 5; got != want {
		t.Errorf("rename changed %d files, want %d", got, want)
	}
	for _, f := range files {
		got, err := os.ReadFile(filepath.Join(root, f.name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != f.after {
			t.Errorf("%s:\ngot  %q\nwant %q", f.name, got, f.after)
		}
	}
}

func TestRenamePath(t *testing.T) {
	for _, path := range []string{"", "mcpwire", "mcpwire/x", "https://example.com/x", "example.com/x y", "example.com"} {
		if _, err := rename(t.TempDir(), path); err == nil {
			t.Errorf("the module path %q was accepted", path)
		}
	}
}

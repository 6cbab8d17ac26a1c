package main

import (
	"strings"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/skills"
)

// TestHost does what a host does: it lists the skills, and reads a file when the model wants it.
func TestHost(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.Revision20251125, mcp.Revision20260728} {
		t.Run(revision.String(), func(t *testing.T) {
			srv, err := newServer()
			if err != nil {
				t.Fatal(err)
			}
			c := mcptest.Connect(t, srv, &client.Options{Revisions: []mcp.Revision{revision}})
			n := 0
			for skill, err := range skills.List(t.Context(), c) {
				if err != nil {
					t.Fatal(err)
				}
				n++
				if got, want := skill.Name+": "+skill.Description, "commit-messages: Write commit messages as this project does"; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				for name, want := range map[string]string{"SKILL.md": "package: verb object", "references/examples.md": "skip oversize frames"} {
					if text, err := skill.Read(t.Context(), c, name); !strings.Contains(string(text), want) || err != nil {
						t.Errorf("%s: got %q, %v, want %q in it", name, text, err, want)
					}
				}
			}
			if n != 1 {
				t.Errorf("got %d skills, want 1", n)
			}
		})
	}
}

package main

import (
	"bufio"
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// TestServeHTTP checks that the server prints its address, serves both eras there, and ends when
// the context is canceled while clients are connected.
func TestServeHTTP(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, stdout := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-http", "localhost:0"}, stdout, io.Discard)
		stdout.CloseWithError(io.EOF)
		done <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err, <-done)
	}
	url := strings.TrimSpace(line)
	for _, r := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		c, err := client.Dial(t.Context(), streamable.NewTransport(url, nil), &client.Options{Revisions: []mcp.Revision{r}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got, err := client.CallTool[string](t.Context(), c, "greet", map[string]string{"name": "World"})
		if err != nil || got != "Hello, World!" {
			t.Errorf("%v: got %q, %v", r, got, err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func TestRunRejects(t *testing.T) {
	for _, args := range [][]string{{"-http", "localhost"}, {"-http", "localhost:x"}, {"-http", "127.0.0.1:1:1"}, {"-era", "classical"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("run(%s): got no error", args)
		}
	}
}

// TestRevisionsOf checks that an era has the revisions of that era and no others.
func TestRevisionsOf(t *testing.T) {
	legacy, err := revisionsOf("legacy")
	if err != nil {
		t.Fatal(err)
	}
	modern, err := revisionsOf("modern")
	if err != nil {
		t.Fatal(err)
	}
	if got := append(legacy, modern...); !slices.Equal(got, mcp.Revisions()) || slices.ContainsFunc(legacy, mcp.Revision.Modern) {
		t.Errorf("got %v and %v", legacy, modern)
	}
}

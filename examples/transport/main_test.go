package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpwire/mcptest"
)

func TestSocket(t *testing.T) {
	mcptest.CheckLeaks(t)
	dir, err := os.MkdirTemp("", "mcp") // the path of a socket must be short, t.TempDir's may not be
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l) }()

	for _, text := range []string{"hi", "two\nlines"} {
		var stdout strings.Builder
		err := call(t.Context(), socket, text, &stdout)
		if want := text + "\n"; stdout.String() != want || err != nil {
			t.Errorf("got %q, %v, want %q", stdout.String(), err, want)
		}
	}

	// serve ends although a client is connected.
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if err := call(t.Context(), socket, "hi", new(strings.Builder)); err == nil {
		t.Error("the server still answers")
	}
}

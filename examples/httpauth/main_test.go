package main

import (
	"context"
	"net"
	"strings"
	"testing"

	"mcpwire/mcptest"
)

func TestToken(t *testing.T) {
	mcptest.CheckLeaks(t)
	const token = "a-token-for-this-test-only"
	ctx, stop := context.WithCancel(t.Context())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- serve(ctx, "127.0.0.1:0", token, func(at net.Addr) { listening <- at })
	}()
	var url string
	select {
	case at := <-listening:
		url = "http://" + at.String() + "/mcp"
	case err := <-ended:
		t.Fatal(err)
	}

	var stdout strings.Builder
	err := call(t.Context(), url, token, &stdout)
	if want := "ada\n"; stdout.String() != want || err != nil {
		t.Errorf("got %q, %v, want %q", stdout.String(), err, want)
	}
	for _, wrong := range []string{"", "another-token-of-that-length"} {
		stdout.Reset()
		err := call(t.Context(), url, wrong, &stdout)
		if err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("with token %q: got %q, %v, want status 401", wrong, stdout.String(), err)
		}
	}

	stop()
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if err := serve(t.Context(), "127.0.0.1:0", "", nil); err == nil {
		t.Error("a server without a token started")
	}
}

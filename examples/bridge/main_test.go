package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// The test binary is also the server: with this variable, it serves on standard input and output.
const runServer = "BRIDGE_RUN_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(runServer) != "" {
		// A server that knows no revision without the handshake.
		srv := server.MustNew("old", "1.0.0", &server.Options{Revisions: []mcp.Revision{mcp.Revision20251125}})
		err := server.AddTool(srv, "where", "Tell who serves.", func(context.Context, struct{}) (string, error) { return "a process", nil })
		if err == nil {
			err = stdio.Serve(context.Background(), srv)
		}
		if err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	mcptest.CheckLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	upstream := stdio.Command(self)
	upstream.Env = []string{runServer + "=1"}
	upstream.Stderr = t.Output()

	ctx, stop := context.WithCancel(t.Context())
	type place struct {
		name string
		at   net.Addr
	}
	listening, ended := make(chan place, 2), make(chan error, 1)
	go func() {
		ended <- run(ctx, "127.0.0.1:0", "127.0.0.1:0", upstream, func(name string, at net.Addr) { listening <- place{name, at} })
	}()
	urls := map[string]string{}
	for range 2 {
		select {
		case p := <-listening:
			urls[p.name] = "http://" + p.at.String()
		case err := <-ended:
			t.Fatal(err)
		}
	}

	for _, revision := range []mcp.Revision{mcp.Revision20251125, mcp.Revision20260728} {
		c, err := client.Dial(t.Context(), streamable.NewTransport(urls["server"]+"/mcp", nil), &client.Options{Revisions: []mcp.Revision{revision}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.CallTool[string](t.Context(), c, "where", nil)
		if want := "a process"; got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", revision, got, err, want)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: close: %v", revision, err)
		}
	}

	resp, err := http.Get(urls["probes"] + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || err != nil {
		t.Errorf("readyz: got %s, %q, %v, want status 200", resp.Status, body, err)
	}
	http.DefaultClient.CloseIdleConnections()

	stop()
	if err := <-ended; err != nil {
		t.Errorf("run ended with %v", err)
	}
}

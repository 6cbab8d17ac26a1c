package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http/httptest"
	"net/url"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// dial connects a client that agrees to everything.
func dial(t *testing.T, url string, revision mcp.Revision) *client.Client {
	c, err := client.Dial(t.Context(), streamable.NewTransport(url, nil), &client.Options{
		Revisions: []mcp.Revision{revision},
		Input: client.InputOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"agree":true}`)}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// order calls the tool that asks.
func order(t *testing.T, c *client.Client) (string, error) {
	return client.CallTool[string](t.Context(), c, "order", map[string]string{"thing": "hat"})
}

func TestRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", func(at net.Addr) { listening <- at }) }()
	var url string
	select {
	case at := <-listening:
		url = "http://" + at.String() + "/mcp"
	case err := <-ended:
		t.Fatal(err)
	}

	got, err := order(t, dial(t, url, mcp.Revision20260728))
	if err != nil || got != "begun at a, completed at b, paid: true" && got != "begun at b, completed at a, paid: true" {
		t.Errorf("got %q, %v, want that two nodes took part", got, err)
	}
	for _, revision := range []mcp.Revision{mcp.Revision20251125, mcp.Revision20260728} {
		c := dial(t, url, revision)
		calls := map[string]int{}
		for range 4 {
			name, err := client.CallTool[string](t.Context(), c, "where", nil)
			if err != nil {
				t.Fatalf("%s: %v", revision, err)
			}
			calls[name]++
		}
		if calls["a"] == 0 || calls["b"] == 0 {
			t.Errorf("%s: calls by node: %v, want some at each", revision, calls)
		}
	}

	stop()
	if err := <-ended; err != nil {
		t.Errorf("run ended with %v", err)
	}
}

// TestSecrets checks that nodes with different secrets don't continue each other's calls.
func TestSecrets(t *testing.T) {
	var nodes []*url.URL
	for _, secret := range []string{"the first of two secrets of 32 b", "the other of two secrets of 32 b"} {
		h, err := newNode("node", []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(h)
		t.Cleanup(web.Close)
		t.Cleanup(func() { h.Shutdown(context.Background()) })
		at, err := url.Parse(web.URL)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, at)
	}
	proxy := httptest.NewServer(newProxy(nodes))
	t.Cleanup(proxy.Close)
	if got, err := order(t, dial(t, proxy.URL+"/mcp", mcp.Revision20260728)); err == nil {
		t.Errorf("got %q, want an error", got)
	}
}

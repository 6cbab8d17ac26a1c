package bridge

import (
	"context"
	"encoding/json"
	"io"
	"sync/atomic"
	"testing"

	mcpclient "mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// TestGroups: modern clients that differ in what they can do do not share a session with a legacy server: it would take each for the other, and ask the wrong one.
func TestGroups(t *testing.T) {
	connect := connectTo(t, EraLegacy.revisions())
	var connections atomic.Int32
	b := newBridge(t, &Options{Connect: func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		connections.Add(1)
		return connect(ctx, stderr)
	}})
	url := served(t, b, nil).URL + "/mcp"
	before := connections.Load()
	dial := func(name string, elicit bool) *mcpclient.Client {
		o := &mcpclient.Options{Name: name, Revisions: EraModern.revisions()}
		if elicit {
			o.Elicit = func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"Name":"` + name + `"}`)}, nil
			}
		}
		c, err := mcpclient.Dial(t.Context(), streamable.Dial(url, nil), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dumb, able, other := dial("dumb", false), dial("able", true), dial("other", true)
	if got, err := mcpclient.CallTool[string](t.Context(), dumb, "ask", json.RawMessage(`{}`)); err == nil {
		t.Errorf("a client that cannot be asked got %q", got)
	}
	for name, c := range map[string]*mcpclient.Client{"able": able, "other": other} {
		if got, err := mcpclient.CallTool[string](t.Context(), c, "ask", json.RawMessage(`{}`)); err != nil || got != "you are "+name {
			t.Errorf("%s got %q, %v", name, got, err)
		}
	}
	if got := connections.Load() - before; got < 3 {
		t.Errorf("%d connections to the server for 3 clients", got)
	}
}

// TestGroupsModern: a modern server takes each request by itself, so what a client can do tells nobody apart, even if it changes from one request to the
// next. What one of them changes, the others that listen are told.
func TestGroupsModern(t *testing.T) {
	connect := connectTo(t, EraModern.revisions())
	var connections atomic.Int32
	b := newBridge(t, &Options{Connect: func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		connections.Add(1)
		return connect(ctx, stderr)
	}})
	url := served(t, b, nil).URL + "/mcp"
	for _, name := range []string{"one", "another", "one"} {
		c, err := mcpclient.Dial(t.Context(), streamable.Dial(url, nil), &mcpclient.Options{Name: name, Revisions: EraModern.revisions()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got, err := mcpclient.CallTool[string](t.Context(), c, "echo", json.RawMessage(`{"Text":"hi"}`)); err != nil || got != "hi" {
			t.Errorf("%s got %q, %v", name, got, err)
		}
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("%d connections to the server, want 1", got)
	}
}

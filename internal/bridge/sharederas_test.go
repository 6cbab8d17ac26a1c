package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	mcpclient "mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// sharedBridge is a bridge whose clients share a server of these revisions, and counts its connections.
func sharedBridge(t *testing.T, o *Options, revisions []mcp.Revision) (b *Bridge, connections *atomic.Int32) {
	connections = new(atomic.Int32)
	connect := connectTo(t, revisions)
	o.Shared = true
	o.Connect = func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		connections.Add(1)
		return connect(ctx, stderr)
	}
	return newBridge(t, o), connections
}

// guest connects a client of an era, whose user has a name; over HTTP if there is a url.
func guest(t *testing.T, b *Bridge, url, user string, era Era, change func(*mcpclient.Options)) *mcpclient.Client {
	t.Helper()
	var transport mcpclient.Transport
	if url != "" {
		transport = streamable.Dial(url, nil)
	} else {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
		}()
		t.Cleanup(func() { <-done })
		transport = mcpclient.Over(jsonrpc.NewFramer(ours, nil))
	}
	o := &mcpclient.Options{
		Name: "guest", Revisions: era.revisions(),
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"Name":"` + user + `"}`)}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///" + user}}, nil },
	}
	if change != nil {
		change(o)
	}
	c, err := mcpclient.Dial(t.Context(), transport, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSharedEras: clients of each era share a server of each, by one connection, and all that there is works: answers, progress, and what each is asked.
func TestSharedEras(t *testing.T) {
	for _, clientEra := range []Era{EraLegacy, EraModern} {
		for _, serverEra := range []Era{EraLegacy, EraModern} {
			for _, known := range []bool{false, true} {
				for _, transport := range []string{"pipe", "http"} {
					t.Run(fmt.Sprintf("%v to %v over %s, known %t", clientEra, serverEra, transport, known), func(t *testing.T) {
						o := new(Options)
						if known {
							o.ServerEra = serverEra
						}
						b, connections := sharedBridge(t, o, serverEra.revisions())
						url := ""
						if transport == "http" {
							url = served(t, b, nil).URL + "/mcp"
						}
						var all sync.WaitGroup
						guests := make([]*mcpclient.Client, 8)
						for i := range guests {
							all.Go(func() { guests[i] = guest(t, b, url, fmt.Sprint("user", i), clientEra, nil) })
						}
						all.Wait()
						for i, c := range guests {
							if got, err := mcpclient.CallTool[string](t.Context(), c, "ask", json.RawMessage(`{}`)); err != nil || got != fmt.Sprint("you are user", i) {
								t.Errorf("client %d got %q, %v", i, got, err)
							}
							if got, err := mcpclient.CallTool[string](t.Context(), c, "roots", json.RawMessage(`{}`)); err != nil || got != "1" {
								t.Errorf("client %d got %q, %v", i, got, err)
							}
						}
						for i, c := range guests { // not before: nothing says whose question it is while several have something under way
							all.Go(func() { visits(t, c, i) })
						}
						all.Wait()
						if n := connections.Load(); n != 1 {
							t.Errorf("%d connections to the server, want 1", n)
						}
					})
				}
			}
		}
	}
}

// TestChain: what a client can be asked reaches a legacy server through two bridges.
func TestChain(t *testing.T) {
	for _, shared := range []bool{false, true} {
		last := newBridge(t, &Options{Connect: connectTo(t, EraLegacy.revisions()), Shared: shared})
		b := newBridge(t, &Options{Shared: shared, Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) {
			ours, theirs := net.Pipe()
			go last.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
			return jsonrpc.NewFramer(ours, nil), nil
		}})
		c := guest(t, b, "", "me", EraModern, nil)
		if got, err := mcpclient.CallTool[string](t.Context(), c, "ask", json.RawMessage(`{}`)); err != nil || got != "you are me" {
			t.Errorf("shared %t: got %q, %v", shared, got, err)
		}
	}
}

// visits has a client do this and that, while others do.
func visits(t *testing.T, c *mcpclient.Client, i int) {
	for n := range 20 {
		want := fmt.Sprint(i, "/", n)
		if got, err := mcpclient.CallTool[string](t.Context(), c, "echo", json.RawMessage(`{"Text":"`+want+`"}`)); err != nil || got != want {
			t.Errorf("client %d got %q, %v, want %q", i, got, err, want)
		}
		progress := 0
		count := mcpclient.WithProgress(func(mcp.ProgressNotificationParams) { progress++ })
		if got, err := mcpclient.CallTool[string](t.Context(), c, "steps", json.RawMessage(`{}`), count); err != nil || got != "done" || progress != 1 {
			t.Errorf("client %d got %q, %v, after %d steps", i, got, err, progress)
		}
	}
}

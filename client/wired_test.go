package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// wire connects a client to a server of package server, in the revision. Both end with the test.
func wire(t *testing.T, srv *server.Server, revision mcp.Revision, opts Options) *Client {
	t.Helper()
	clientEnd, serverEnd := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil)) }()
	opts.Revisions = []mcp.Revision{revision}
	c, err := Dial(t.Context(), FramerTransport(jsonrpc.NewFramer(clientEnd, nil)), &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return c
}

// shop returns a server with some of each primitive.
func shop() *server.Server {
	srv := server.MustNew("shop", "1", &server.Options{Limits: server.Limits{PageSize: 2}, Cache: server.CacheOptions{ListTTL: time.Minute, ReadTTL: time.Minute}})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		must(server.AddTool(srv, name, "", func(_ context.Context, in struct {
			N int `json:"n"`
		}) (int, error) {
			if in.N < 0 {
				return 0, errors.New("n must not be negative")
			}
			return in.N + 1, nil
		}))
		must(server.AddResource(srv, mcp.Resource{URI: "x:" + name, Name: name}, server.Static("this is "+name)))
		must(server.AddPrompt(srv, mcp.Prompt{Name: name}, func(_ context.Context, in struct {
			Who string `json:"who"`
		}) (string, error) {
			return "greet " + in.Who, nil
		}, server.CompleteFrom("who", "alice", "albert", "bob")))
		must(server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "y:" + name + "/{id}", Name: name},
			func(_ context.Context, vars server.Vars) (string, error) { return name + vars.Get("id"), nil }))
	}
	must(server.AddToolWith(srv, mcp.Tool{Name: "point"}, func(_ context.Context, in point) (point, error) { return in, nil }))
	return srv
}

// TestWired runs the client with package server, in all revisions.
func TestWired(t *testing.T) {
	for _, revision := range mcp.Revisions() {
		t.Run(revision.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := shop()
				var sent atomic.Int32
				c := wire(t, srv, revision, Options{Trace: func(dir jsonrpc.Direction, _ []byte) {
					if dir == jsonrpc.Outgoing {
						sent.Add(1)
					}
				}})
				for range 2 {
					wiredLists(t, c)
				}
				before := sent.Load()
				wiredLists(t, c)
				if asked := sent.Load() != before; asked == c.Revision().Modern() {
					t.Errorf("the lists were requested again: %t", asked)
				}
				wiredCalls(t, c)
				wiredChanges(t, c, srv)
			})
		})
	}
}

func wiredLists(t *testing.T, c *Client) {
	t.Helper()
	var all []string
	for tool, err := range c.Tools(t.Context()) {
		all = append(all, fmt.Sprint(tool.Name, err))
	}
	for r, err := range c.Resources(t.Context()) {
		all = append(all, fmt.Sprint(r.URI, err))
	}
	for r, err := range c.ResourceTemplates(t.Context()) {
		all = append(all, fmt.Sprint(r.URITemplate, err))
	}
	for p, err := range c.Prompts(t.Context()) {
		all = append(all, fmt.Sprint(p.Name, err))
	}
	want := "a b c d e point x:a x:b x:c x:d x:e y:a/{id} y:b/{id} y:c/{id} y:d/{id} y:e/{id} a b c d e"
	if diff := cmp.Diff(want, strings.ReplaceAll(strings.Join(all, " "), "<nil>", "")); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
}

func wiredCalls(t *testing.T, c *Client) {
	t.Helper()
	if n, err := CallTool[int](t.Context(), c, "b", map[string]int{"n": 41}); n != 42 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	want := point{X: 1, Name: "é\n"}
	if p, err := CallTool[point](t.Context(), c, "point", want); p != want || err != nil {
		t.Errorf("got %v, %v", p, err)
	}
	if _, err := CallTool[int](t.Context(), c, "b", map[string]int{"n": -1}); err == nil || err.Error() != `tool "b" failed: n must not be negative` {
		t.Errorf("got %v", err)
	}
	if r, err := c.CallTool(t.Context(), "b", map[string]string{"n": "1"}); err != nil || !r.IsError {
		t.Errorf("wrong arguments: got %v, %v", r, err)
	}
	if _, err := c.CallTool(t.Context(), "z", nil); !isInvalidParams(err) {
		t.Errorf("unknown tool: got %v", err)
	}
	for uri, text := range map[string]string{"x:c": "this is c", "y:d/7": "d7"} {
		if got := read(t, c, uri); got != text {
			t.Errorf("%s: got %q", uri, got)
		}
	}
	if _, err := c.ReadResource(t.Context(), "x:z"); !IsNotFound(err) {
		t.Errorf("unknown resource: got %v", err)
	}
	if p, err := c.GetPrompt(t.Context(), "a", map[string]string{"who": "you"}); err != nil || p.Messages[0].Content.(mcp.TextContent).Text != "greet you" {
		t.Errorf("got %+v, %v", p, err)
	}
	done, err := c.Complete(t.Context(), mcp.PromptReference{Name: "a"}, mcp.CompleteArgument{Name: "who", Value: "al"}, nil)
	if err != nil || !cmp.Equal(done.Values, []string{"alice", "albert"}) {
		t.Errorf("got %v, %v", done, err)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func wiredChanges(t *testing.T, c *Client, srv *server.Server) {
	t.Helper()
	filter := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x:a"}}
	sub, err := c.Listen(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filter, sub.Accepted()); diff != "" {
		t.Errorf("honored (-want +got):\n%s", diff)
	}
	srv.RemoveTools("e")
	if e := next(t, sub); e != (Event{Kind: ToolsListChanged}) {
		t.Errorf("got %v", e)
	}
	tools, err := collectAll(c.Tools(t.Context()))
	if len(tools) != 5 || err != nil {
		t.Errorf("after a tool is gone: %d tools, %v", len(tools), err)
	}
	srv.RemovePrompts("e") // no subscription has requested it
	srv.ResourceUpdated("x:b")
	srv.ResourceUpdated("x:a")
	if e := next(t, sub); e != (Event{Kind: ResourceUpdated, URI: "x:a"}) {
		t.Errorf("got %v", e)
	}
	sub.Close()
	synctest.Wait()
	srv.ResourceUpdated("x:a")
	synctest.Wait()
	if e, ok, _ := sub.queue.tryNext(); ok {
		t.Errorf("after the end: %v", e)
	}
}

// TestWiredEnds shows that subscribers are notified when a server closes its connections, and that
// a client ends if its transport has no other connection.
func TestWiredEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := shop()
		clientEnd, serverEnd := net.Pipe()
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ctx, jsonrpc.NewFramer(serverEnd, nil)) }()
		c, err := Dial(t.Context(), FramerTransport(jsonrpc.NewFramer(clientEnd, nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		sub, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true})
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if events, err := collectAll(sub.Events(t.Context())); len(events) > 0 || err != nil {
			t.Errorf("got %v, %v, want an end without an error", events, err)
		}
		<-c.Done()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("Serve: %v", err)
		}
	})
}

// TestWiredTasks runs tools as tasks in both designs.
func TestWiredTasks(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.Revision20251125, mcp.Revision20260728} {
		t.Run(revision.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := server.MustNew("worker", "1", &server.Options{Tasks: &server.TaskOptions{PollInterval: time.Second}})
				def := mcp.Tool{Name: "slow", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportRequired}}
				must(server.AddToolWith(srv, def, func(ctx context.Context, in struct {
					Ask  bool `json:"ask,omitempty"`
					Fail bool `json:"fail,omitempty"`
					Hang bool `json:"hang,omitempty"`
				}) (string, error) {
					wait := 3 * time.Second
					switch {
					case in.Hang:
						wait = time.Hour
					case in.Fail:
						return "", errors.New("it went wrong")
					case in.Ask:
						roots, err := server.CallOf(ctx).Roots(ctx, "roots")
						if err != nil {
							return "", err
						}
						return roots[0].Name, nil
					}
					select {
					case <-time.After(wait):
						return "done", nil
					case <-ctx.Done():
						return "", ctx.Err()
					}
				}))
				c := wire(t, srv, revision, Options{Tasks: true, Input: InputOptions{Roots: func(context.Context) ([]mcp.Root, error) {
					return []mcp.Root{{URI: "file:///r", Name: "the root"}}, nil
				}}})
				known(t, c)
				if got, err := CallTool[string](t.Context(), c, "slow", nil); got != "done" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
				if got, err := CallTool[string](t.Context(), c, "slow", map[string]bool{"ask": true}); got != "the root" || err != nil {
					t.Errorf("with an input request: got %q, %v", got, err)
				}
				_, err := CallTool[string](t.Context(), c, "slow", map[string]bool{"fail": true})
				if failed, ok := errors.AsType[*ToolError](err); !ok || !strings.Contains(failed.Error(), "it went wrong") {
					t.Errorf("failing: got %v", err)
				}
				task, err := c.StartTool(t.Context(), "slow", map[string]bool{"hang": true})
				if err != nil {
					t.Fatal(err)
				}
				if task.ID() == "" {
					t.Fatal("there is no task")
				}
				if state, err := c.Task(task.ID()).Poll(t.Context()); err != nil || state.Status != mcp.TaskStatusWorking {
					t.Errorf("another handle: got %+v, %v", state, err)
				}
				if err := task.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := task.Wait(t.Context()); !errors.Is(err, ErrTaskCanceled) {
					t.Errorf("cancelled: got %v", err)
				}
				if revision.Modern() {
					return
				}
				tasks, err := collectAll(c.Tasks(t.Context()))
				if len(tasks) != 4 || err != nil {
					t.Errorf("got %d tasks, %v", len(tasks), err)
				}
			})
		})
	}
}

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// testTimeout limits everything that a test waits for.
const testTimeout = time.Minute

func must(err error) {
	if err != nil {
		panic(err)
	}
}

type none struct{}

// fullServer returns a server with tools, resources, a prompt and tasks.
func fullServer(name string, revisions ...mcp.Revision) *server.Server {
	srv := server.MustNew(name, "1", &server.Options{Revisions: revisions, Instructions: "instructions of " + name, Tasks: &server.TaskOptions{PollInterval: time.Millisecond}})
	must(server.AddTool(srv, "add", "", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil }))
	must(server.AddTool(srv, "who", "", func(context.Context, none) (string, error) { return name, nil }))
	must(server.AddTool(srv, "fail", "", func(context.Context, none) (int, error) { return 0, errors.New("internal failure") }))
	must(server.AddTool(srv, "steps", "", func(ctx context.Context, _ none) (string, error) {
		c := server.CallOf(ctx)
		for i := range 3 {
			must(c.Progress(float64(i+1), 3, "step"))
			must(c.Log(mcp.LevelInfo, "steps", i))
			must(c.Log(mcp.LevelDebug, "steps", i))
		}
		return "done", nil
	}))
	must(server.AddTool(srv, "form", "", func(ctx context.Context, _ none) (string, error) {
		res, err := server.CallOf(ctx).Elicit(ctx, "name", &mcp.ElicitRequestParams{Message: "Name?",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)})
		if err != nil {
			return "", err
		}
		return string(res.Action) + string(res.Content), nil
	}))
	must(server.AddTool(srv, "think", "", func(ctx context.Context, _ none) (string, error) {
		c := server.CallOf(ctx)
		res, err := c.Sample(ctx, "s", &mcp.CreateMessageRequestParams{MaxTokens: 5, Messages: []mcp.SamplingMessage{{Role: "user", Content: []mcp.ContentBlock{mcp.TextContent{Text: "hi"}}}}})
		if err != nil {
			return "", err
		}
		roots, err := c.Roots(ctx, "r")
		if err != nil {
			return "", err
		}
		return fmt.Sprint(res.Model, roots[0].URI), nil
	}))
	must(server.AddTool(srv, "hang", "", func(ctx context.Context, _ none) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}))
	must(server.AddToolWith(srv, mcp.Tool{Name: "link"}, func(context.Context, none) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.ResourceLink{URI: "x:a", Name: "a"}}}, nil
	}))
	must(server.AddToolWith(srv, mcp.Tool{Name: "slow", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportRequired}}, func(ctx context.Context, in struct {
		Ask bool `json:"ask,omitempty"`
	}) (string, error) {
		if in.Ask {
			roots, err := server.CallOf(ctx).Roots(ctx, "roots")
			if err != nil {
				return "", err
			}
			return roots[0].URI, nil
		}
		return "done by " + name, nil
	}))
	must(server.AddResource(srv, mcp.Resource{URI: "x:a", Name: "a"}, server.Static("this is a of "+name)))
	must(server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: name + ":{id}", Name: "y"}, func(_ context.Context, vars server.Vars) (string, error) { return vars.Get("id"), nil }))
	must(server.AddPrompt(srv, mcp.Prompt{Name: "p"}, func(_ context.Context, in struct {
		Who string `json:"who"`
	}) (string, error) {
		return "greet " + in.Who, nil
	}, server.CompleteFrom("who", "alice", "bob")))
	return srv
}

// overStream returns a function that connects to a server over a pipe.
func overStream(srv *server.Server) func(context.Context, io.Writer) (jsonrpc.Framer, error) {
	return func(context.Context, io.Writer) (jsonrpc.Framer, error) {
		ours, theirs := net.Pipe()
		go srv.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
		return jsonrpc.NewFramer(ours, nil), nil
	}
}

// overHTTP returns a function that connects to a server over HTTP.
func overHTTP(t *testing.T, srv streamable.Server) func(context.Context, io.Writer) (jsonrpc.Framer, error) {
	transport := streamable.NewTransport(serveHTTP(t, srv), &streamable.TransportOptions{HTTPClient: &http.Client{Transport: ownTransport(t)}})
	return func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
}

// ownTransport returns a transport whose connections close at the end of the test.
func ownTransport(t *testing.T) *http.Transport {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// serveHTTP serves srv and returns its URL.
func serveHTTP(t *testing.T, srv streamable.Server) string {
	t.Helper()
	h, err := streamable.NewHandler(srv, nil)
	if err != nil {
		t.Fatal(err)
	}
	return serveHandler(t, h)
}

// serveHandler serves h, inside the wrappers, and returns its URL.
func serveHandler(t testing.TB, h *streamable.Handler, wrap ...func(http.Handler) http.Handler) string {
	var outer http.Handler = h
	for _, w := range wrap {
		outer = w(outer)
	}
	web := httptest.NewServer(outer)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		h.Shutdown(ctx)
		web.CloseClientConnections()
		web.Close()
	})
	return web.URL
}

// newGateway returns a gateway that is closed at the end of the test.
func newGateway(t *testing.T, o *Options) *Gateway {
	t.Helper()
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// dialStream connects a client to the gateway over a pipe.
func dialStream(t *testing.T, g *Gateway, opts client.Options) *client.Client {
	t.Helper()
	return dial(t, client.TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
		ours, theirs := net.Pipe()
		go g.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
		return jsonrpc.NewFramer(ours, nil), nil
	}), opts)
}

// dialHTTP connects a client to the gateway over HTTP.
func dialHTTP(t *testing.T, g *Gateway, opts client.Options) *client.Client {
	t.Helper()
	url := serveHTTP(t, &relay.Server{Handler: g})
	return dial(t, streamable.NewTransport(url, &streamable.TransportOptions{HTTPClient: &http.Client{Transport: ownTransport(t)}}), opts)
}

func dial(t *testing.T, transport client.Transport, opts client.Options) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), transport, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// fullClientOptions returns the options of a client with all capabilities.
func fullClientOptions(revision mcp.Revision) client.Options {
	return client.Options{
		Revisions: []mcp.Revision{revision}, Tasks: true, Input: client.InputOptions{
			ElicitModes: []mcp.ElicitMode{mcp.ElicitModeForm, mcp.ElicitModeURL},
			Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "accept", Content: json.RawMessage(`{"name":"x"}`)}, nil
			},
			Sample: func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
				return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: []mcp.ContentBlock{mcp.TextContent{Text: "x"}}}, nil
			},
			Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///r", Name: "r"}}, nil },
		},
	}
}

// TestEraPairs has clients of both eras use upstreams of both eras, over HTTP and byte streams,
// with all features.
func TestEraPairs(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		for _, frontHTTP := range []bool{false, true} {
			for _, backHTTP := range []bool{false, true} {
				name := revision.String() + map[bool]string{false: " stream", true: " HTTP"}[frontHTTP] + map[bool]string{false: " to stream", true: " to HTTP"}[backHTTP]
				t.Run(name, func(t *testing.T) {
					old, modern := fullServer("old", mcp.LatestLegacyRevision), fullServer("new", mcp.LatestRevision)
					connect := func(srv *server.Server) bridge.Options {
						t.Cleanup(func() { srv.Close(context.Background()) })
						if backHTTP {
							return bridge.Options{Connect: overHTTP(t, srv), HTTP: true}
						}
						return bridge.Options{Connect: overStream(srv)}
					}
					g := newGateway(t, &Options{Instructions: "a gate", Upstreams: []Upstream{{Name: "old", Bridge: connect(old)}, {Name: "new", Bridge: connect(modern)}}})
					opts := fullClientOptions(revision)
					logs := make(chan string, 100)
					opts.OnNotification = func(method string, params json.RawMessage) {
						if method == mcp.NotificationMessage {
							logs <- string(params)
						}
					}
					var c *client.Client
					if frontHTTP {
						c = dialHTTP(t, g, opts)
					} else {
						c = dialStream(t, g, opts)
					}
					if got, want := c.Profile().Instructions, "a gate\n\n## old\n\ninstructions of old\n\n## new\n\ninstructions of new"; got != want {
						t.Errorf("instructions: got %q, want %q", got, want)
					}
					checkLists(t, c)
					for _, up := range []struct {
						name, uri string
						srv       *server.Server
					}{{"old", "x:old+a", old}, {"new", "x:new+a", modern}} {
						t.Run(up.name, func(t *testing.T) {
							checkBasics(t, c, up.name, up.uri)
							checkInputs(t, c, up.name)
							checkTasks(t, c, up.name)
							// A log message over a pipe can be attributed only if one request
							// is in flight, so this runs before the cancellation.
							checkLogs(t, c, up.name, revision.Modern(), logs)
							checkCancel(t, c, up.name)
							checkChanges(t, c, up.srv, up.name, up.uri)
						})
					}
				})
			}
		}
	}
}

func checkLists(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	var names []string
	for tool, err := range c.Tools(ctx) {
		names = append(names, fmt.Sprint(tool.Name, err))
	}
	for r, err := range c.Resources(ctx) {
		names = append(names, fmt.Sprint(r.URI, err))
	}
	for r, err := range c.ResourceTemplates(ctx) {
		names = append(names, fmt.Sprint(r.URITemplate, err))
	}
	for p, err := range c.Prompts(ctx) {
		names = append(names, fmt.Sprint(p.Name, err))
	}
	want := "old__add old__who old__fail old__steps old__form old__think old__hang old__link old__slow new__add new__who new__fail new__steps new__form new__think new__hang new__link new__slow " +
		"x:old+a x:new+a old:old+{id} new:new+{id} old__p new__p"
	if diff := cmp.Diff(want, strings.ReplaceAll(strings.Join(names, " "), "<nil>", "")); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
}

func checkBasics(t *testing.T, c *client.Client, up, uri string) {
	t.Helper()
	ctx := t.Context()
	if n, err := client.CallTool[int](ctx, c, up+"__add", map[string]int{"A": 40, "B": 2}); n != 42 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if got, err := client.CallTool[string](ctx, c, up+"__who", nil); got != up || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if r, err := c.CallTool(ctx, up+"__fail", nil); err != nil || !r.IsError {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := c.CallTool(ctx, up+"__adds", nil); !client.IsServerError(err) || !strings.Contains(err.Error(), `unknown tool "`+up+`__adds": did you mean "`+up+`__add"?`) {
		t.Errorf("got %v", err)
	}
	var seen []float64
	got, err := client.CallTool[string](ctx, c, up+"__steps", nil, client.WithProgress(func(p *mcp.ProgressNotificationParams) { seen = append(seen, p.Progress) }))
	if err != nil || got != "done" || !slices.Equal(seen, []float64{1, 2, 3}) {
		t.Errorf("got %q, %v, progress %v", got, err, seen)
	}
	link, err := c.CallTool(ctx, up+"__link", nil)
	if err != nil || len(link.Content) != 1 {
		t.Errorf("got %+v, %v", link, err)
	} else if l, ok := link.Content[0].(mcp.ResourceLink); !ok || l.URI != uri {
		t.Errorf("got %#v, want the URI %s", link.Content[0], uri)
	}
	if r, err := c.ReadResource(ctx, uri); err != nil || len(r.Contents) != 1 {
		t.Errorf("got %+v, %v", r, err)
	} else if text := r.Contents[0]; text.URI != uri || text.Text != "this is a of "+up {
		t.Errorf("got %#v", r.Contents[0])
	}
	if r, err := c.ReadResource(ctx, up+":7"); err != nil || len(r.Contents) != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, missing := range []string{"x:z", "nobody:z"} {
		if _, err := c.ReadResource(ctx, missing); !client.IsNotFound(err) {
			t.Errorf("%s: got %v", missing, err)
		}
	}
	if p, err := c.GetPrompt(ctx, up+"__p", map[string]string{"who": "you"}); err != nil || len(p.Messages) != 1 {
		t.Errorf("got %+v, %v", p, err)
	}
	done, err := c.Complete(ctx, mcp.PromptReference{Name: up + "__p"}, mcp.CompleteArgument{Name: "who", Value: "al"}, nil)
	if err != nil || !cmp.Equal(done.Values, []string{"alice"}) {
		t.Errorf("got %v, %v", done, err)
	}
	if err := c.Ping(ctx); err != nil {
		t.Error(err)
	}
}

func checkInputs(t *testing.T, c *client.Client, up string) {
	t.Helper()
	for _, tt := range []struct{ tool, want string }{{"form", `accept{"name":"x"}`}, {"think", "mfile:///r"}} {
		if got, err := client.CallTool[string](t.Context(), c, up+"__"+tt.tool, nil); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.tool, got, err, tt.want)
		}
	}
}

func checkTasks(t *testing.T, c *client.Client, up string) {
	t.Helper()
	ctx := t.Context()
	if got, err := client.CallTool[string](ctx, c, up+"__slow", nil); got != "done by "+up || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := client.CallTool[string](ctx, c, up+"__slow", map[string]bool{"ask": true}); got != "file:///r" || err != nil {
		t.Errorf("with an input request: got %q, %v", got, err)
	}
	task, err := c.StartTool(ctx, up+"__slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := task.Wait(ctx); err != nil || r.IsError {
		t.Errorf("got %+v, %v", r, err)
	}
	if !strings.Contains(task.ID(), "."+up+".") {
		t.Errorf("task id: got %q, want one with the name of its upstream", task.ID())
	}
}

func checkCancel(t *testing.T, c *client.Client, up string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.CallTool(ctx, up+"__hang", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func checkLogs(t *testing.T, c *client.Client, up string, modern bool, logs <-chan string) {
	t.Helper()
	var withLog []client.CallOption
	if modern {
		withLog = append(withLog, client.WithLog(mcp.LevelInfo, func(*mcp.LoggingMessageNotificationParams) {}))
	} else if err := c.SetLevel(t.Context(), mcp.LevelInfo); err != nil {
		t.Error(err)
	}
	if _, err := client.CallTool[string](t.Context(), c, up+"__steps", nil, withLog...); err != nil {
		t.Error(err)
	}
	if !modern {
		return // logging/setLevel reaches open upstreams asynchronously
	}
	for range 3 {
		select {
		case <-logs:
		case <-time.After(testTimeout):
			t.Fatal("a log message is missing")
		}
	}
}

func checkChanges(t *testing.T, c *client.Client, srv *server.Server, up, uri string) {
	t.Helper()
	filter := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{uri}}
	sub, err := c.Listen(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filter, sub.Accepted()); diff != "" {
		t.Errorf("honored (-want +got):\n%s", diff)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	next := func(want client.Event) {
		t.Helper()
		for e, err := range sub.Events(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if e == want {
				return
			}
			if !e.Missed {
				t.Errorf("got %v, want %v", e, want)
			}
		}
	}
	srv.ResourceUpdated("x:b")
	srv.ResourceUpdated("x:a")
	next(client.Event{Kind: client.ResourceUpdated, URI: uri})
	must(server.AddTool(srv, "more", "", func(context.Context, none) (string, error) { return "more", nil }))
	next(client.Event{Kind: client.ToolsListChanged})
	if got, err := client.CallTool[string](ctx, c, up+"__more", nil); got != "more" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}

package check_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

type form struct {
	Name string `json:"name" schema:"minLength=2"`
	Age  int    `json:"age,omitempty"`
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// newServer has something of everything.
func newServer(t *testing.T, rev mcp.Revision) *server.Server {
	srv := server.New("everything", "1", &server.Options{Revisions: []mcp.Revision{rev}, PageSize: 3, Tasks: &server.TaskOptions{PollInterval: time.Millisecond}})
	must(t,
		server.AddTool(srv, "add", "", func(_ context.Context, in struct{ A, B int }) (map[string]int, error) {
			return map[string]int{"sum": in.A + in.B}, nil
		}),
		server.AddTool(srv, "slow", "", func(ctx context.Context, _ struct{}) (string, error) {
			c := server.CallOf(ctx)
			for i := range 3 {
				_ = c.Progress(float64(i)+0.5, 3, "")
				_ = c.Log(mcp.LevelWarning, "slow", i)
			}
			return "done", nil
		}),
		server.AddTool(srv, "picture", "", func(context.Context, struct{}) ([]mcp.ContentBlock, error) {
			return []mcp.ContentBlock{mcp.ImageContent{Data: []byte("PNG"), MIMEType: "image/png"}}, nil
		}),
		server.AddTool(srv, "fail", "", func(context.Context, struct{}) (string, error) { return "", errors.New("no luck") }),
		server.AddTool(srv, "wait", "", func(ctx context.Context, _ struct{}) (string, error) {
			_ = server.CallOf(ctx).Progress(1, 3, "")
			<-ctx.Done()
			return "", ctx.Err()
		}),
		srv.AddRawTool(mcp.Tool{Name: "deploy", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)},
			func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: "deployed"}}}, nil
			}),
		srv.AddRawTool(mcp.Tool{Name: "refuse", InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)},
			func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "not today"}
			}),
		server.AddToolWith(srv, mcp.Tool{Name: "job", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}}, func(context.Context, struct{}) (string, error) {
			return "the work is done", nil
		}),
		server.AddResource(srv, mcp.Resource{URI: "file:///a", Name: "a"}, server.Static("text")),
		server.AddResource(srv, mcp.Resource{URI: "file:///b", Name: "b"}, server.Static([]byte{1, 2, 3})),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "note:///{id}", Name: "note"}, func(_ context.Context, v server.Vars) (string, error) {
			return "a note", nil
		}),
		server.AddPrompt(srv, mcp.Prompt{Name: "review"}, func(_ context.Context, in struct {
			Language string `json:"language" schema:"enum=go|rust"`
		}) (string, error) {
			return "Review this " + in.Language, nil
		}),
		addAsking(srv),
	)
	return srv
}

// addAsking adds the tools that ask the client.
func addAsking(srv *server.Server) error {
	text := func(s string) mcp.SamplingContent { return mcp.SamplingContent{mcp.TextContent{Text: s}} }
	tools := map[string]func(c *server.Call) (string, error){
		"ask": func(c *server.Call) (string, error) {
			a, err := server.Elicit[form](c, "who", "Who?")
			return a.Action, err
		},
		"connect": func(c *server.Call) (string, error) {
			a, err := c.ElicitURL(c, "page", "Connect", "https://example.com/connect")
			if err != nil {
				return "", err
			}
			return a.Action, nil
		},
		"sample": func(c *server.Call) (string, error) {
			r, err := c.Sample(c, "m", &mcp.CreateMessageRequestParams{MaxTokens: 5, Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: text("2+2?")}}})
			if err != nil {
				return "", err
			}
			return r.Model, nil
		},
		"plan": func(c *server.Call) (string, error) {
			r, err := c.Sample(c, "m", &mcp.CreateMessageRequestParams{MaxTokens: 5,
				Tools: []mcp.Tool{{Name: "map", InputSchema: json.RawMessage(`{"type":"object"}`)}},
				Messages: []mcp.SamplingMessage{
					{Role: mcp.RoleUser, Content: text("Where?")},
					{Role: mcp.RoleAssistant, Content: mcp.SamplingContent{mcp.ToolUseContent{ID: "u1", Name: "map"}}},
					{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.ToolResultContent{ToolUseID: "u1", Content: []mcp.ContentBlock{mcp.TextContent{Text: "here"}}}}},
				}})
			if err != nil {
				return "", err
			}
			return r.Model, nil
		},
		"roots": func(c *server.Call) (string, error) {
			roots, err := c.Roots(c, "r")
			if err != nil {
				return "", err
			}
			return roots[0].URI, nil
		},
	}
	for _, name := range []string{"ask", "connect", "sample", "plan", "roots"} {
		fn := tools[name]
		if err := server.AddTool(srv, name, "", func(ctx context.Context, _ struct{}) (string, error) { return fn(server.CallOf(ctx)) }); err != nil {
			return err
		}
	}
	return nil
}

// features are what a client of a revision can do.
func features(rev mcp.Revision) *client.Options {
	opts := &client.Options{
		Revisions: []mcp.Revision{rev}, SampleTools: true, Tasks: true,
		Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			if p.URL != "" {
				return &mcp.ElicitResult{Action: mcp.ElicitActionAccept}, nil
			}
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"name":"Ann"}`)}, nil
		},
		ElicitModes: client.ElicitForm | client.ElicitURL,
		Sample: func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m", Content: mcp.SamplingContent{mcp.TextContent{Text: "4"}}}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///home"}}, nil },
	}
	return opts
}

// converse uses all that a client has.
func converse(t *testing.T, tape *tape, srv *server.Server, transport client.Transport, rev mcp.Revision) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, transport, features(rev))
	must(t, err)
	defer c.Close()
	lists(ctx, t, c)
	for _, name := range []string{"slow", "ask", "connect", "sample", "plan", "roots", "picture", "fail"} {
		if _, err := c.CallTool(ctx, name, nil, client.WithProgress(func(mcp.ProgressNotificationParams) {}), client.WithLog(mcp.LevelInfo, func(mcp.LoggingMessageNotificationParams) {})); err != nil {
			t.Logf("%s: %v", name, err)
		}
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if _, err := c.CallTool(ctx, "add", map[string]int{"A": 1, "B": i}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	_, err = c.CallTool(ctx, "add", map[string]int{"A": 1, "B": 2})
	must(t, err)
	_, err = c.CallTool(ctx, "deploy", map[string]string{"region": "eu"})
	must(t, err)
	if _, err = c.CallTool(ctx, "refuse", map[string]int{"n": 1}); err == nil {
		t.Error("refuse: no error")
	}
	if rev == mcp.Revision20251125 || c.Modern() {
		job, err := c.StartTool(ctx, "job", nil)
		must(t, err)
		_, err = job.Wait(ctx)
		must(t, err)
		_, err = job.Poll(ctx)
		must(t, err)
	}
	waiting, stop := context.WithCancel(ctx)
	_, _ = c.CallTool(waiting, "wait", nil, client.WithProgress(func(mcp.ProgressNotificationParams) { stop() }))
	stop()
	tape.await(cancelled)
	tape.later(10 * time.Minute)
	resources(ctx, t, c)
	listen(ctx, t, srv, c)
}

func lists(ctx context.Context, t *testing.T, c *client.Client) {
	for _, err := range c.Tools(ctx) {
		must(t, err)
	}
	for _, err := range c.Resources(ctx) {
		must(t, err)
	}
	for _, err := range c.ResourceTemplates(ctx) {
		must(t, err)
	}
	for _, err := range c.Prompts(ctx) {
		must(t, err)
	}
	if !c.Modern() {
		must(t, c.Ping(ctx), c.SetLevel(ctx, mcp.LevelInfo), c.RootsChanged(ctx))
	}
}

func resources(ctx context.Context, t *testing.T, c *client.Client) {
	for _, uri := range []string{"file:///a", "file:///b", "note:///1"} {
		_, err := c.ReadResource(ctx, uri)
		must(t, err)
	}
	_, _ = c.ReadResource(ctx, "file:///none")
	_, err := c.Prompt(ctx, "review", map[string]string{"language": "go"})
	must(t, err)
	_, err = c.Complete(ctx, mcp.PromptReference{Name: "review"}, mcp.CompleteArgument{Name: "language", Value: "g"}, nil)
	must(t, err)
}

// listen hears of two changes.
func listen(ctx context.Context, t *testing.T, srv *server.Server, c *client.Client) {
	s, err := c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"file:///a"}})
	must(t, err)
	srv.ResourceUpdated("file:///a")
	srv.RemoveTools("wait")
	kinds := map[client.EventKind]bool{}
	for e, err := range s.Events(ctx) {
		must(t, err)
		if kinds[e.Kind] = true; len(kinds) == 2 {
			break
		}
	}
	must(t, s.Close())
}

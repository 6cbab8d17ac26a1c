package translate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/internal/era"
	"mcpwire/internal/translate"
	"mcpwire/mcp"
	"mcpwire/server"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// house is a server with some of everything.
func house(revisions ...mcp.Revision) *server.Server {
	srv := server.New("house", "1", &server.Options{Revisions: revisions, Instructions: "knock", Tasks: &server.TaskOptions{PollInterval: time.Second}})
	type none struct{}
	must(server.AddTool(srv, "add", "", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil }))
	must(server.AddTool(srv, "fail", "", func(context.Context, none) (int, error) { return 0, errors.New("it went wrong") }))
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
		return res.Action + string(res.Content), nil
	}))
	must(server.AddTool(srv, "page", "", func(ctx context.Context, _ none) (string, error) {
		res, err := server.CallOf(ctx).ElicitURL(ctx, "page", "Look", "https://example.com/x")
		if err != nil {
			return "", err
		}
		return res.Action, nil
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
	must(server.AddToolWith(srv, mcp.Tool{Name: "slow", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportRequired}}, slow))
	must(server.AddResource(srv, mcp.Resource{URI: "x:a", Name: "a"}, server.Static("this is a")))
	must(server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "y:{id}", Name: "y"}, func(_ context.Context, vars server.Vars) (string, error) { return vars.Get("id"), nil }))
	must(server.AddPrompt(srv, mcp.Prompt{Name: "p"}, func(_ context.Context, in struct {
		Who string `json:"who"`
	}) (string, error) {
		return "greet " + in.Who, nil
	}, server.CompleteFrom("who", "alice", "bob")))
	return srv
}

func slow(ctx context.Context, in struct {
	Ask  bool `json:"ask,omitempty"`
	Fail bool `json:"fail,omitempty"`
}) (string, error) {
	if in.Fail {
		return "", errors.New("it went wrong")
	}
	if in.Ask {
		roots, err := server.CallOf(ctx).Roots(ctx, "roots")
		if err != nil {
			return "", err
		}
		return roots[0].URI, nil
	}
	select {
	case <-time.After(3 * time.Second):
		return "done", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// guest is what the client of a test can do.
func guest(revision mcp.Revision) client.Options {
	return client.Options{
		Revisions: []mcp.Revision{revision}, Tasks: true, ElicitModes: client.ElicitForm | client.ElicitURL,
		Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			if p.URL != "" {
				return &mcp.ElicitResult{Action: "accept"}, nil
			}
			return &mcp.ElicitResult{Action: "accept", Content: json.RawMessage(`{"name":"x"}`)}, nil
		},
		Sample: func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: []mcp.ContentBlock{mcp.TextContent{Text: "x"}}}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///r", Name: "r"}}, nil },
	}
}

// TestAcross has each legacy revision talk to the modern one, in both directions, with all features.
func TestAcross(t *testing.T) {
	sets := openSchemas(t)
	for _, revision := range mcp.Revisions() {
		if revision.Modern() {
			continue
		}
		for _, modern := range []bool{false, true} {
			near, far := revision, mcp.LatestRevision
			if modern {
				near, far = far, near
			}
			t.Run(near.String()+" to "+far.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := house(far)
					opts := guest(near)
					var logs []string
					opts.OnNotification = func(method string, params json.RawMessage) {
						if method == mcp.NotificationMessage {
							logs = append(logs, string(params))
						}
					}
					var tr translate.Translator = translate.NewLegacyToModern(nil)
					if modern {
						tr = translate.NewModernToLegacy(nil)
					}
					held := newRules()
					observe := held.observe
					if sets != nil {
						schemas := newChecker(t, sets, modern)
						observe = func(o translate.Out, in string) {
							held.observe(o, in)
							schemas.observe(o, in)
						}
					}
					c, _ := bridged(t, tr, srv, opts, observe)
					defer held.report(t, "tools/unknown", "lifecycle/version-differs") // the test calls one, and each side speaks what it speaks
					if c.ServerInfo().Name != "house" || c.Instructions() != "knock" {
						t.Errorf("got %+v, %q", c.ServerInfo(), c.Instructions())
					}
					acrossBasics(t, c)
					acrossAsks(t, c, era.Of(revision))
					acrossChanges(t, c, srv)
					acrossCancel(t, c)
					if revision == mcp.Revision20251125 {
						acrossTasks(t, c)
					}
					var withLog []client.CallOption
					if modern {
						withLog = append(withLog, client.WithLog(mcp.LevelInfo, func(mcp.LoggingMessageNotificationParams) {}))
					} else if err := c.SetLevel(t.Context(), mcp.LevelInfo); err != nil {
						t.Error(err)
					}
					logs = nil
					if _, err := client.CallTool[string](t.Context(), c, "steps", nil, withLog...); err != nil {
						t.Error(err)
					}
					synctest.Wait()
					if len(logs) != 3 {
						t.Errorf("got %d log messages: %q", len(logs), logs)
					}
					if requests, held := tr.InFlight(); held != 0 || requests > 1 {
						t.Errorf("%d requests and %d held calls are left", requests, held)
					}
				})
			})
		}
	}
}

func acrossBasics(t *testing.T, c *client.Client) {
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
	if diff := cmp.Diff("add fail steps form page think hang slow x:a y:{id} p", strings.ReplaceAll(strings.Join(names, " "), "<nil>", "")); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	if n, err := client.CallTool[int](ctx, c, "add", map[string]int{"A": 40, "B": 2}); n != 42 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if r, err := c.CallTool(ctx, "fail", nil); err != nil || !r.IsError {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := c.CallTool(ctx, "unknown", nil); !client.IsPeer(err) {
		t.Errorf("got %v", err)
	}
	var seen []float64
	got, err := client.CallTool[string](ctx, c, "steps", nil, client.WithProgress(func(p mcp.ProgressNotificationParams) { seen = append(seen, p.Progress) }))
	if err != nil || got != "done" || !slices.Equal(seen, []float64{1, 2, 3}) {
		t.Errorf("got %q, %v, progress %v", got, err, seen)
	}
	if r, err := c.ReadResource(ctx, "x:a"); err != nil || len(r.Contents) != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := c.ReadResource(ctx, "x:z"); !client.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if p, err := c.Prompt(ctx, "p", map[string]string{"who": "you"}); err != nil || len(p.Messages) != 1 {
		t.Errorf("got %+v, %v", p, err)
	}
	done, err := c.Complete(ctx, mcp.PromptReference{Name: "p"}, mcp.CompleteArgument{Name: "who", Value: "al"}, nil)
	if err != nil || !cmp.Equal(done.Values, []string{"alice"}) {
		t.Errorf("got %v, %v", done, err)
	}
	if err := c.Ping(ctx); err != nil {
		t.Error(err)
	}
}

func acrossAsks(t *testing.T, c *client.Client, legacy *era.Features) {
	t.Helper()
	for _, tt := range []struct {
		tool, want string
		can        bool
	}{
		{"form", `accept{"name":"x"}`, legacy.Elicitation},
		{"page", "accept", legacy.URLElicitation},
		{"think", "mfile:///r", true},
	} {
		got, err := client.CallTool[string](t.Context(), c, tt.tool, nil)
		switch {
		case tt.can && (err != nil || got != tt.want):
			t.Errorf("%s: got %q, %v", tt.tool, got, err)
		case !tt.can && err == nil:
			t.Errorf("%s: got %q, want an error", tt.tool, got)
		}
	}
}

func acrossChanges(t *testing.T, c *client.Client, srv *server.Server) {
	t.Helper()
	filter := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x:a"}}
	sub, err := c.Listen(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filter, sub.Accepted()); diff != "" {
		t.Errorf("honoured (-want +got):\n%s", diff)
	}
	synctest.Wait()
	next := func() client.Event {
		for e, err := range sub.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		return client.Event{}
	}
	srv.ListsChanged()
	if e := next(); e.Kind != client.ToolsListChanged {
		t.Errorf("got %v", e)
	}
	srv.ResourceUpdated("x:b")
	srv.ResourceUpdated("x:a")
	if e := next(); e != (client.Event{Kind: client.ResourceUpdated, URI: "x:a"}) {
		t.Errorf("got %v", e)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

func acrossCancel(t *testing.T, c *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.CallTool(ctx, "hang", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	synctest.Wait()
}

func acrossTasks(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	if got, err := client.CallTool[string](ctx, c, "slow", nil); got != "done" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := client.CallTool[string](ctx, c, "slow", map[string]bool{"ask": true}); got != "file:///r" || err != nil {
		t.Errorf("with a question: got %q, %v", got, err)
	}
	_, err := client.CallTool[string](ctx, c, "slow", map[string]bool{"fail": true})
	if failed, ok := errors.AsType[*client.ToolError](err); !ok || !strings.Contains(failed.Error(), "it went wrong") {
		t.Errorf("failing: got %v", err)
	}
	task, err := c.StartTool(ctx, "slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := c.Task(task.ID()).Poll(ctx); err != nil || state.Status != mcp.TaskStatusWorking {
		t.Errorf("got %+v, %v", state, err)
	}
	if err := task.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := task.Wait(ctx); !errors.Is(err, client.ErrTaskCanceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

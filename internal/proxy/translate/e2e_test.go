package translate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/client"
	"mcpwire/internal/era"
	"mcpwire/internal/proxy/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// fullServer returns a server with tools, resources, a prompt and tasks.
func fullServer(revisions ...mcp.Revision) *server.Server {
	srv := server.MustNew("s", "1", &server.Options{Revisions: revisions, Instructions: "instructions", Tasks: &server.TaskOptions{PollInterval: time.Second}})
	type none struct{}
	must(server.AddTool(srv, "add", "", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil }))
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
	must(server.AddTool(srv, "page", "", func(ctx context.Context, _ none) (string, error) {
		res, err := server.CallOf(ctx).ElicitURL(ctx, "page", "Look", "https://example.com/x")
		if err != nil {
			return "", err
		}
		return string(res.Action), nil
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
		return "", errors.New("internal failure")
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

// fullClientOptions returns the options of a client with all capabilities.
func fullClientOptions(revision mcp.Revision) client.Options {
	return client.Options{
		Revisions: []mcp.Revision{revision}, Tasks: true, Input: client.InputOptions{
			ElicitModes: []mcp.ElicitMode{mcp.ElicitModeForm, mcp.ElicitModeURL},
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
		},
	}
}

// TestEraPairs checks all features between each legacy revision and the modern one, in both
// directions.
func TestEraPairs(t *testing.T) {
	sets := openSchemas(t)
	for _, revision := range mcp.Revisions() {
		if revision.Modern() {
			continue
		}
		for _, modern := range []bool{false, true} {
			downstream, upstream := revision, mcp.LatestRevision
			if modern {
				downstream, upstream = upstream, downstream
			}
			t.Run(downstream.String()+" to "+upstream.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := fullServer(upstream)
					opts := fullClientOptions(downstream)
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
					found := newRules()
					observe := found.observe
					if sets != nil {
						schemas := newChecker(t, sets, modern)
						observe = func(o translate.Out, in string) {
							found.observe(o, in)
							schemas.observe(o, in)
						}
					}
					c, _ := bridged(t, tr, srv, opts, observe)
					defer found.report(t, "tools/unknown", "lifecycle/version-differs") // the test calls an unknown tool, and the sides have different revisions
					if c.Profile().Server.Name != "s" || c.Profile().Instructions != "instructions" {
						t.Errorf("got %+v, %q", c.Profile().Server, c.Profile().Instructions)
					}
					checkBasics(t, c)
					checkInputs(t, c, era.Of(revision))
					checkChanges(t, c, srv)
					checkCancel(t, c)
					if revision == mcp.Revision20251125 {
						checkTasks(t, c)
					}
					var withLog []client.CallOption
					if modern {
						withLog = append(withLog, client.WithLog(mcp.LevelInfo, func(*mcp.LoggingMessageNotificationParams) {}))
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
					if requests, awaiting := tr.InFlight(); awaiting != 0 || requests > 1 {
						t.Errorf("got %d requests and %d calls that await input, want none", requests, awaiting)
					}
				})
			})
		}
	}
}

func checkBasics(t *testing.T, c *client.Client) {
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
	if _, err := c.CallTool(ctx, "unknown", nil); !client.IsServerError(err) {
		t.Errorf("got %v", err)
	}
	var seen []float64
	got, err := client.CallTool[string](ctx, c, "steps", nil, client.WithProgress(func(p *mcp.ProgressNotificationParams) { seen = append(seen, p.Progress) }))
	if err != nil || got != "done" || !slices.Equal(seen, []float64{1, 2, 3}) {
		t.Errorf("got %q, %v, progress %v", got, err, seen)
	}
	if r, err := c.ReadResource(ctx, "x:a"); err != nil || len(r.Contents) != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := c.ReadResource(ctx, "x:z"); !client.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if p, err := c.GetPrompt(ctx, "p", map[string]string{"who": "you"}); err != nil || len(p.Messages) != 1 {
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

func checkInputs(t *testing.T, c *client.Client, legacy *era.Features) {
	t.Helper()
	for _, tt := range []struct {
		tool, want string
		supported  bool
	}{
		{"form", `accept{"name":"x"}`, legacy.Elicitation},
		{"page", "accept", legacy.URLElicitation},
		{"think", "mfile:///r", true},
	} {
		got, err := client.CallTool[string](t.Context(), c, tt.tool, nil)
		switch {
		case tt.supported && (err != nil || got != tt.want):
			t.Errorf("%s: got %q, %v", tt.tool, got, err)
		case !tt.supported && err == nil:
			t.Errorf("%s: got %q, want an error", tt.tool, got)
		}
	}
}

func checkChanges(t *testing.T, c *client.Client, srv *server.Server) {
	t.Helper()
	filter := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x:a"}}
	sub, err := c.Listen(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filter, sub.Accepted()); diff != "" {
		t.Errorf("honored (-want +got):\n%s", diff)
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

func checkCancel(t *testing.T, c *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.CallTool(ctx, "hang", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	synctest.Wait()
}

func checkTasks(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	if got, err := client.CallTool[string](ctx, c, "slow", nil); got != "done" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := client.CallTool[string](ctx, c, "slow", map[string]bool{"ask": true}); got != "file:///r" || err != nil {
		t.Errorf("with an input request: got %q, %v", got, err)
	}
	_, err := client.CallTool[string](ctx, c, "slow", map[string]bool{"fail": true})
	if failed, ok := errors.AsType[*client.ToolError](err); !ok || !strings.Contains(failed.Error(), "internal failure") {
		t.Errorf("failed task: got %v", err)
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
		t.Errorf("canceled task: got %v", err)
	}
}

// A pump drives a translator between two pipes, as a bridge over stdio does.
type pump struct {
	mu      sync.Mutex
	t       translate.Translator
	out     [3]chan []byte // by side
	timer   *time.Timer
	observe func(o translate.Out, in string)
	rules   map[string]int
	wg      sync.WaitGroup
}

func newPump(t translate.Translator, downstream, upstream jsonrpc.Framer, observe func(translate.Out, string)) *pump {
	p := &pump{t: t, observe: observe, rules: map[string]int{}}
	for side, f := range map[translate.Side]jsonrpc.Framer{translate.Downstream: downstream, translate.Upstream: upstream} {
		ch := make(chan []byte, 1000)
		p.out[side] = ch
		p.wg.Go(func() {
			for msg := range ch {
				f.WriteFrame(msg)
			}
		})
		p.wg.Go(func() {
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					return
				}
				if observe != nil {
					observe(translate.Out{To: side}, string(frame))
				}
				p.do(func(now time.Time) []translate.Out {
					if side == translate.Downstream {
						return p.t.FromDownstream(now, frame, 0)
					}
					return p.t.FromUpstream(now, frame, 0)
				})
			}
		})
	}
	return p
}

func (p *pump) do(step func(now time.Time) []translate.Out) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range step(time.Now()) {
		p.rules[o.Rule]++
		if p.observe != nil {
			p.observe(o, "")
		}
		if o.To != translate.Dropped && o.Message != nil {
			p.out[o.To] <- o.Message
		}
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	if next := p.t.Next(); !next.IsZero() {
		p.timer = time.AfterFunc(time.Until(next), func() { p.do(p.t.Tick) })
	}
}

// bridged connects a client to a server through a translator, over pipes, until the test ends.
func bridged(t *testing.T, tr translate.Translator, srv *server.Server, opts client.Options, observe func(translate.Out, string)) (*client.Client, *pump) {
	t.Helper()
	clientEnd, downstreamEnd := net.Pipe()
	upstreamEnd, serverEnd := net.Pipe()
	downstream, upstream := jsonrpc.NewFramer(downstreamEnd, nil), jsonrpc.NewFramer(upstreamEnd, nil)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil)) }()
	p := newPump(tr, downstream, upstream, observe)
	t.Cleanup(func() {
		downstream.Close()
		p.do(func(now time.Time) []translate.Out {
			return p.t.Close(now, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "closed"})
		})
		p.mu.Lock()
		if p.timer != nil {
			p.timer.Stop()
		}
		p.mu.Unlock()
		close(p.out[translate.Downstream])
		close(p.out[translate.Upstream])
		upstream.Close()
		<-served
		p.wg.Wait()
	})
	c, err := client.Dial(t.Context(), client.FramerTransport(jsonrpc.NewFramer(clientEnd, nil)), &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, p
}

// rules checks the messages at both sides of a translated session with package check.
type rules struct {
	mu     sync.Mutex
	sides  [3]*check.Checker
	n      [3]uint64
	start  time.Time
	found  map[string]int
	sample map[string]string
}

func newRules() *rules {
	r := &rules{start: time.Now(), found: map[string]int{}, sample: map[string]string{}}
	r.sides[translate.Downstream], r.sides[translate.Upstream] = check.New(nil), check.New(nil)
	return r
}

// observe checks a message of a pump.
func (r *rules) observe(o translate.Out, in string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := in
	if in == "" {
		text = string(o.Message)
	}
	dir := capture.ToServer
	if (o.To == translate.Downstream) == (in == "") {
		dir = capture.ToClient
	}
	if o.To == translate.Dropped || text == "" {
		return
	}
	r.n[o.To]++
	e := &capture.Event{Kind: capture.KindMessage, N: r.n[o.To], T: time.Since(r.start), Dir: dir, Data: []byte(text), Framing: capture.FramingLF}
	r.take(o.To, r.sides[o.To].Add(nil, e), text)
}

func (r *rules) take(side translate.Side, findings []check.Finding, text string) {
	for _, f := range findings {
		key := fmt.Sprintf("%d %s %s: %s", side, f.Rule.Severity, f.Rule.ID, f.Message)
		r.found[key]++
		r.sample[key] = text
	}
}

// report fails the test if there are findings, except for those of the rules in except.
func (r *rules) report(t *testing.T, except ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, side := range []translate.Side{translate.Downstream, translate.Upstream} {
		r.take(side, r.sides[side].Close(), "the end")
	}
	for key, n := range r.found {
		if slices.ContainsFunc(except, func(id string) bool { return strings.Contains(key, " "+id+": ") }) {
			continue
		}
		t.Errorf("%d × %s\n%.300s", n, key, r.sample[key])
	}
}

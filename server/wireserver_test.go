package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// warmCalls are the calls of warm, to tools that neither wait nor send messages.
var warmCalls = []string{
	`"name":"echo","arguments":{"text":"x"}`,
	`"name":"word_count","arguments":{"text":"x"}`,
	`"name":"add","arguments":{"a":1,"b":2}`,
	`"name":"fail"`,
	`"name":"progress","arguments":{"steps":1}`,
	`"name":"log"`,
	`"name":"content"`,
	`"name":"gate","arguments":{"key":"warm"}`,
	`"name":"open","arguments":{"key":"warm"}`,
}

// gates are the gates that the tool gate waits at.
type gates struct {
	mu sync.Mutex
	m  map[string]chan struct{}
}

func (g *gates) at(key string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m[key] == nil {
		g.m[key] = make(chan struct{})
	}
	return g.m[key]
}

func (g *gates) open(key string) {
	gate := g.at(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-gate:
	default:
		close(gate)
	}
}

type (
	textArg struct {
		Text string `json:"text" jsonschema:"the text"`
	}
	keyArg struct {
		Key string `json:"key"`
	}
	addArgs struct {
		A int64 `json:"a"`
		B int64 `json:"b"`
	}
	stepsArg struct {
		Steps int `json:"steps" schema:"minimum=1,maximum=10"`
	}
	weather struct {
		City    string  `json:"city"`
		Celsius float64 `json:"celsius" schema:"minimum=-273.15"`
	}
	empty struct{}
)

// newWireServer returns the server for transcripts, with the named tools, or all tools if none are
// named.
func newWireServer(t testing.TB, opts *server.Options, names []string) *server.Server {
	t.Helper()
	srv := server.MustNew("wire", "1.0", opts)
	register := func(name string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if len(names) > 0 && !slices.Contains(names, name) {
			srv.RemoveTools(name)
		}
	}
	add := func(name string, f func(ctx context.Context, in empty) (*mcp.CallToolResult, error)) {
		t.Helper()
		register(name, server.AddTool(srv, name, "", f))
	}
	yes := true
	g := &gates{m: make(map[string]chan struct{})}
	register("echo", server.AddTool(srv, "echo", "Return the input string unchanged.", func(_ context.Context, in textArg) (string, error) {
		return in.Text, nil
	}))
	register("word_count", server.AddToolWith(srv, mcp.Tool{
		Name: "word_count", Title: "Word count", Description: "Count words in the input string.",
		Annotations: &mcp.ToolAnnotations{Title: "Words", ReadOnlyHint: &yes}, Icons: []mcp.Icon{{Src: "data:,"}}, Meta: json.RawMessage(` {"com.example/x": 1} `),
	}, func(_ context.Context, in textArg) (int, error) { return len(strings.Fields(in.Text)), nil }))
	register("add", server.AddTool(srv, "add", "Add two integers.", func(_ context.Context, in addArgs) (int64, error) { return in.A + in.B, nil }))
	register("weather", server.AddTool(srv, "weather", "", func(_ context.Context, in struct {
		City string `json:"city"`
	}) (weather, error) {
		if in.City == "Void" {
			return weather{in.City, -1000}, nil
		}
		return weather{in.City, 21.5}, nil
	}))
	register("range", server.AddTool(srv, "range", "", func(_ context.Context, in struct {
		N int `json:"n" schema:"minimum=0,maximum=9"`
	}) ([]int, error) {
		var list []int
		for i := range in.N {
			list = append(list, i)
		}
		return list, nil
	}))
	register("gate", server.AddTool(srv, "gate", "Wait until open is called with the same key.", func(ctx context.Context, in keyArg) (string, error) {
		select {
		case <-g.at(in.Key):
			return "open", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}))
	register("open", server.AddTool(srv, "open", "", func(_ context.Context, in keyArg) (string, error) {
		g.open(in.Key)
		return "opened", nil
	}))
	register("progress", server.AddTool(srv, "progress", "", progressTool))
	add("fail", func(context.Context, empty) (*mcp.CallToolResult, error) { return nil, errors.New("disk on fire") })
	add("crash", func(context.Context, empty) (*mcp.CallToolResult, error) { panic(fmt.Errorf("at %v", time.Second)) })
	add("refuse", func(context.Context, empty) (*mcp.CallToolResult, error) {
		return nil, fmt.Errorf("asked: %w", &jsonrpc.Error{Code: 1234, Message: "not today", Data: json.RawMessage("{\n\"retry\": true}")})
	})
	add("content", func(context.Context, empty) (*mcp.CallToolResult, error) { return contentResult(), nil })
	add("log", logTool)
	add("whoami", whoamiTool)
	add("grow", func(context.Context, empty) (*mcp.CallToolResult, error) {
		return nil, server.AddTool(srv, "late", "", func(context.Context, empty) (string, error) { return "here", nil })
	})
	add("shrink", func(context.Context, empty) (*mcp.CallToolResult, error) {
		srv.RemoveTools("late")
		return nil, nil
	})
	register("raw", srv.AddRawTool(mcp.Tool{
		Name: "raw", InputSchema: json.RawMessage(`{ "type": "object", "properties": {"mode": {"enum": ["a", "b"]}}, "required": ["mode"] }`),
	}, func(_ *server.Call, args json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: string(args)}}}, nil
	}))
	return srv
}

func progressTool(ctx context.Context, in stepsArg) (string, error) {
	call := server.CallOf(ctx)
	for i := 1; i <= in.Steps; i++ {
		if err := call.Progress(float64(i)/2, float64(in.Steps)/2, fmt.Sprintf("step %d", i)); err != nil {
			return "", err
		}
	}
	if err := call.Progress(0.5, 0, ""); err == nil {
		return "", errors.New("progress went backwards")
	}
	return "done", nil
}

func logTool(ctx context.Context, _ empty) (*mcp.CallToolResult, error) {
	call := server.CallOf(ctx)
	for level := mcp.LevelDebug; level <= mcp.LevelEmergency; level++ {
		if err := call.Log(level, "wire", map[string]any{"at": level.String()}); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func whoamiTool(ctx context.Context, _ empty) (*mcp.CallToolResult, error) {
	call := server.CallOf(ctx)
	client := call.ClientInfo()
	text := fmt.Sprintf("%s called by %s %s in %v; progress %t, sampling %t, url %t", call.Name(), client.Name, client.Version, call.Revision(),
		call.WantsProgress(), call.ClientHas("sampling"), call.ClientHas("elicitation", "url"))
	return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: text}}}, nil
}

func contentResult() *mcp.CallToolResult {
	half, size := 0.5, int64(3)
	meta := json.RawMessage(`{"com.example/k": [1]}`)
	notes := &mcp.Annotations{Audience: []mcp.Role{mcp.RoleUser}, Priority: &half, LastModified: "2025-01-12T15:00:58Z"}
	return &mcp.CallToolResult{
		Content: []mcp.ContentBlock{
			mcp.TextContent{Text: "line\none", Annotations: notes, Meta: meta},
			&mcp.ImageContent{Data: []byte{1, 2, 3}, MIMEType: "image/png"},
			mcp.AudioContent{Data: []byte("abc"), MIMEType: "audio/wav"},
			mcp.ResourceLink{URI: "file:///a", Name: "a", Title: "A", Size: &size, Icons: []mcp.Icon{{Src: "data:,", MIMEType: "image/png", Sizes: []string{"any"}, Theme: "dark"}}},
			mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "file:///b", MIMEType: "text/plain", Text: "b", Meta: meta}, Meta: meta},
			mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "file:///c", Blob: []byte{}}},
		},
		StructuredContent: json.RawMessage(` {"n": 1} `),
		Meta:              meta,
	}
}

// addAsking adds tools that send input requests.
func addAsking(t testing.TB, srv *server.Server) {
	t.Helper()
	addTool(t, srv, "ask_form", func(c *server.Call) (string, error) {
		a, err := server.Elicit[struct {
			Name string `json:"name" schema:"title=Name,minLength=1"`
			Age  int    `json:"age,omitempty" schema:"minimum=0"`
			Size size   `json:"size,omitempty" schema:"default=M"`
			Mail string `json:"mail,omitempty" schema:"format=email"`
			OK   bool   `json:"ok" schema:"default=true"`
		}](c, "form", "Who?")
		return fmt.Sprint(a.Action, " ", a.Value), err
	})
	addTool(t, srv, "ask_page", func(c *server.Call) (string, error) {
		res, err := c.Elicit(c, "page", &mcp.ElicitRequestParams{Mode: "url", Message: "Log in.", URL: "https://example.com/login", ElicitationID: "e-1"})
		if err != nil {
			return "", err
		}
		srv.ElicitationComplete("e-1")
		return string(res.Action), nil
	})
	addTool(t, srv, "ask_all", func(c *server.Call) (string, error) {
		n, err := server.Once(c, "n", func(context.Context) (int, error) { return 7, nil })
		if err != nil {
			return "", err
		}
		text, err := askAll(c)
		return fmt.Sprint(n, " ", text), err
	})
	addTool(t, srv, "ask_model", func(c *server.Call) (string, error) {
		res, err := c.Sample(c, "model", &mcp.CreateMessageRequestParams{
			MaxTokens: 5, SystemPrompt: "Be brief.", Temperature: new(0.5), StopSequences: []string{"."}, IncludeContext: mcp.IncludeContextNone,
			ModelPreferences: &mcp.ModelPreferences{Hints: []mcp.ModelHint{{Name: "small"}}, SpeedPriority: new(1.0)},
			Messages: []mcp.SamplingMessage{
				says(mcp.RoleUser, mcp.TextContent{Text: "a"}, mcp.ImageContent{Data: []byte("i"), MIMEType: "image/png"}),
				says(mcp.RoleAssistant, mcp.AudioContent{Data: []byte("s"), MIMEType: "audio/wav"}),
			},
		})
		if err != nil {
			return "", err
		}
		return res.Model, nil
	})
	addTool(t, srv, "ask_visit", func(*server.Call) (string, error) { return "", mcp.URLElicitationRequired(pageA) })
}

// must fails the test of a registration that fails.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// addPrimitives adds resources, prompts, and tools that change them.
func addPrimitives(t testing.TB, srv *server.Server) {
	t.Helper()
	addWireResources(t, srv)
	addWireTemplates(t, srv)
	addWirePrompts(t, srv)
	type uriArg struct {
		URI string `json:"uri"`
	}
	change := func(name string, f func() error) {
		must(t, server.AddTool(srv, name, "", func(context.Context, empty) (string, error) { return "done", f() }))
	}
	must(t, server.AddTool(srv, "touch", "", func(_ context.Context, in uriArg) (string, error) {
		srv.ResourceUpdated(in.URI)
		return "done", nil
	}))
	change("plant", func() error {
		return errors.Join(
			server.AddResource(srv, mcp.Resource{URI: "late://one", Name: "late"}, server.Static("here")),
			server.AddPrompt(srv, mcp.Prompt{Name: "late"}, func(context.Context, map[string]string) (string, error) { return "here", nil }))
	})
	change("uproot", func() error {
		srv.RemoveResources("late://one", "late://none")
		srv.RemovePrompts("late", "none")
		return nil
	})
	change("graft", func() error {
		return server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "graft:///{x}", Name: "graft"},
			func(_ context.Context, vars server.Vars) (string, error) { return vars.Get("x"), nil })
	})
	change("prune", func() error {
		srv.RemoveResourceTemplates("graft:///{x}")
		return nil
	})
}

func addWireResources(t testing.TB, srv *server.Server) {
	half, size := 0.5, int64(4)
	meta := json.RawMessage(` {"com.example/k": [1]} `)
	must(t,
		server.AddResource(srv, mcp.Resource{
			URI: "config://app", Name: "config", Title: "Configuration", Description: "How it is set up.", MIMEType: "application/json", Size: &size,
			Annotations: &mcp.Annotations{Audience: []mcp.Role{mcp.RoleUser}, Priority: &half, LastModified: "2025-01-12T15:00:58Z"},
			Icons:       []mcp.Icon{{Src: "data:,", Theme: "dark"}}, Meta: meta, Extra: json.RawMessage(`{"x-unknown":true}`),
		}, server.Static(`{"a":"é"}`)),
		server.AddResource(srv, mcp.Resource{URI: "file:///logo.png", Name: "logo", MIMEType: "image/png"}, server.Static([]byte{0, 1, 0xff})),
		server.AddResource(srv, mcp.Resource{URI: "test://empty", Name: "empty"}, server.Static([]byte(nil))),
		server.AddResource(srv, mcp.Resource{URI: "test://many", Name: "many", MIMEType: "text/plain"}, server.Static([]mcp.ResourceContents{
			{Text: "first"}, {URI: "test://many/2", Blob: []byte("second")}, {URI: "test://many/3", MIMEType: "text/html", Text: "<i>third</i>", Meta: meta},
		})),
		server.AddResource(srv, mcp.Resource{URI: "test://kept", Name: "kept"}, func(context.Context) (*mcp.ReadResourceResult, error) {
			kept := server.CacheFor("kept", time.Minute, mcp.CacheScopePublic)
			kept.Meta = meta
			return kept, nil
		}),
		server.AddResource(srv, mcp.Resource{URI: "test://none", Name: "none"}, server.Static([]mcp.ResourceContents{})),
		server.AddResource(srv, mcp.Resource{URI: "test://nil", Name: "nil"}, server.Static[*mcp.ReadResourceResult](nil)),
	)
	fails := map[string]error{
		"gone": fmt.Errorf("the disk says: %w", server.ErrNotFound), "secret": errors.New("password is 1234"), "refuse": &jsonrpc.Error{Code: 1234, Message: "not today"},
		"old": &jsonrpc.Error{Code: mcp.CodeResourceNotFound, Message: "an old way to say it"},
	}
	for _, name := range []string{"gone", "secret", "refuse", "old"} {
		must(t, server.AddResource(srv, mcp.Resource{URI: "test://" + name, Name: name}, func(context.Context) (string, error) { return "", fails[name] }))
	}
	must(t, server.AddResource(srv, mcp.Resource{URI: "test://crash", Name: "crash"}, func(context.Context) (string, error) { panic(errors.New("boom")) }))
	bad := []mcp.ReadResourceResult{
		{Contents: []mcp.ResourceContents{{URI: "not a URI"}}}, {Contents: []mcp.ResourceContents{{Meta: json.RawMessage("[]")}}},
		{Contents: []mcp.ResourceContents{{}}, CacheScope: "friends"}, {Contents: []mcp.ResourceContents{{}}, Meta: json.RawMessage("1")},
		{Contents: []mcp.ResourceContents{{}}, Extra: json.RawMessage("[")},
	}
	for i := range bad {
		must(t, server.AddResource(srv, mcp.Resource{URI: fmt.Sprintf("test://bad/%d", i), Name: "bad"}, server.Static(&bad[i])))
	}
}

func addWireTemplates(t testing.TB, srv *server.Server) {
	tables := []string{"users", "orders", "Usage"}
	must(t,
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{
			URITemplate: "db:///{table}/{id}", Name: "row", Title: "Row", Description: "A row.", MIMEType: "text/plain", Icons: []mcp.Icon{{Src: "data:,"}},
			Annotations: &mcp.Annotations{Audience: []mcp.Role{mcp.RoleAssistant}}, Meta: json.RawMessage(`{"a":1}`),
		}, func(ctx context.Context, vars server.Vars) (string, error) {
			if vars.Get("table") == "none" {
				return "", server.ErrNotFound
			}
			return fmt.Sprintf("%s: %q %q %q", server.CallOf(ctx).Name(), vars.Get("table"), vars.Get("id"), vars.Get("nothing")), nil
		}, server.CompleteFrom("table", tables...), server.Complete("id", completeID)),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "db:///users/{id}", Name: "user"},
			func(_ context.Context, vars server.Vars) (string, error) { return "user " + vars.Get("id"), nil }),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "db:///{+everything}", Name: "rest"},
			func(_ context.Context, vars server.Vars) (string, error) {
				return "rest " + vars.Get("everything"), nil
			}),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "search:///all{/kind*}{?q,tag*}", Name: "search"},
			func(_ context.Context, vars server.Vars) (string, error) {
				return fmt.Sprintf("%q %q %q", vars["kind"], vars["q"], vars["tag"]), nil
			}),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "file:///docs/{+path}", Name: "docs", MIMEType: "text/x-docs"}, server.Files(fstest.MapFS{
			"a.html": {Data: []byte("<p>")}, "b/c": {Data: []byte{0xff}}, "b/d e": {Data: []byte("deep")},
		})),
		// This template matches too, but a registered resource has precedence.
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "config:{+x}", Name: "other"},
			func(context.Context, server.Vars) (string, error) { return "from the template", nil }),
	)
}

// completeID suggests ids in a table.
func completeID(ctx context.Context, req server.CompleteRequest) (mcp.Completion, error) {
	switch req.Arguments["table"] {
	case "":
		return mcp.Completion{Values: []string{req.URITemplate, req.Argument, req.Value, server.CallOf(ctx).Name()}}, nil
	case "bad":
		return mcp.Completion{}, errors.New("password is 1234")
	case "worse":
		return mcp.Completion{Extra: json.RawMessage("[")}, nil
	case "few":
		total := int64(1e6)
		return mcp.Completion{Values: []string{"1"}, Total: &total, HasMore: true, Extra: json.RawMessage(`{"x":1}`)}, nil
	}
	return mcp.Completion{Values: numbers(101)}, nil
}

func numbers(n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

type reviewArgs struct {
	Language string     `json:"language" jsonschema:"of the code" schema:"enum=go|rust|Ruby,title=Language"`
	Style    string     `json:"style" jsonschema:"how to say it" schema:"default=kind"`
	Focus    *string    `json:"focus"`
	Since    *time.Time `json:"since,omitempty"`
}

func addWirePrompts(t testing.TB, srv *server.Server) {
	must(t,
		server.AddPrompt(srv, mcp.Prompt{Name: "hello", Title: "Hello", Description: "Says hello.", Icons: []mcp.Icon{{Src: "data:,"}}, Meta: json.RawMessage(`{"a":1}`)},
			func(context.Context, struct{}) (string, error) { return "Say hello.", nil }),
		server.AddPrompt(srv, mcp.Prompt{Name: "review", Description: "Reviews code."}, func(_ context.Context, in reviewArgs) (*mcp.GetPromptResult, error) {
			text := fmt.Sprintf("Review %s in a %s way.", in.Language, in.Style)
			if in.Focus != nil {
				text += " Look at " + *in.Focus + "."
			}
			if in.Since != nil {
				text += fmt.Sprintf(" Since %d.", in.Since.Year())
			}
			return &mcp.GetPromptResult{Description: "Review of " + in.Language, Messages: []mcp.PromptMessage{{Role: mcp.RoleAssistant, Content: &mcp.TextContent{Text: text}}}, Meta: json.RawMessage(`{"a": 1}`)}, nil
		}, server.CompleteFrom("style", "kind", "keen", "harsh")),
		server.AddPrompt(srv, mcp.Prompt{Name: "plain", Arguments: []mcp.PromptArgument{
			{Name: "a", Title: "A", Description: "the first", Required: true}, {Name: "b", Required: true}, {Name: "c d"},
		}}, func(_ context.Context, in map[string]string) (string, error) { return fmt.Sprintf("%q", in), nil },
			server.Complete("a", func(context.Context, server.CompleteRequest) ([]string, error) { return numbers(250), nil }),
			server.Complete("b", func(_ context.Context, req server.CompleteRequest) ([]string, error) {
				return []string{req.Prompt, req.Argument, req.Value, fmt.Sprint(req.Arguments)}, nil
			})),
		server.AddPrompt(srv, mcp.Prompt{Name: "gallery"}, func(context.Context, struct{}) ([]mcp.PromptMessage, error) { return gallery(), nil }),
		server.AddPrompt(srv, mcp.Prompt{Name: "secret"}, func(context.Context, struct{}) (string, error) { return "", errors.New("password is 1234") }),
		server.AddPrompt(srv, mcp.Prompt{Name: "refuse"}, func(context.Context, struct{}) (string, error) {
			return "", &jsonrpc.Error{Code: 1234, Message: "not today"}
		}),
		server.AddPrompt(srv, mcp.Prompt{Name: "nil"}, func(context.Context, struct{}) (*mcp.GetPromptResult, error) { return nil, nil }),
		server.AddPrompt(srv, mcp.Prompt{Name: "silent"}, func(context.Context, struct{}) ([]mcp.PromptMessage, error) { return nil, nil }),
	)
}

// gallery returns a message of each kind.
func gallery() []mcp.PromptMessage {
	size := int64(3)
	var list []mcp.PromptMessage
	for _, c := range []mcp.ContentBlock{
		mcp.TextContent{Text: "text", Annotations: &mcp.Annotations{LastModified: "2025-01-12T15:00:58Z"}, Meta: json.RawMessage(`{"a":1}`)},
		&mcp.ImageContent{Data: []byte{1, 2, 3}, MIMEType: "image/png"},
		mcp.AudioContent{Data: []byte("abc"), MIMEType: "audio/wav"},
		mcp.ResourceLink{URI: "file:///a", Name: "a", Title: "A", Size: &size},
		mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "file:///b", Text: "b"}},
		mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "file:///c", Blob: []byte("c"), MIMEType: "image/gif"}},
	} {
		list = append(list, mcp.PromptMessage{Content: c})
	}
	return list
}

// warmPrimitives reads resources and prompts until the server knows that they are fast.
func warmPrimitives(t *testing.T, srv *server.Server) {
	t.Helper()
	f := &feed{}
	for i := range 40 {
		for _, request := range []string{
			`"resources/read","params":{"uri":"config://app"`, `"resources/read","params":{"uri":"db:///users/1"`, `"prompts/get","params":{"name":"hello"`,
			`"completion/complete","params":{"ref":{"type":"ref/prompt","name":"review"},"argument":{"name":"language","value":""}`,
		} {
			f.frames = append(f.frames, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%s,"_meta":{%s}}}`, i, request, modernMeta))
		}
	}
	must(t, srv.Serve(context.Background(), f))
}

// names returns the names of the items in a list.
func names(t testing.TB, result, list, member string) []string {
	t.Helper()
	var page map[string]json.RawMessage
	var items []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(result), &page); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(page[list], &items); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	found := []string{}
	for _, item := range items {
		found = append(found, strings.Trim(string(item[member]), `"`))
	}
	return slices.Clip(found)
}

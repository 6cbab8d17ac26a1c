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
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// warmCalls are the calls that warm makes, of tools that neither wait nor say anything besides.
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

// gates are what the tool gate waits at.
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

// newWireServer returns the server that transcripts are played against, with the named tools or, if there are none, all.
func newWireServer(t testing.TB, opts *server.Options, names []string) *server.Server {
	t.Helper()
	srv := server.New("wire", "1.0", opts)
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

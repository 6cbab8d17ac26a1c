package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// must fails the test of a registration that fails.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// addPrimitives gives the server of transcripts resources, prompts, and tools that change them.
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
		// It would fit, but a registered resource comes first.
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

// gallery has a message of each kind.
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

// warmPrimitives has the server learn that its resources and prompts are quick.
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

// names returns the members of that name in a list.
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

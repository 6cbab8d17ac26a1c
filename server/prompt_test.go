package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

func noPrompt[In any](context.Context, In) (string, error) { return "", nil }

func TestPromptRegistrationErrors(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	must(t, server.AddPrompt(srv, mcp.Prompt{Name: "taken"}, noPrompt[struct{}]))
	if err := server.AddPrompt(srv, mcp.Prompt{Name: "taken"}, noPrompt[struct{}]); !errors.Is(err, server.ErrDuplicate) {
		t.Errorf("twice: %v", err)
	}
	args := []mcp.PromptArgument{{Name: "a"}}
	add := func(def mcp.Prompt, complete ...server.Completer) error {
		def.Name = "p"
		return server.AddPrompt(srv, def, noPrompt[map[string]string], complete...)
	}
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"no name", server.AddPrompt(srv, mcp.Prompt{}, noPrompt[struct{}]), `prompt "": it needs a name`},
		{"no function", server.AddPrompt[struct{}, string](srv, mcp.Prompt{Name: "p"}, nil), `prompt "p": it needs a function`},
		{"a number", server.AddPrompt(srv, mcp.Prompt{Name: "p"}, noPrompt[struct{ N int }]), `prompt "p": argument "N": it must be a string or implement encoding.TextUnmarshaler`},
		{"a list", server.AddPrompt(srv, mcp.Prompt{Name: "p"}, noPrompt[struct{ N []string }]), `prompt "p": argument "N": it must be a string or implement encoding.TextUnmarshaler`},
		{"anything", server.AddPrompt(srv, mcp.Prompt{Name: "p"}, noPrompt[struct{ N any }]), `prompt "p": argument "N": it must be a string or implement encoding.TextUnmarshaler`},
		{"a channel", server.AddPrompt(srv, mcp.Prompt{Name: "p"}, noPrompt[struct{ N chan int }]), `prompt "p": schema: `},
		{"a string", server.AddPrompt(srv, mcp.Prompt{Name: "p"}, noPrompt[string]), `prompt "p": string: its input must be a struct`},
		{"a map", server.AddPrompt(srv, mcp.Prompt{Name: "p"}, noPrompt[map[string]any]), `prompt "p": map[string]interface {}: its input must be a struct`},
		{"both", server.AddPrompt(srv, mcp.Prompt{Name: "p", Arguments: args}, noPrompt[struct{ A string }]), `prompt "p": its arguments come from the type of its input`},
		{"an argument without a name", add(mcp.Prompt{Arguments: []mcp.PromptArgument{{}}}), `prompt "p": argument 1: it needs a unique name, not ""`},
		{"two of a name", add(mcp.Prompt{Arguments: append(args, args...)}), `prompt "p": argument 2: it needs a unique name, not "a"`},
		{"meta", add(mcp.Prompt{Meta: json.RawMessage("1")}), `prompt "p": _meta must be a JSON object`},
		{"extra", add(mcp.Prompt{Extra: json.RawMessage("1")}), `prompt "p": members in Extra: it must be a JSON object`},
		{"extra of an argument", add(mcp.Prompt{Arguments: []mcp.PromptArgument{{Name: "a", Extra: json.RawMessage("{")}}}), `prompt "p": members in Extra: invalid JSON`},
		{"a completer for an unknown argument", add(mcp.Prompt{Arguments: args}, server.CompleteFrom("b")), `prompt "p": arguments: no "b" for a completer`},
		{"two completers", add(mcp.Prompt{Arguments: args}, server.CompleteFrom("a"), server.CompleteFrom("a")), `prompt "p": arguments: "a" has two completers`},
		{"no completer", add(mcp.Prompt{Arguments: args}, server.Complete[[]string]("a", nil)), `prompt "p": arguments: "a": its completer needs a function`},
	} {
		if tt.err == nil || !strings.HasPrefix(tt.err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, tt.err, tt.want)
		}
	}
	if got := names(t, connect(t, srv, modern).must("prompts/list", "{}"), "prompts", "name"); len(got) != 1 {
		t.Errorf("%q are listed, although only one registration is valid", got)
	}
}

// Spec: S150 S151 S152 S153
func TestPromptOutput(t *testing.T) {
	png := []byte{1}
	message := func(c mcp.ContentBlock) *mcp.GetPromptResult {
		return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{{Content: mcp.TextContent{Text: "first"}}, {Content: c}}}
	}
	resource := func(r mcp.ResourceContents) *mcp.GetPromptResult { return message(mcp.EmbeddedResource{Resource: r}) }
	for _, tt := range []struct {
		name string
		out  *mcp.GetPromptResult
		want string // the invalid part
	}{
		{"fine", message(mcp.ImageContent{Data: png, MIMEType: "image/svg+xml; charset=utf-8"}), ""},
		{"nil content", message(nil), "messages[1]: content block is nil"},
		{"nil pointer", message((*mcp.TextContent)(nil)), "messages[1]: content block is nil"},
		{"image without a type", message(mcp.ImageContent{Data: png}), `messages[1]: "" is not a MIME type, such as image/png`},
		{"image with a bad type", message(&mcp.ImageContent{Data: png, MIMEType: "png"}), `messages[1]: "png" is not a MIME type, such as image/png`},
		{"sound with a bad type", message(mcp.AudioContent{Data: png, MIMEType: "audio/ wav"}), `messages[1]: "audio/ wav" is not a MIME type, such as image/png`},
		{"link without a URI", message(mcp.ResourceLink{URI: "x", Name: "n"}), "messages[1]: it must be a URI that begins with a scheme"},
		{"resource without a URI", resource(mcp.ResourceContents{Text: "x"}), "messages[1]: it must be a URI that begins with a scheme"},
		{"resource with a bad type", resource(mcp.ResourceContents{URI: "a:b", Text: "x", MIMEType: "x"}), `messages[1]: "x" is not a MIME type, such as image/png`},
		{"bad metadata", resource(mcp.ResourceContents{URI: "a:b", Meta: json.RawMessage("1")}), "messages[1]: _meta must be a JSON object"},
		{"use of a tool", message(mcp.ToolUseContent{ID: "1", Name: "x", Input: json.RawMessage("{}")}), "messages[1]: mcp.ToolUseContent is for sampling only"},
		{"result of a tool", message(&mcp.ToolResultContent{ToolUseID: "1"}), "messages[1]: mcp.ToolResultContent is for sampling only"},
		{"role", &mcp.GetPromptResult{Messages: []mcp.PromptMessage{{Role: "system", Content: mcp.TextContent{}}}}, `messages[0]: role "system": it must be "user" or "assistant"`},
		{"extra of a message", &mcp.GetPromptResult{Messages: []mcp.PromptMessage{{Content: mcp.TextContent{}, Extra: json.RawMessage("x")}}}, "messages[0]: members in Extra: invalid JSON"},
		{"extra", &mcp.GetPromptResult{Extra: json.RawMessage("[]")}, "members in Extra: it must be a JSON object"},
		{"metadata", &mcp.GetPromptResult{Meta: json.RawMessage("[]")}, "_meta must be a JSON object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := server.MustNew("test", "1", nil)
			must(t, server.AddPrompt(srv, mcp.Prompt{Name: "p"}, func(context.Context, struct{}) (*mcp.GetPromptResult, error) { return tt.out, nil }))
			_, err := connect(t, srv, modern).call(t.Context(), "prompts/get", `{"name":"p"}`)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "prompts/get of p: invalid result: "+tt.want)):
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// TestPromptOutputIsNotChanged shows that the server does not modify the handler's result when it
// adds members.
func TestPromptOutputIsNotChanged(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	kept := &mcp.GetPromptResult{Messages: []mcp.PromptMessage{{Content: &mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "a:b", Blob: []byte("x")}}}}}
	read := &mcp.ReadResourceResult{Contents: []mcp.ResourceContents{{Text: "x"}}}
	must(t, server.AddPrompt(srv, mcp.Prompt{Name: "p", Description: "D"}, func(context.Context, struct{}) (*mcp.GetPromptResult, error) { return kept, nil }),
		server.AddResource(srv, mcp.Resource{URI: "a:b", Name: "n", MIMEType: "text/plain"}, server.Static(read)))
	c := connect(t, srv, modern)
	got := c.must("prompts/get", `{"name":"p"}`)
	for _, want := range []string{`"description":"D"`, `"role":"user"`, `"mimeType":"application/octet-stream"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	c.must("resources/read", `{"uri":"a:b"}`)
	if kept.Description != "" || kept.Messages[0].Role != "" || kept.Messages[0].Content.(*mcp.EmbeddedResource).Resource.MIMEType != "" {
		t.Errorf("the prompt's result was changed: %+v", kept)
	}
	if diff := cmp.Diff(&mcp.ReadResourceResult{Contents: []mcp.ResourceContents{{Text: "x"}}}, read); diff != "" {
		t.Errorf("the resource's result was changed (-want +got):\n%s", diff)
	}
}

// Spec: S120 S156
func TestPromptViews(t *testing.T) {
	srv, as := viewed(t)
	must(t,
		server.AddPrompt(srv, mcp.Prompt{Name: "secret"}, noPrompt[struct {
			A string `schema:"enum=x|y"`
		}]),
		server.AddPrompt(srv, mcp.Prompt{Name: "open"}, noPrompt[struct {
			A string `schema:"enum=x|y"`
		}]),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:{x}", Name: "n"}, func(context.Context, server.Vars) (string, error) { return "", nil }, server.CompleteFrom("x", "y")))
	c := as("prompt open")
	if got := names(t, c.must("prompts/list", "{}"), "prompts", "name"); !cmp.Equal(got, []string{"open"}) {
		t.Errorf("%q are listed", got)
	}
	for _, tt := range []struct {
		method, params string
		visible        bool
	}{
		{"prompts/get", `{"name":"open","arguments":{"A":"x"}}`, true},
		{"prompts/get", `{"name":"secret","arguments":{"A":"x"}}`, false},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"open"},"argument":{"name":"A","value":""}}`, true},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"secret"},"argument":{"name":"A","value":""}}`, false},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"a:{x}"},"argument":{"name":"x","value":""}}`, false},
	} {
		_, err := c.call(t.Context(), tt.method, tt.params)
		if tt.visible != (err == nil) || !tt.visible && (code(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), "unknown")) {
			t.Errorf("%s %s: %v", tt.method, tt.params, err)
		}
	}
}

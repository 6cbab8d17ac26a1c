package matrix

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

type review struct {
	Language string `json:"language" jsonschema:"of the code" schema:"title=Language,enum=go|gherkin|rust"`
	Style    string `json:"style,omitempty"`
}

// newPromptServer returns a server with prompts and a template, with completions for both.
func newPromptServer(func()) *server.Server {
	srv := server.MustNew("prompts", "1", nil)
	must(
		server.AddPrompt(srv, fullPrompt(), func(_ context.Context, in review) (*mcp.GetPromptResult, error) {
			if in.Style == "rude" {
				return nil, errors.New("a secret")
			}
			return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{
				{Content: mcp.TextContent{Text: "Review this " + in.Language + ", " + in.Style}},
				{Role: mcp.RoleAssistant, Content: mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "lib://a", Text: "A"}}},
			}}, nil
		}, server.Complete("style", func(_ context.Context, req server.CompleteRequest) ([]string, error) {
			return []string{req.Value + "!", fmt.Sprint(len(req.Arguments), req.Arguments["language"])}, nil
		})),
		server.AddPrompt(srv, mcp.Prompt{Name: "map", Arguments: []mcp.PromptArgument{{Name: "city", Required: true}, {Name: "zoom"}}},
			func(_ context.Context, args map[string]string) (string, error) {
				return args["city"] + args["zoom"], nil
			}),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "lib://{row}", Name: "row"},
			func(context.Context, server.Vars) (string, error) { return "", nil },
			server.Complete("row", func(context.Context, server.CompleteRequest) (mcp.Completion, error) {
				return mcp.Completion{Values: []string{"7"}, Total: new(int64(9)), HasMore: true}, nil
			})),
		server.AddPrompt(srv, mcp.Prompt{Name: "many"}, func(context.Context, struct {
			N string `json:"n"`
		}) (string, error) {
			return "", nil
		}, server.Complete("n", func(context.Context, server.CompleteRequest) (all []string, err error) {
			for i := range 150 {
				all = append(all, fmt.Sprint(i))
			}
			return all, nil
		})),
	)
	return srv
}

func fullPrompt() mcp.Prompt {
	return mcp.Prompt{Name: "review", Title: "Review", Description: "Have code reviewed.", Icons: []mcp.Icon{{Src: "https://example.com/r.png"}}}
}

func TestPrompts(t *testing.T) {
	testBehaviors(t, "prompts", []behavior{
		// Spec: S129
		{name: "the definition of a prompt in the revision", test: func(s *subtest) {
			want := fullPrompt()
			want.Arguments = []mcp.PromptArgument{{Name: "language", Title: "Language", Description: "of the code", Required: true}, {Name: "style"}}
			if !s.Titles {
				want.Title, want.Arguments[0].Title = "", ""
			}
			if !s.Icons {
				want.Icons = nil
			}
			var names []string
			for p, err := range s.client().Prompts(s.Context()) {
				ok(s, "list", err)
				if names = append(names, p.Name); p.Name == "review" {
					same(s, "prompt", p, want)
				}
			}
			same(s, "names", names, []string{"review", "map", "many"})
		}},
		{name: "the messages of a prompt", test: func(s *subtest) {
			res, err := s.client().GetPrompt(s.Context(), "review", map[string]string{"language": "go", "style": "kind"})
			ok(s, "prompt", err)
			same(s, "description", res.Description, "Have code reviewed.")
			same(s, "messages", res.Messages, []mcp.PromptMessage{
				{Role: mcp.RoleUser, Content: mcp.TextContent{Text: "Review this go, kind"}},
				{Role: mcp.RoleAssistant, Content: mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "lib://a", MIMEType: "text/plain", Text: "A"}}},
			})
			res, err = s.client().GetPrompt(s.Context(), "map", map[string]string{"city": "Oslo"})
			ok(s, "map", err)
			same(s, "map", res.Messages, []mcp.PromptMessage{{Role: mcp.RoleUser, Content: mcp.TextContent{Text: "Oslo"}}})
		}},
		// Spec: S153
		{name: "invalid arguments", test: func(s *subtest) {
			for _, tt := range []struct {
				prompt string
				args   map[string]string
				// names is the text that the message must contain.
				names string
			}{
				{"review", nil, "language"},
				{"review", map[string]string{"language": "cobol"}, "language"},
				{"review", map[string]string{"language": "go", "color": "red"}, "color"},
				{"map", map[string]string{"zoom": "3"}, "city"},
				{"atlas", nil, "atlas"},
			} {
				_, err := s.client().GetPrompt(s.Context(), tt.prompt, tt.args)
				if e := wantError(s, tt.prompt, err, jsonrpc.CodeInvalidParams); !strings.Contains(e.Message, tt.names) {
					s.Errorf("%s %v: got %s, want %s in it", tt.prompt, tt.args, e.Message, tt.names)
				}
			}
		}},
		{name: "the text of an internal error is not sent", test: func(s *subtest) {
			_, err := s.client().GetPrompt(s.Context(), "review", map[string]string{"language": "go", "style": "rude"})
			if e := wantError(s, "prompt", err, jsonrpc.CodeInternalError); strings.Contains(e.Error()+string(e.Data), "secret") {
				s.Errorf("got %v", e)
			}
		}},
		{name: "completions from a list of values", test: func(s *subtest) {
			s.checkCompletion(mcp.PromptReference{Name: "review"}, "language", "g", nil, mcp.Completion{Values: []string{"go", "gherkin"}, Total: new(int64(2))})
			s.checkCompletion(mcp.PromptReference{Name: "review"}, "language", "x", nil, mcp.Completion{Values: []string{}, Total: new(int64(0))})
		}},
		{name: "completions that depend on other arguments", when: since(mcp.Revision20250618), test: func(s *subtest) {
			s.checkCompletion(mcp.PromptReference{Name: "review"}, "style", "k", map[string]string{"language": "go"},
				mcp.Completion{Values: []string{"k!", "1go"}, Total: new(int64(2))})
		}, instead: func(s *subtest) { // the arguments are not sent
			s.checkCompletion(mcp.PromptReference{Name: "review"}, "style", "k", map[string]string{"language": "go"},
				mcp.Completion{Values: []string{"k!", "0"}, Total: new(int64(2))})
		}},
		{name: "completions for a template", test: func(s *subtest) {
			s.checkCompletion(mcp.ResourceTemplateReference{URI: "lib://{row}"}, "row", "", nil, mcp.Completion{Values: []string{"7"}, Total: new(int64(9)), HasMore: true})
		}},
		{name: "more completions than the limit", test: func(s *subtest) {
			got, err := s.client().Complete(s.Context(), mcp.PromptReference{Name: "many"}, mcp.CompleteArgument{Name: "n"}, nil)
			ok(s, "complete", err)
			if len(got.Values) != 100 || *got.Total != 150 || !got.HasMore {
				s.Errorf("got %d of %d, more: %v", len(got.Values), *got.Total, got.HasMore)
			}
		}},
		// Spec: S154
		{name: "completions of unknown arguments", test: func(s *subtest) {
			for _, tt := range []struct {
				ref  mcp.Reference
				name string
			}{
				{mcp.PromptReference{Name: "atlas"}, "city"},
				{mcp.PromptReference{Name: "review"}, "color"},
				{mcp.ResourceTemplateReference{URI: "lib://{col}"}, "col"},
			} {
				_, err := s.client().Complete(s.Context(), tt.ref, mcp.CompleteArgument{Name: tt.name}, nil)
				wantError(s, tt.name, err, jsonrpc.CodeInvalidParams)
			}
		}},
	})
}

func (s *subtest) checkCompletion(ref mcp.Reference, name, typed string, known map[string]string, want mcp.Completion) {
	s.Helper()
	got, err := s.client().Complete(s.Context(), ref, mcp.CompleteArgument{Name: name, Value: typed}, known)
	ok(s, "complete", err)
	same(s, "completion of "+name, *got, want)
}

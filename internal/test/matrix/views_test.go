package matrix

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// newViewServer returns a server that hides its secrets from all users. The user "librarian" can
// reveal them with a tool.
func newViewServer(func()) *server.Server {
	var open atomic.Bool
	public := server.NewView(func(_ server.Kind, name string) bool { return !strings.Contains(name, "secret") })
	srv := server.MustNew("views", "1", &server.Options{View: func(_ context.Context, principal string) *server.View {
		if principal == "librarian" && open.Load() {
			return nil
		}
		return public
	}})
	for _, name := range []string{"open", "secret"} {
		must(
			server.AddTool(srv, name, "", func(ctx context.Context, _ struct{}) (string, error) {
				call := server.CallOf(ctx)
				if call.Name() == "open" {
					open.Store(true)
					srv.ListsChanged("librarian")
				}
				return server.PrincipalID(call), nil
			}),
			server.AddResource(srv, mcp.Resource{URI: "lib://" + name, Name: name}, server.Static(name)),
			server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: name + "://{x}", Name: name},
				func(context.Context, server.Vars) (string, error) { return name, nil }, server.CompleteFrom("x", "y")),
			server.AddPrompt(srv, mcp.Prompt{Name: name}, func(context.Context, struct {
				X string `json:"x,omitempty"`
			}) (string, error) {
				return name, nil
			}, server.CompleteFrom("x", "y")),
		)
	}
	return srv
}

// listed returns the names of all items in a client's lists.
func (s *subtest) listed(c *client.Client) (names []string) {
	s.Helper()
	for v, err := range c.Tools(s.Context()) {
		ok(s, "tools", err)
		names = append(names, "tool "+v.Name)
	}
	for v, err := range c.Resources(s.Context()) {
		ok(s, "resources", err)
		names = append(names, "resource "+v.Name)
	}
	for v, err := range c.ResourceTemplates(s.Context()) {
		ok(s, "templates", err)
		names = append(names, "template "+v.Name)
	}
	for v, err := range c.Prompts(s.Context()) {
		ok(s, "prompts", err)
		names = append(names, "prompt "+v.Name)
	}
	slices.Sort(names)
	return names
}

// useSecrets uses each hidden item, and returns the errors.
func (s *subtest) useSecrets(c *client.Client) map[string]error {
	errs := map[string]error{}
	_, errs["tool"] = c.CallTool(s.Context(), "secret", nil)
	_, errs["resource"] = c.ReadResource(s.Context(), "lib://secret")
	_, errs["template"] = c.ReadResource(s.Context(), "secret://x")
	_, errs["prompt"] = c.GetPrompt(s.Context(), "secret", nil)
	_, errs["completion of a prompt"] = c.Complete(s.Context(), mcp.PromptReference{Name: "secret"}, mcp.CompleteArgument{Name: "x"}, nil)
	_, errs["completion of a template"] = c.Complete(s.Context(), mcp.ResourceTemplateReference{URI: "secret://{x}"}, mcp.CompleteArgument{Name: "x"}, nil)
	return errs
}

func TestViews(t *testing.T) {
	public := []string{"prompt open", "resource open", "template open", "tool open"}
	all := []string{"prompt open", "prompt secret", "resource open", "resource secret", "template open", "template secret", "tool open", "tool secret"}
	testBehaviors(t, "views", []behavior{
		// Spec: S120 S132
		{name: "hidden items are unknown in lists and calls", test: func(s *subtest) {
			c := s.client()
			s.call(c, "open", nil)
			same(s, "lists", s.listed(c), public)
			for what, err := range s.useSecrets(c) {
				code := jsonrpc.CodeInvalidParams
				if !s.Modern && (what == "resource" || what == "template") {
					code = mcp.CodeResourceNotFound
				}
				e := wantError(s, what, err, code)
				if strings.Contains(strings.ToLower(e.Message), "hidden") {
					s.Errorf("%s: got %v, want an error that does not reveal the item", what, e)
				}
			}
			sub := s.listen(c, mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"lib://secret", "lib://open"}})
			same(s, "accepted resources", sub.Accepted().ResourceSubscriptions, []string{"lib://open"})
		}},
		{name: "a view can change", test: func(s *subtest) {
			c := s.dialAs("librarian", nil)
			sub := s.listen(c, mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true})
			same(s, "lists", s.listed(c), public)
			same(s, "principal", s.call(c, "open", nil), "librarian")
			notified := map[client.EventKind]bool{}
			for range 3 {
				notified[s.next(sub).Kind] = true
			}
			same(s, "notifications", notified, map[client.EventKind]bool{client.ToolsListChanged: true, client.PromptsListChanged: true, client.ResourcesListChanged: true})
			same(s, "lists", s.listed(c), all)
			for what, err := range s.useSecrets(c) {
				ok(s, what, err)
			}
		}},
		{name: "hidden and unknown tools have the same error", test: func(s *subtest) {
			c := s.client()
			_, hidden := c.CallTool(s.Context(), "secret", nil)
			_, none := c.CallTool(s.Context(), "nothin", nil)
			same(s, "message", strings.ReplaceAll(wantError(s, "hidden", hidden, jsonrpc.CodeInvalidParams).Message, "secret", "nothin"),
				wantError(s, "none", none, jsonrpc.CodeInvalidParams).Message)
		}},
	})
}

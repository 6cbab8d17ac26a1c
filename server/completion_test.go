package server_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

const completeA = `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"x"}}`

// TestCompletionAppears shows that completion/complete exists as soon as there is a completer.
func TestCompletionAppears(t *testing.T) {
	for _, revision := range append(legacyRevisions(), modern) {
		srv := server.MustNew("test", "1", nil)
		must(t, server.AddPrompt(srv, mcp.Prompt{Name: "p"}, noPrompt[struct {
			A string `json:"a"`
		}]))
		c := connect(t, srv, revision)
		if _, err := c.call(t.Context(), "completion/complete", completeA); code(err) != jsonrpc.CodeMethodNotFound {
			t.Errorf("%s, without completers: %v", revision, err)
		}
		must(t, server.AddPrompt(srv, mcp.Prompt{Name: "q"}, noPrompt[struct {
			B string `json:"b" schema:"enum=x"`
		}]))
		srv.RemovePrompts("q")
		if got, err := c.call(t.Context(), "completion/complete", completeA); !strings.HasPrefix(got, `{"completion":{"values":[],"total":0}`) {
			t.Errorf("%s, after its completer was removed: %s, %v", revision, got, err)
		}
	}
}

// TestCompletionEnum shows that a completer replaces the one that an enum provides.
func TestCompletionEnum(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	must(t, server.AddPrompt(srv, mcp.Prompt{Name: "p"}, noPrompt[struct {
		A string  `json:"a" schema:"enum=x1|x2"`
		B *string `json:"b" schema:"enum=y1|y2"`
	}], server.CompleteFrom("a", "x3", "X4", "z")))
	c := connect(t, srv, modern)
	for params, want := range map[string]string{completeA: `["x3","X4"]`, strings.NewReplacer(`"a"`, `"b"`, `"x"`, `""`).Replace(completeA): `["y1","y2"]`} {
		if got := c.must("completion/complete", params); !strings.Contains(got, `"values":`+want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Spec: S157
func TestCompletionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", &server.Options{Limits: server.Limits{HandlerTimeout: time.Minute}})
		must(t, server.AddPrompt(srv, mcp.Prompt{Name: "p", Arguments: []mcp.PromptArgument{{Name: "a"}}}, noPrompt[map[string]string],
			server.Complete("a", func(ctx context.Context, _ server.CompleteRequest) ([]string, error) {
				<-ctx.Done()
				return []string{"secret"}, ctx.Err()
			})))
		got, err := connect(t, srv, modern).call(t.Context(), "completion/complete", completeA)
		if code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "timed out") {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

package mcptest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

func TestConnect(t *testing.T) {
	for _, r := range mcp.Revisions() {
		t.Run(r.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := mcptest.Connect(t, newWords(t), &client.Options{Revisions: []mcp.Revision{r}})
				if got := c.Revision(); got != r {
					t.Errorf("the client speaks %v, want %v", got, r)
				}
				if got, err := client.CallTool[int](t.Context(), c, "word_count", map[string]any{"text": "a b c"}); got != 3 || err != nil {
					t.Errorf("got %d, %v", got, err)
				}
			})
		})
	}
}

func TestConnectFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := failures(t, func(t testing.TB) {
			mcptest.Connect(t, serverFunc(func(context.Context, jsonrpc.Framer) error { return nil }), nil)
			t.Error("the test went on")
		})
		if len(got) != 1 || !strings.HasPrefix(got[0], "dial the server under test: ") {
			t.Errorf("failures %q", got)
		}
	})
}

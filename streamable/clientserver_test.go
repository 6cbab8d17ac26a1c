package streamable_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// TestClientOfOurServer: the two halves of this package, in each revision.
func TestClientOfOurServer(t *testing.T) {
	s := server.New("test", "1", nil)
	type in struct {
		Name string `json:"name"`
	}
	server.AddTool(s, "greet", "greets", func(ctx context.Context, a in) (string, error) { return "hello " + a.Name, nil })
	h := streamable.NewHandler(s, nil)
	web := httptest.NewServer(h)
	defer web.Close()
	defer h.Shutdown(t.Context())
	for _, r := range mcp.Revisions() {
		t.Run(r.String(), func(t *testing.T) {
			c, err := client.Dial(t.Context(), streamable.Dial(web.URL+"/mcp", nil), &client.Options{Revisions: []mcp.Revision{r}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if text, err := client.CallTool[string](t.Context(), c, "greet", in{"you"}); text != "hello you" {
				t.Errorf("CallTool = %q, %v", text, err)
			}
			if c.Revision() != r {
				t.Errorf("revision %v, want %v", c.Revision(), r)
			}
		})
	}
}

package demo

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
)

// TestTestTools calls the tools in both eras.
func TestTestTools(t *testing.T) {
	for _, r := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		t.Run(r.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testTestTools(t, r) }) })
	}
}

func testTestTools(t *testing.T, r mcp.Revision) {
	srv, err := New("1", &server.Options{Tasks: new(server.TaskOptions)})
	if err != nil {
		t.Fatal(err)
	}
	if err := AddTestTools(srv, "n1"); err != nil {
		t.Fatal(err)
	}
	c := mcptest.Connect(t, srv, &client.Options{
		Revisions: []mcp.Revision{r},
		Input: client.InputOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"name":"Ada"}`)}, nil
		}},
		Tasks: true,
	})
	for _, call := range []struct{ tool, args, want string }{
		{"node", `{}`, "n1"},
		{"work", `{"id":"a"}`, `{"node":"n1","id":"a","runs":1}`},
		{"work", `{"id":"a","ms":1}`, `{"node":"n1","id":"a","runs":2}`},
		{"job", `{"id":"a"}`, `{"node":"n1","id":"a","runs":3}`},
		{"greet", `{"text":"hello"}`, "hello, Ada, says n1"},
		{"runs", `{"id":"a"}`, `{"node":"n1","id":"a","runs":3}`},
		{"add_tool", `{"name":"x"}`, "added"},
		{"added_x", `{"text":"y"}`, "y"},
		{"remove_tool", `{"name":"x"}`, "removed"},
		{"set_note", `{"text":"z"}`, "changed"},
	} {
		res, err := c.CallTool(t.Context(), call.tool, json.RawMessage(call.args))
		if err != nil {
			t.Fatalf("%s: %v", call.tool, err)
		}
		if diff := cmp.Diff(call.want, res.Content[0].(mcp.TextContent).Text); diff != "" {
			t.Errorf("%s (-want +got):\n%s", call.tool, diff)
		}
	}
	note, err := c.ReadResource(t.Context(), noteURI)
	if err != nil || note.Contents[0].Text != "z" {
		t.Errorf("note: %+v, %v", note, err)
	}
}

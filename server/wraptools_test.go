package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
	"mcpwire/server"
)

var errTeapot = errors.New("teapot")

// TestWrapTools shows what functions around tools see and change, in both eras.
func TestWrapTools(t *testing.T) {
	type in struct {
		N int `json:"n"`
	}
	for _, revision := range []string{modern, "2025-11-25", "2024-11-05"} {
		var log []string
		srv := server.MustNew("test", "1", &server.Options{Tasks: &server.TaskOptions{}})
		wraps := 0
		logged := func(label string) func(server.ToolFunc) server.ToolFunc {
			return func(next server.ToolFunc) server.ToolFunc {
				wraps++
				return func(c *server.Call, args json.RawMessage) (*mcp.CallToolResult, error) {
					res, err := next(c, args)
					text := ""
					if res != nil {
						text = fmt.Sprintf("%v%d%s", res.IsError, len(res.Content), res.StructuredContent)
					}
					log = append(log, fmt.Sprintf("%s %s %s %s %v", label, c.Name(), args, text, errors.Is(err, errTeapot)))
					return res, err
				}
			}
		}
		srv.WrapTools(logged("outer"))
		srv.WrapTools(func(next server.ToolFunc) server.ToolFunc {
			return func(c *server.Call, args json.RawMessage) (*mcp.CallToolResult, error) {
				switch string(args) {
				case `{"n":1}`:
					args = json.RawMessage(`{"n":10}`)
				case `{"n":2}`:
					return nil, errors.New("not today")
				case `{"n":3}`:
					args = json.RawMessage(`{"n":"x"}`)
				}
				res, err := next(c, args)
				if res != nil && string(args) == `{"n":4}` {
					res.Content = append(res.Content, mcp.TextContent{Text: "more"})
				}
				return res, err
			}
		}, logged("inner"))
		err := errors.Join(
			server.AddTool(srv, "t", "", func(_ context.Context, in in) (map[string]int, error) {
				if in.N == 5 {
					return nil, fmt.Errorf("sorry: %w", errTeapot)
				}
				return map[string]int{"n": in.N}, nil
			}),
			server.AddTool(srv, "bad", "", func(context.Context, struct{}) (badJSON, error) { return badJSON{}, nil }),
		)
		if err != nil {
			t.Fatal(err)
		}
		c := connect(t, srv, revision)
		structured := func(text string) string {
			if revision == "2024-11-05" {
				return ""
			}
			return text
		}
		for _, tt := range []struct {
			args string
			want result
			log  []string
		}{
			{`{"n":0}`, result{Text: `{"n":0}`, Structured: structured(`{"n":0}`)}, []string{`inner t {"n":0} false1` + structured(`{"n":0}`) + ` false`, `outer t {"n":0} false1` + structured(`{"n":0}`) + ` false`}},
			{`{"n":1}`, result{Text: `{"n":10}`, Structured: structured(`{"n":10}`)}, []string{`inner t {"n":10} false1` + structured(`{"n":10}`) + ` false`, `outer t {"n":1} false1` + structured(`{"n":10}`) + ` false`}},
			{`{"n":2}`, result{Text: "not today", IsError: true}, []string{`outer t {"n":2}  false`}},
			{`{"n":3}`, result{Text: `arguments.n: expected integer, got string "x"`, IsError: true}, []string{`inner t {"n":"x"} true1 false`, `outer t {"n":3} true1 false`}},
			{`{"n":4}`, result{Text: `{"n":4}|more`, Structured: structured(`{"n":4}`)}, []string{`inner t {"n":4} false1` + structured(`{"n":4}`) + ` false`, `outer t {"n":4} false2` + structured(`{"n":4}`) + ` false`}},
			{`{"n":5}`, result{Text: "sorry: teapot", IsError: true}, []string{`inner t {"n":5}  true`, `outer t {"n":5}  true`}},
		} {
			log = nil
			got, err := c.result("t", tt.args)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%s %s: %v (-want +got):\n%s", revision, tt.args, err, diff)
			}
			if diff := cmp.Diff(tt.log, log); diff != "" {
				t.Errorf("%s %s: log (-want +got):\n%s", revision, tt.args, diff)
			}
		}
		if _, err := c.result("bad", "{}"); err == nil || !strings.Contains(err.Error(), "-32603") {
			t.Errorf("%s: invalid output: %v", revision, err)
		}
		if wraps != 2 {
			t.Errorf("%d functions were wrapped, want 2 once", wraps)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("WrapTools after Serve did not panic")
				}
			}()
			srv.WrapTools(logged("late"))
		}()
	}
}

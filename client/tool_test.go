package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// text returns the JSON text of a text block.
func text(s string) string { return `{"type":"text","text":` + quoted(s) + `}` }

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// A point is an output type.
type point struct {
	X    int    `json:"x"`
	Y    int    `json:"y"`
	Name string `json:"name,omitempty"`
}

// call returns the outcome of CallTool in a comparable form.
func call[Out any](ctx context.Context, c *Client) (any, error) {
	return CallTool[Out](ctx, c, "tool", nil)
}

// TestMalformedParts checks that a malformed item or block costs itself only, and is logged.
func TestMalformedParts(t *testing.T) {
	for _, revision := range []string{legacyDate, modernDate} {
		var log strings.Builder
		good := tool("good", "")
		srv := newFake(t, revision, `{"tools":{},"prompts":{},"resources":{}}`, map[string]answerer{
			"tools/list":     says(`{"tools":[{"name":"bad"},` + good + `],"ttlMs":60000,"cacheScope":"private"}`),
			"prompts/list":   says(`{"prompts":[{"name":"p"},{"name":"bad","arguments":[{}]}]}`),
			"resources/read": says(`{"contents":[{"uri":"a:b","text":"t"},{"uri":"bad"}]}`),
			"prompts/get":    says(`{"messages":[{"role":"user","content":{"type":"text"}},{"role":"user","content":` + text("m") + `}]}`),
			"tools/call":     says(`{"content":[{"type":"image","mimeType":"bad","data":"data:"},` + text("a") + `,{"type":"text","text":4},` + text("b") + `]}`),
		})
		c := srv.dial(&Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		var got []string
		note := func(what string, err error) {
			if err != nil {
				t.Errorf("%s: %v", revision, err)
			}
			got = append(got, what)
		}
		for range 2 { // the second time, a modern client has a cached list
			list, err := collectAll(c.Tools(t.Context()))
			note(strings.Join(toolNames(list), " "), err)
		}
		prompts, err := collectAll(c.Prompts(t.Context()))
		note(prompts[0].Name, err)
		contents, err := c.ReadResource(t.Context(), "a:b")
		note(fmt.Sprint(len(contents.Contents), contents.Contents[0].Text), err)
		messages, err := c.GetPrompt(t.Context(), "p", nil)
		note(fmt.Sprint(len(messages.Messages), messages.Messages[0].Content), err)
		result, err := c.CallTool(t.Context(), "good", nil)
		note(fmt.Sprint(result.Content), err)
		all, err := CallTool[string](t.Context(), c, "good", nil)
		note(all, err)
		want := []string{"good", "good", "p", "1t", fmt.Sprint(1, mcp.TextContent{Text: "m"}), fmt.Sprint([]mcp.ContentBlock{mcp.TextContent{Text: "a"}, mcp.TextContent{Text: "b"}}), "a\nb"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", revision, diff)
		}
		lists := 2
		if revision == modernDate {
			lists = 1
		}
		if n := strings.Count(log.String(), "left out"); n != lists+1+1+1+2+2 {
			t.Errorf("%s: got %d lines:\n%s", revision, n, &log)
		}

		srv.answers["tools/call"] = says(`{"content":[{"type":"text"}]}`)
		if _, err := CallTool[string](t.Context(), c, "good", nil); err == nil || !strings.Contains(err.Error(), "content[0].text: missing") {
			t.Errorf("%s: a result without a good block: got %v", revision, err)
		}
	}
}

// Spec: C12
func TestCallToolOutput(t *testing.T) {
	structured := func(s string) string { return `{"content":[],"structuredContent":` + s + `}` }
	content := func(blocks ...string) string { return `{"content":[` + strings.Join(blocks, ",") + `]}` }
	type caller = func(context.Context, *Client) (any, error)
	for _, tt := range []struct {
		name   string
		result string
		call   caller
		want   any
		err    string // part of the error's text
	}{
		{"int", structured(`3`), call[int], 3, ""},
		{"struct", structured(`{"x":1,"y":-2}`), call[point], point{X: 1, Y: -2}, ""},
		{"pointer", structured(`{"x":1,"y":-2}`), call[*point], &point{X: 1, Y: -2}, ""},
		{"unknown members", structured(`{"x":1,"z":{"deep":[1]},"y":2}`), call[point], point{X: 1, Y: 2}, ""},
		{"slice", structured(`[{"x":1,"y":2,"more":1}]`), call[[]point], []point{{X: 1, Y: 2}}, ""},
		{"map", structured(`{"a":1}`), call[map[string]float64], map[string]float64{"a": 1}, ""},
		{"any", structured(`{"a":[null]}`), call[any], map[string]any{"a": []any{nil}}, ""},
		{"null", structured(`null`), call[*point], (*point)(nil), ""},
		{"null for a struct", structured(`null`), call[point], point{}, `tool "tool": not a result for Go's client.point: result: expected object, got null`},
		{"missing member", structured(`{"x":1}`), call[point], point{}, `result: missing required property "y"`},
		{"wrong type", structured(`{"x":"1","y":2}`), call[point], point{}, `result.x: expected integer, got string "1"`},
		{"no type", structured(`1`), call[func()], nil, "func"},

		{"int in text", content(text(" 3\n")), call[int], 3, ""},
		{"struct in text", content(text(`{"x":1,"y":2,"z":3}`)), call[point], point{X: 1, Y: 2}, ""},
		{"structured content has precedence", `{"content":[` + text("4") + `],"structuredContent":3}`, call[int], 3, ""},
		{"prose", content(text("three")), call[int], 0, "neither structured content"},
		{"nothing", content(), call[int], 0, "neither structured content"},
		{"two texts", content(text("1"), text("2")), call[int], 0, "neither structured content"},

		{"string", content(text("a"), `{"type":"image","data":"AA==","mimeType":"image/png"}`, text("b\"ü")), call[string], "a\nb\"ü", ""},
		{"string beside structured content", `{"content":[` + text("4") + `],"structuredContent":3}`, call[string], "4", ""},
		{"string without text", content(), call[string], "", ""},
		{"structured string", structured(`"a\u0062"`), call[string], "ab", ""},
		{"raw", structured(`{"x": 1e400}`), call[json.RawMessage], json.RawMessage(`{"x": 1e400}`), ""},
		{"raw text", content(text(`[1]`)), call[json.RawMessage], json.RawMessage(`[1]`), ""},
		{"raw text that is not JSON", content(text(`hm`)), call[json.RawMessage], json.RawMessage(nil), "neither structured content"},
		{"blocks", content(text("a"), text("b")), call[[]mcp.ContentBlock], []mcp.ContentBlock{mcp.TextContent{Text: "a"}, mcp.TextContent{Text: "b"}}, ""},
		{"result", structured(`3`), call[mcp.CallToolResult], mcp.CallToolResult{Content: []mcp.ContentBlock{}, StructuredContent: json.RawMessage("3")}, ""},
		{"pointer to a result", content(text("a")), call[*mcp.CallToolResult], &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: "a"}}}, ""},
		{"without content", `{"structuredContent":3}`, call[int], 3, ""},

		{"no result", `{"tools":[]}`, call[int], 0, "the server violated the protocol: the result has no content"},
		{"content of another type", `{"content":{}}`, call[int], 0, "the server violated the protocol: the result has no content"},
		{"malformed content", content(`{"type":"text"}`), call[*mcp.CallToolResult], (*mcp.CallToolResult)(nil), "the server violated the protocol: malformed result: content[0]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, revision := range []string{modernDate, legacyDate} {
				c := newFake(t, revision, `{}`, map[string]answerer{"tools/call": says(tt.result)}).dial(nil)
				got, err := tt.call(t.Context(), c)
				if fmt.Sprint(err) != "<nil>" && tt.err == "" || !strings.Contains(fmt.Sprint(err), tt.err) {
					t.Errorf("%s: error: got %v, want %q", revision, err, tt.err)
				}
				if _, isFunc := got.(func()); !isFunc && !cmp.Equal(got, tt.want) {
					t.Errorf("%s: got %#v, want %#v", revision, got, tt.want)
				}
			}
		})
	}
}

func TestCallToolArguments(t *testing.T) {
	for _, tt := range []struct {
		name string
		args any
		want string // arguments on the wire
		err  string
	}{
		{"none", nil, `{}`, ""},
		{"map", map[string]any{"b": 1, "a": "<&>"}, `{"a":"<&>","b":1}`, ""},
		{"nil map", map[string]any(nil), `{}`, ""},
		{"struct", point{X: 1}, `{"x":1,"y":0}`, ""},
		{"pointer", &point{X: 1}, `{"x":1,"y":0}`, ""},
		{"nil pointer", (*point)(nil), `{}`, ""},
		{"raw", json.RawMessage(" {\"a\" :\n 1e400} "), `{"a":1e400}`, ""},
		{"no raw", json.RawMessage(nil), `{}`, ""},
		{"raw null", json.RawMessage("null"), `{}`, ""},
		{"raw that is not JSON", json.RawMessage(`{"a"}`), "", `tool "tool": arguments: invalid JSON`},
		{"array", []int{1}, "", "they must be a JSON object"},
		{"raw array", json.RawMessage("[]"), "", "they must be a JSON object"},
		{"number", 1, "", "they must be a JSON object"},
		{"no JSON", func() {}, "", "unsupported type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newFake(t, modernDate, `{}`, map[string]answerer{"tools/call": says(`{"content":[]}`)})
			c := s.dial(nil)
			_, err := c.CallTool(t.Context(), "tool", tt.args)
			var want []string
			if tt.err == "" {
				want = []string{`tools/call {"name":"tool","arguments":` + tt.want + `}`}
			}
			if fmt.Sprint(err) != "<nil>" && tt.err == "" || !strings.Contains(fmt.Sprint(err), tt.err) {
				t.Errorf("error: got %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(want, s.takeSeen()); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
		})
	}
}

func TestToolError(t *testing.T) {
	long := strings.Repeat("é", maxErrorText)
	for _, tt := range []struct {
		content, want string
	}{
		{`[` + text("no such city") + `]`, `tool "tool" failed: no such city`},
		{`[` + text("one") + `,{"type":"image","data":"AA==","mimeType":"image/png"},` + text("two ") + `]`, "tool \"tool\" failed: one\ntwo"},
		{`[]`, `tool "tool" failed: no reason given`},
		{`[` + text("x"+long) + `]`, `tool "tool" failed: x` + long[:maxErrorText-2] + `…`},
	} {
		c := newFake(t, modernDate, `{}`, map[string]answerer{"tools/call": says(`{"content":` + tt.content + `,"isError":true,"structuredContent":1}`)}).dial(nil)
		result, err := c.CallTool(t.Context(), "tool", nil)
		if err != nil || !result.IsError {
			t.Errorf("method: got %+v, %v, want the unchanged result", result, err)
		}
		n, err := CallTool[int](t.Context(), c, "tool", nil)
		failed, ok := errors.AsType[*ToolError](err)
		if n != 0 || !ok || failed.Tool != "tool" || !cmp.Equal(failed.Result, result) {
			t.Fatalf("function: got %d, %#v", n, err)
		}
		if failed.Error() != tt.want {
			t.Errorf("got %.100q, want %.100q", failed.Error(), tt.want)
		}
		if IsServerError(err) {
			t.Error("the tool's failure counts as a JSON-RPC error")
		}
	}
}

// tools returns a ListToolsResult.
func tools(list ...string) string {
	return `{"resultType":"complete","tools":[` + strings.Join(list, ",") + `],"ttlMs":0,"cacheScope":"private"}`
}

func tool(name, more string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}%s}`, name, more)
}

// TestCallToolAgain shows that a tool's annotations decide whether a call is repeated.
//
// Spec: C88
func TestCallToolAgain(t *testing.T) {
	for _, tt := range []struct {
		name, tool string
		list       bool
		opts       []CallOption
		want       int // number of calls if the server is trusted
	}{
		{"unknown", tool("tool", `,"annotations":{"readOnlyHint":true}`), false, nil, 1},
		{"no annotations", tool("tool", ""), true, nil, 1},
		{"annotations are false", tool("tool", `,"annotations":{"readOnlyHint":false,"idempotentHint":false,"destructiveHint":false}`), true, nil, 1},
		{"read-only", tool("tool", `,"annotations":{"readOnlyHint":true}`), true, nil, 2},
		{"idempotent", tool("tool", `,"annotations":{"idempotentHint":true}`), true, nil, 2},
		{"annotations of another tool", tool("other", `,"annotations":{"readOnlyHint":true}`), true, nil, 1},
		{"WithRetry(true)", tool("tool", ""), false, []CallOption{WithRetry(true)}, 2},
		{"WithRetry(false)", tool("tool", `,"annotations":{"readOnlyHint":true}`), true, []CallOption{WithRetry(false)}, 1},
	} {
		for _, trusted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, trusted %t", tt.name, trusted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newFake(t, modernDate, `{}`, nil)
					s.answers = map[string]answerer{
						"tools/list": says(tools(tt.tool)),
						"tools/call": inTurn(func(ctx context.Context, _ string) (string, error) {
							go s.crash()
							<-ctx.Done()
							return "", ctx.Err()
						}, says(`{"content":[]}`)),
					}
					c := s.dial(&Options{Retry: RetryPolicy{IgnoreHints: !trusted}})
					if tt.list {
						known(t, c)
					}
					want := tt.want
					if !trusted && tt.opts == nil {
						want = 1
					}
					_, err := c.CallTool(t.Context(), "tool", nil, tt.opts...)
					if n := s.times("tools/call"); n != want || (err == nil) != (n == 2) {
						t.Errorf("called %d times, error %v, want %d times", n, err, want)
					}
					if err != nil && !errors.Is(err, jsonrpc.ErrClosed) {
						t.Errorf("got %v, want that the connection was closed", err)
					}
				})
			})
		}
	}
}

// Spec: C19 C20 C21 C22
func TestOutputValidation(t *testing.T) {
	positive := `,"outputSchema":{"type":"integer","minimum":1}`
	for _, tt := range []struct {
		name, tool, result string
		list               bool
		opts               Options
		err                string
	}{
		{"fits", tool("tool", positive), `{"content":[],"structuredContent":1}`, true, Options{}, ""},
		{"does not fit", tool("tool", positive), `{"content":[],"structuredContent":0}`, true, Options{},
			`the result of tool "tool" does not match its output schema: structuredContent: expected a number of at least 1, got 0`},
		{"null", tool("tool", positive), `{"content":[],"structuredContent":null}`, true, Options{},
			`the result of tool "tool" does not match its output schema: structuredContent: expected integer, got null`},
		{"is missing", tool("tool", positive), `{"content":[]}`, true, Options{}, "the result has no structured content"},
		{"is missing, but the tool failed", tool("tool", positive), `{"content":[],"isError":true}`, true, Options{}, ""},
		{"tools not listed", tool("tool", positive), `{"content":[],"structuredContent":0}`, false, Options{}, ""},
		{"no schema", tool("tool", ""), `{"content":[],"structuredContent":0}`, true, Options{}, ""},
		{"validation disabled", tool("tool", positive), `{"content":[],"structuredContent":0}`, true, Options{NoOutputValidation: true}, ""},
		{"an unknown keyword", tool("tool", `,"outputSchema":{"prefixItems":[{"const":1}],"items":false}`), `{"content":[],"structuredContent":[1,2]}`, true, Options{}, "does not match its output schema"},
		{"a remote reference", tool("tool", `,"outputSchema":{"$ref":"https://example.com/schema.json"}`), `{"content":[],"structuredContent":0}`, true, Options{}, ""},
		{"another dialect", tool("tool", `,"outputSchema":{"$schema":"http://json-schema.org/draft-04/schema#","type":"string"}`), `{"content":[],"structuredContent":0}`, true, Options{}, ""},
		{"another dialect, with an engine", tool("tool", `,"outputSchema":{"$schema":"http://json-schema.org/draft-04/schema#","minimum":0,"exclusiveMinimum":true}`),
			`{"content":[],"structuredContent":0}`, true, Options{SchemaEngine: fullschema.Engine}, "does not match its output schema"},
		{"an invalid schema", tool("tool", `,"outputSchema":{"type":"no such type"}`), `{"content":[],"structuredContent":0}`, true, Options{}, ""},
		{"an unknown keyword, with an engine", tool("tool", `,"outputSchema":{"$ref":"https://example.com/schema.json"}`), `{"content":[],"structuredContent":0}`, true,
			Options{SchemaEngine: func([]byte) (func([]byte) error, error) {
				return func(text []byte) error { return fmt.Errorf("the engine has seen %s", text) }, nil
			}}, "the engine has seen 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newFake(t, modernDate, `{}`, map[string]answerer{"tools/list": says(tools(tt.tool)), "tools/call": says(tt.result)})
			c := s.dial(&tt.opts)
			if tt.list {
				if _, err := c.ListTools(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the compiled schema is reused
				result, err := c.CallTool(t.Context(), "tool", nil)
				if fmt.Sprint(err) != "<nil>" && tt.err == "" || !strings.Contains(fmt.Sprint(err), tt.err) {
					t.Errorf("got %v, %v, want %q", result, err, tt.err)
				}
				if broken, ok := errors.AsType[*OutputError](err); ok != (tt.err != "") || ok && (broken.Result == nil || broken.Tool != "tool") {
					t.Errorf("got %#v", err)
				}
			}
			if n := s.times("tools/list"); n > 1 {
				t.Errorf("the tools were listed %d times", n)
			}
		})
	}
}

func TestOutputSchemaChanges(t *testing.T) {
	text, number := tool("tool", `,"outputSchema":{"type":"string"}`), tool("tool", `,"outputSchema":{"type":"number"}`)
	for _, tt := range []struct {
		name   string
		lists  []answerer
		before func(s *fakeServer)
		err    bool
		listed int
	}{
		{"notification", []answerer{says(tools(text)), says(tools(number))}, func(s *fakeServer) { s.notify("notifications/tools/list_changed", "") }, false, 2},
		{"no notification, old list", []answerer{says(tools(text)), says(tools(number))}, func(*fakeServer) { elapse(2 * maxToolAge) }, false, 2},
		{"no notification, recent list", []answerer{says(tools(text)), says(tools(number))}, func(*fakeServer) {}, true, 1},
		{"unchanged", []answerer{says(tools(text))}, func(*fakeServer) { elapse(2 * maxToolAge) }, true, 2},
		{"tool removed", []answerer{says(tools(text)), says(tools())}, func(*fakeServer) { elapse(2 * maxToolAge) }, true, 2},
		{"list fails", []answerer{says(tools(text)), fails(jsonrpc.CodeInternalError)}, func(*fakeServer) { elapse(2 * maxToolAge) }, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, revision := range []string{modernDate, legacyDate} {
				synctest.Test(t, func(t *testing.T) {
					s := newFake(t, revision, `{}`, map[string]answerer{
						"tools/list": inTurn(tt.lists...),
						"tools/call": says(`{"content":[],"structuredContent":1}`),
					})
					c := s.dial(nil)
					if _, err := c.ListTools(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					tt.before(s)
					synctest.Wait()
					_, err := c.CallTool(t.Context(), "tool", nil)
					if _, broken := errors.AsType[*OutputError](err); broken != tt.err || !broken && err != nil {
						t.Errorf("%s: got %v", revision, err)
					}
					// may fail, but must not list again so soon
					c.CallTool(t.Context(), "tool", nil)
					if n := s.times("tools/list"); n != tt.listed {
						t.Errorf("%s: listed %d times, want %d", revision, n, tt.listed)
					}
				})
			}
		})
	}
}

func TestToolsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		held := func(context.Context, string) (string, error) {
			<-hold // the list is read before the change, and sent after its notification
			return tools(tool("old", "")), nil
		}
		s := newFake(t, legacyDate, `{}`, map[string]answerer{"tools/list": inTurn(says(tools(tool("first", ""))), held, says(tools(tool("new", ""))))})
		c := s.dial(nil)
		known := func() (names string) {
			for _, name := range []string{"first", "old", "new"} {
				if c.tools.lookup(name) != nil {
					names += name
				}
			}
			return names
		}
		list := func() {
			if _, err := c.ListTools(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
		if list(); known() != "first" {
			t.Errorf("listed once: knows %q", known())
		}
		go list()
		synctest.Wait()
		s.notify("notifications/tools/list_changed", "")
		close(hold)
		if synctest.Wait(); known() != "first" {
			t.Errorf("changed meanwhile: knows %q", known())
		}
		if list(); known() != "firstnew" {
			t.Errorf("listed again: knows %q", known())
		}
	})
}

// TestRepeatAfterReconnects checks that a client knows after each reconnect which calls are safe to
// repeat, and validates their results, also if the new server announces changes.
func TestRepeatAfterReconnects(t *testing.T) {
	for _, revision := range []string{legacyDate, modernDate} {
		for _, announce := range []bool{false, true} {
			t.Run(fmt.Sprint(revision, announce), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cut := true
					var s *fakeServer
					s = newFake(t, revision, `{}`, map[string]answerer{
						"tools/list": says(tools(tool("tool", `,"annotations":{"readOnlyHint":true},"outputSchema":{"type":"object"}`))),
						"tools/call": func(ctx context.Context, _ string) (string, error) {
							if cut = !cut; cut { // the second attempt
								return `{"content":[],"structuredContent":{}}`, nil
							}
							go s.crash()
							<-ctx.Done()
							return "", ctx.Err()
						},
					})
					c := s.dial(nil)
					if _, err := c.ListTools(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					for n := range 4 {
						if _, err := c.CallTool(t.Context(), "tool", nil); err != nil {
							t.Errorf("call %d: %v", n+1, err)
						}
						if announce {
							s.notify("notifications/tools/list_changed", "")
							synctest.Wait()
						}
					}
					if n := s.times("tools/list"); n != 1 {
						t.Errorf("listed %d times, want once", n)
					}
					s.answers["tools/call"] = says(`{"content":[]}`)
					_, err := c.CallTool(t.Context(), "tool", nil)
					if _, ok := errors.AsType[*OutputError](err); !ok {
						t.Errorf("a result without structured content: got %v", err)
					}
					c.ForgetCached()
					if _, err := c.CallTool(t.Context(), "tool", nil); err != nil {
						t.Errorf("for another user: got %v", err)
					}
				})
			})
		}
	}
}

func TestToolBook(t *testing.T) {
	def := func(name string, size int) mcp.Tool {
		return mcp.Tool{Name: name, OutputSchema: json.RawMessage(`{"title":"` + strings.Repeat("x", size) + `"}`)}
	}
	var b toolCatalog
	b.add(b.currentGeneration(), []mcp.Tool{def("a", 10), def("b", maxCatalogBytes-1000), def("c", 200), def("d", 10)})
	for name, want := range map[string]bool{"a": true, "b": true, "c": false, "d": true} {
		if got := b.lookup(name) != nil; got != want {
			t.Errorf("%s is known: got %t, want %t", name, got, want)
		}
	}
	kept := b.lookup("a")
	b.add(b.currentGeneration(), []mcp.Tool{def("a", 10), def("b", 10)})
	if b.lookup("a") != kept {
		t.Error("an unchanged schema was compiled again")
	}
	if want := 3 * (toolOverhead + len("a") + len(def("", 10).OutputSchema)); b.bytes != want {
		t.Errorf("bytes: got %d, want %d", b.bytes, want)
	}
	old := b.currentGeneration()
	b.clear()
	b.add(old, []mcp.Tool{def("a", 10)})
	if b.lookup("a") != nil || b.bytes != 0 {
		t.Error("a list requested before the tools changed was used")
	}
}

func TestOutputValidationIsBounded(t *testing.T) {
	var defs []string
	for i := range 60 { // each array has twice as many checks as the one before
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%[2]d"}]}`, i, i+1))
	}
	c := newFake(t, modernDate, `{}`, map[string]answerer{
		"tools/list": says(tools(tool("tool", `,"outputSchema":{"$defs":{`+strings.Join(defs, ",")+`,"d60":{"type":"number"}},"$ref":"#/$defs/d0"}`))),
		"tools/call": says(`{"content":[],"structuredContent":1}`),
	}).dial(nil)
	if _, err := c.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	_, err := c.CallTool(t.Context(), "tool", nil)
	if !errors.Is(err, schema.ErrLimit) {
		t.Errorf("got %v, want a limit error", err)
	}
}

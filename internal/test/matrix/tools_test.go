package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

type book struct {
	Title string `json:"title"`
	Year  int    `json:"year,omitempty"`
}

type shelf struct {
	Row int `json:"row" schema:"minimum=1"`
}

// newToolServer returns a server with a tool for each kind of result.
func newToolServer(func()) *server.Server {
	srv := server.MustNew("tools", "1", nil)
	must(
		server.AddTool(srv, "count", "", func(_ context.Context, in struct{ Words []string }) (int, error) { return len(in.Words), nil }),
		server.AddTool(srv, "find", "", func(_ context.Context, in book) (book, error) {
			if in.Title == "Ulysses" {
				return book{}, errors.New("not available: try Emma")
			}
			return book{in.Title, 1815}, nil
		}),
		server.AddTool(srv, "shelf", "", func(_ context.Context, in shelf) (string, error) { return fmt.Sprint(in.Row), nil }),
		server.AddTool(srv, "years", "", func(_ context.Context, _ struct{}) ([]int, error) { return []int{1815, 1922}, nil }),
		srv.AddRawTool(mcp.Tool{Name: "nothing"}, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{StructuredContent: json.RawMessage(`null`)}, nil
		}),
		srv.AddRawTool(mcp.Tool{Name: "both"}, func(_ *server.Call, args json.RawMessage) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{
				Content:           []mcp.ContentBlock{mcp.TextContent{Text: "for people"}},
				StructuredContent: args,
				Meta:              json.RawMessage(`{"com.example/shelf":7}`),
			}, nil
		}),
		server.AddTool(srv, "panic", "", func(context.Context, struct{}) (string, error) { panic("boom") }),
		server.AddTool(srv, "refuse", "", func(context.Context, struct{}) (string, error) {
			return "", &jsonrpc.Error{Code: 4711, Message: "closed", Data: json.RawMessage(`{"until":"noon"}`)}
		}),
		server.AddToolWith(srv, fullTool(), func(context.Context, struct{}) (book, error) { return book{Title: "Emma"}, nil }),
	)
	return srv
}

// fullTool returns a tool with all members of the definition.
func fullTool() mcp.Tool {
	return mcp.Tool{
		Name: "full", Title: "A full tool", Description: "Says all.",
		InputSchema:  json.RawMessage(`{"type":"object","properties":{},"$comment":"kept"}`),
		OutputSchema: json.RawMessage(`{"type":"object","required":["title"]}`),
		Annotations:  &mcp.ToolAnnotations{Title: "Full", ReadOnlyHint: new(true), OpenWorldHint: new(false)},
		Icons:        []mcp.Icon{{Src: "data:image/png;base64,AA==", Sizes: []string{"16x16"}, Theme: mcp.ThemeDark}},
		Meta:         json.RawMessage(`{"com.example/a":[1]}`),
	}
}

// manyTools is the number of tools of newManyServer, in pages of manyPage.
const (
	manyTools = 1000
	manyPage  = 100
)

// newManyServer returns a server with many tools and cacheable lists.
func newManyServer(func()) *server.Server {
	srv := server.MustNew("many", "1", &server.Options{Limits: server.Limits{PageSize: manyPage}, Cache: server.CacheOptions{ListTTL: time.Hour}})
	for i := range manyTools {
		must(srv.AddRawTool(mcp.Tool{Name: fmt.Sprint("tool", i)}, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) { return nil, nil }))
	}
	return srv
}

func TestTools(t *testing.T) {
	testBehaviors(t, "tools", []behavior{
		{name: "a typed call", test: func(s *subtest) {
			n, err := client.CallTool[int](s.Context(), s.client(), "count", object{"Words": []string{"a", "b", "c"}})
			ok(s, "count", err)
			same(s, "count", n, 3)
			b, err := client.CallTool[book](s.Context(), s.client(), "find", book{Title: "Emma"})
			ok(s, "find", err)
			same(s, "find", b, book{"Emma", 1815})
			years, err := client.CallTool[[]int](s.Context(), s.client(), "years", nil)
			ok(s, "years", err)
			same(s, "years", years, []int{1815, 1922})
		}},
		{name: "structured content that is an object", test: func(s *subtest) {
			s.structured("find", book{Title: "Emma"}, `{"title":"Emma","year":1815}`, s.Structured)
		}},
		{name: "structured content of any type", test: func(s *subtest) {
			s.structured("years", nil, `[1815,1922]`, s.StructuredAny)
			s.structured("nothing", nil, `null`, s.StructuredAny)
			s.structured("count", object{"Words": []string{}}, `0`, s.StructuredAny)
		}},
		{name: "content with structured content", test: func(s *subtest) {
			res, err := s.client().CallTool(s.Context(), "both", object{"n": json.RawMessage("1e400")})
			ok(s, "both", err)
			same(s, "text", text(res), "for people")
			want := ""
			if s.Structured {
				want = `{"n":1e400}`
			}
			same(s, "structured", string(res.StructuredContent), want)
			var meta object
			ok(s, "meta", json.Unmarshal(res.Meta, &meta))
			same(s, "meta", meta["com.example/shelf"], any(7.0))
		}},
		{name: "a tool error", test: func(s *subtest) {
			same(s, "text", s.call(s.client(), "find", book{Title: "Ulysses"}), "error: not available: try Emma")
			_, err := client.CallTool[book](s.Context(), s.client(), "find", book{Title: "Ulysses"})
			failed, is := errors.AsType[*client.ToolError](err)
			if !is || failed.Error() != `tool "find" failed: not available: try Emma` || client.IsServerError(err) {
				s.Errorf("got %v", err)
			}
		}},
		// Spec: S131
		{name: "invalid arguments", test: func(s *subtest) {
			for args, want := range map[string]string{
				`{"row":0}`:         "error: arguments.row: expected integer of at least 1, got 0",
				`{}`:                `error: arguments: missing required property "row"`,
				`{"row":1,"col":2}`: `error: arguments: unknown property "col"; allowed: "row"`,
			} {
				same(s, args, s.call(s.client(), "shelf", json.RawMessage(args)), want)
			}
		}},
		{name: "an unknown tool", test: func(s *subtest) {
			_, err := s.client().CallTool(s.Context(), "lend", nil)
			wantError(s, "lend", err, jsonrpc.CodeInvalidParams)
		}},
		{name: "a protocol error", test: func(s *subtest) {
			_, err := s.client().CallTool(s.Context(), "refuse", nil)
			e := wantError(s, "refuse", err, 4711)
			same(s, "message", e.Message, "closed")
			same(s, "data", string(e.Data), `{"until":"noon"}`)
		}},
		{name: "a panic fails one request", test: func(s *subtest) {
			c := s.client()
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					if n, err := client.CallTool[string](s.Context(), c, "shelf", shelf{i + 1}); err != nil || n != fmt.Sprint(i+1) {
						s.Errorf("shelf: got %q, %v", n, err)
					}
				})
				_, err := c.CallTool(s.Context(), "panic", nil)
				wantError(s, "panic", err, jsonrpc.CodeInternalError)
			}
			wg.Wait()
		}},
		{name: "a group of servers", test: func(s *subtest) {
			g := client.NewGroup(nil)
			s.Cleanup(func() { g.Close() })
			ok(s, "add", errors.Join(g.Add("lib", s.dial(nil)), g.Add("load", s.withServer("load").dial(nil))))
			tools, err := g.Tools(s.Context())
			ok(s, "tools", err)
			var names []string
			for _, tool := range tools {
				names = append(names, tool.Name)
			}
			same(s, "names", strings.Join(names, " "), "lib__count lib__find lib__shelf lib__years lib__nothing lib__both lib__panic lib__refuse lib__full load__echo load__meet")
			res, err := g.CallTool(s.Context(), "load__echo", object{"Text": "x"})
			ok(s, "echo", err)
			same(s, "echo", text(res), "x")
			_, err = g.CallTool(s.Context(), "lib__refuse", nil)
			wantError(s, "refuse", err, 4711)
			_, err = g.CallTool(s.Context(), "echo", nil)
			if !errors.Is(err, client.ErrNoMember) {
				s.Errorf("got %v", err)
			}
		}},
		{name: "the definition of a tool in the revision", test: func(s *subtest) {
			want := mcp.Tool{Name: "full", Description: "Says all.", InputSchema: fullTool().InputSchema}
			if s.ToolAnnotations {
				want.Annotations = fullTool().Annotations
			}
			if s.Structured {
				want.OutputSchema = fullTool().OutputSchema
			}
			if s.Titles {
				want.Title = "A full tool"
			}
			if s.ItemMeta {
				want.Meta = fullTool().Meta
			}
			if s.Icons {
				want.Icons = fullTool().Icons
			}
			same(s, "tool", s.tool("full"), want)
		}},
		// Spec: S135
		{name: "schemas of Go types", test: func(s *subtest) {
			same(s, "input", string(s.tool("shelf").InputSchema),
				`{"type":"object","properties":{"row":{"type":"integer","minimum":1}},"required":["row"],"additionalProperties":false}`)
			want := ""
			if s.StructuredAny {
				want = `{"type":"array","items":{"type":"integer"}}`
			}
			same(s, "output", string(s.tool("years").OutputSchema), want)
		}},
	})
}

// structured calls a tool, and checks its text and its structured content. has means that the
// revision has structured content.
func (s *subtest) structured(tool string, args any, want string, has bool) {
	s.Helper()
	res, err := s.client().CallTool(s.Context(), tool, args)
	ok(s, tool, err)
	same(s, tool+": text", text(res), want)
	if !has {
		want = ""
	}
	same(s, tool+": structured content", string(res.StructuredContent), want)
}

// tool returns the definition of a tool.
func (s *subtest) tool(name string) mcp.Tool {
	s.Helper()
	for tool, err := range s.client().Tools(s.Context()) {
		ok(s, "list", err)
		if tool.Name == name {
			return tool
		}
	}
	s.Fatalf("the list has no tool %s", name)
	return mcp.Tool{}
}

func TestManyTools(t *testing.T) {
	testBehaviors(t, "many", []behavior{
		// Spec: S127 C80 C81
		{name: "a list of many pages", test: func(s *subtest) {
			var w wire
			n := 0
			for tool, err := range s.dial(w.record).Tools(s.Context()) {
				ok(s, "list", err)
				if want := fmt.Sprint("tool", n); tool.Name != want {
					s.Fatalf("got %s, want %s", tool.Name, want)
				}
				n++
			}
			same(s, "tools", n, manyTools)
			same(s, "pages", w.count("> ", `"tools/list"`), manyTools/manyPage)
		}},
		{name: "page by page", test: func(s *subtest) {
			page, err := s.client().ListTools(s.Context(), nil)
			ok(s, "first page", err)
			second, err := s.client().ListTools(s.Context(), page.NextCursor)
			ok(s, "second page", err)
			same(s, "sizes", []int{len(page.Tools), len(second.Tools)}, []int{manyPage, manyPage})
			same(s, "first of the second", second.Tools[0].Name, fmt.Sprint("tool", manyPage))
			_, err = s.client().ListTools(s.Context(), new("invalid cursor"))
			wantError(s, "an invalid cursor", err, jsonrpc.CodeInvalidParams)
		}},
		{name: "a cacheable list is requested once", when: modern, test: func(s *subtest) {
			var w wire
			c := s.dial(w.record)
			for range 3 {
				page, err := c.ListTools(s.Context(), nil)
				ok(s, "list", err)
				if page.TTLMs == nil || *page.TTLMs != time.Hour.Milliseconds() || page.CacheScope != mcp.CacheScopePrivate {
					s.Errorf("got ttlMs %v, cacheScope %q", page.TTLMs, page.CacheScope)
				}
			}
			same(s, "requests", w.count("> ", `"tools/list"`), 1)
			_, err := c.ListTools(s.Context(), nil, client.WithoutCache())
			ok(s, "fresh", err)
			same(s, "requests", w.count("> ", `"tools/list"`), 2)
		}, instead: func(s *subtest) {
			var w wire
			c := s.dial(w.record)
			for range 3 {
				page, err := c.ListTools(s.Context(), nil)
				ok(s, "list", err)
				if page.TTLMs != nil || page.CacheScope != "" {
					s.Errorf("got ttlMs %v, cacheScope %q", page.TTLMs, page.CacheScope)
				}
			}
			same(s, "requests", w.count("> ", `"tools/list"`), 3)
		}},
	})
}

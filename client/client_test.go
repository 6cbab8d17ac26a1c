package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestRequests checks what each method sends, and its result for a response.
func TestRequests(t *testing.T) {
	hints := `"ttlMs":0,"cacheScope":"private"`
	for _, tt := range []struct {
		name   string
		answer string
		call   func(context.Context, *Client) (any, error)
		want   any
		sent   string
	}{
		{"ListTools", `{"tools":[{"name":"a","inputSchema":{"type":"object"}}],"nextCursor":"",` + hints + `}`,
			func(ctx context.Context, c *Client) (any, error) {
				r, err := c.ListTools(ctx, new("c\""))
				return [2]string{r.Tools[0].Name, *r.NextCursor}, err
			}, [2]string{"a", ""}, `tools/list {"cursor":"c\""}`},
		{"Tools", `{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`,
			func(ctx context.Context, c *Client) (any, error) {
				all, err := collectAll(c.Tools(ctx))
				return all[0].Name, err
			}, "a", `tools/list {}`},
		{"Resources", `{"resources":[{"uri":"x:a","name":"a"}]}`,
			func(ctx context.Context, c *Client) (any, error) { return collectAll(c.Resources(ctx)) },
			[]mcp.Resource{{URI: "x:a", Name: "a"}}, `resources/list {}`},
		{"ResourceTemplates", `{"resourceTemplates":[{"uriTemplate":"x:{a}","name":"a"}]}`,
			func(ctx context.Context, c *Client) (any, error) { return collectAll(c.ResourceTemplates(ctx)) },
			[]mcp.ResourceTemplate{{URITemplate: "x:{a}", Name: "a"}}, `resources/templates/list {}`},
		{"Prompts", `{"prompts":[{"name":"a"}]}`,
			func(ctx context.Context, c *Client) (any, error) { return collectAll(c.Prompts(ctx)) },
			[]mcp.Prompt{{Name: "a"}}, `prompts/list {}`},
		{"ReadResource", `{"contents":[{"uri":"x:a","text":"1"},{"uri":"x:a","blob":"AQI="}],` + hints + `}`,
			func(ctx context.Context, c *Client) (any, error) {
				r, err := c.ReadResource(ctx, "x:a\n")
				return r.Contents, err
			}, []mcp.ResourceContents{{URI: "x:a", Text: "1"}, {URI: "x:a", Blob: []byte{1, 2}}}, `resources/read {"uri":"x:a\n"}`},
		{"Prompt", `{"messages":[{"role":"user","content":` + text("hi") + `}],"description":"d"}`,
			func(ctx context.Context, c *Client) (any, error) {
				r, err := c.GetPrompt(ctx, "a", map[string]string{"z": "1", "b": "\""})
				return r.Messages, err
			}, []mcp.PromptMessage{{Role: mcp.RoleUser, Content: mcp.TextContent{Text: "hi"}}},
			`prompts/get {"name":"a","arguments":{"b":"\"","z":"1"}}`},
		{"Prompt without arguments", `{"messages":[]}`,
			func(ctx context.Context, c *Client) (any, error) {
				r, err := c.GetPrompt(ctx, "a", nil)
				return len(r.Messages), err
			}, 0, `prompts/get {"name":"a"}`},
		{"Complete", `{"completion":{"values":["ab"],"total":7,"hasMore":true}}`,
			func(ctx context.Context, c *Client) (any, error) {
				r, err := c.Complete(ctx, mcp.PromptReference{Name: "p"}, mcp.CompleteArgument{Name: "n", Value: "a"}, map[string]string{"k": "v"})
				return []any{r.Values, *r.Total, r.HasMore}, err
			}, []any{[]string{"ab"}, int64(7), true},
			`completion/complete {"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"n","value":"a"},"context":{"arguments":{"k":"v"}}}`},
		{"Complete a template", `{"completion":{"values":[]}}`,
			func(ctx context.Context, c *Client) (any, error) {
				r, err := c.Complete(ctx, mcp.ResourceTemplateReference{URI: "x:{a}"}, mcp.CompleteArgument{Name: "a"}, nil)
				return len(r.Values), err
			}, 0, `completion/complete {"ref":{"type":"ref/resource","uri":"x:{a}"},"argument":{"name":"a","value":""}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			method, _, _ := strings.Cut(tt.sent, " ")
			for _, revision := range []string{modernDate, legacyDate} {
				s := newFake(t, revision, `{}`, map[string]answerer{method: says(tt.answer)})
				got, err := tt.call(t.Context(), s.dial(nil))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: result (-want +got):\n%s", revision, diff)
				}
				if diff := cmp.Diff([]string{tt.sent}, s.takeSeen()); diff != "" {
					t.Errorf("%s: sent (-want +got):\n%s", revision, diff)
				}
			}
		})
	}
}

// TestCompleteBeforeContext shows that members that a revision does not define are not sent.
func TestCompleteBeforeContext(t *testing.T) {
	s := newFake(t, "2024-11-05", `{}`, map[string]answerer{"completion/complete": says(`{"completion":{"values":[]}}`)})
	_, err := s.dial(nil).Complete(t.Context(), mcp.PromptReference{Name: "p"}, mcp.CompleteArgument{Name: "n"}, map[string]string{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`completion/complete {"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"n","value":""}}`}
	if diff := cmp.Diff(want, s.takeSeen()); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

// TestEras checks methods of only one era.
func TestEras(t *testing.T) {
	unsupported := func(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
	fine := func(err error) bool { return err == nil }
	for _, tt := range []struct {
		name, revision string
		call           func(context.Context, *Client) error
		err            func(error) bool
		sent           []string
	}{
		{"SetLevel", legacyDate, func(ctx context.Context, c *Client) error { return c.SetLevel(ctx, mcp.LevelWarning) }, fine,
			[]string{`logging/setLevel {"level":"warning"}`}},
		{"SetLevel with an empty level", legacyDate, func(ctx context.Context, c *Client) error { return c.SetLevel(ctx, mcp.LevelNone) },
			func(err error) bool { return err != nil && !IsServerError(err) }, nil},
		{"SetLevel", modernDate, func(ctx context.Context, c *Client) error { return c.SetLevel(ctx, mcp.LevelWarning) }, unsupported, nil},
		{"Call with nil params of a type", legacyDate, func(ctx context.Context, c *Client) error { return c.Call(ctx, "ping", json.RawMessage(nil), nil) }, fine,
			[]string{"ping {}"}},
		{"Ping", legacyDate, func(ctx context.Context, c *Client) error { return c.Ping(ctx) }, fine, []string{"ping {}"}},
		{"Ping", modernDate, func(ctx context.Context, c *Client) error { return c.Ping(ctx) }, fine, []string{"server/discover {}"}},
		{"Discover", legacyDate, func(ctx context.Context, c *Client) error { _, err := c.Discover(ctx); return err }, unsupported, nil},
		{"Discover", modernDate, func(ctx context.Context, c *Client) error {
			r, err := c.Discover(ctx)
			if err == nil && r.Instructions != "be kind" {
				return errTest
			}
			return err
		}, fine, []string{"server/discover {}"}},
	} {
		t.Run(tt.name+" "+tt.revision, func(t *testing.T) {
			s := newFake(t, tt.revision, `{}`, map[string]answerer{
				"ping": says("{}"), "logging/setLevel": says("{}"),
			})
			if tt.revision == modernDate {
				s.answers["server/discover"] = says(`{"supportedVersions":["2026-07-28"],"capabilities":{},"instructions":"be kind","ttlMs":0,"cacheScope":"public"}`)
			}
			c := s.dial(nil)
			s.takeSeen()
			if err := tt.call(t.Context(), c); !tt.err(err) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(tt.sent, s.takeSeen()); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSetLevelAgain shows that the client sets the level of log messages again in a new session.
func TestSetLevelAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t, legacyDate, `{"logging":{}}`, map[string]answerer{"logging/setLevel": inTurn(says("{}"), fails(-32603), says("{}")), "ping": says("{}")})
		c := s.dial(nil)
		want := []string{}
		// the second one is rejected
		for _, level := range []mcp.LoggingLevel{mcp.LevelWarning, mcp.LevelDebug} {
			err := c.SetLevel(t.Context(), level)
			if (err == nil) != (level == mcp.LevelWarning) {
				t.Error(err)
			}
			want = append(want, fmt.Sprintf(`logging/setLevel {"level":%q}`, level))
		}
		s.crash()
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want = append(want, `logging/setLevel {"level":"warning"}`)
		got := slices.DeleteFunc(s.takeSeen(), func(line string) bool { return strings.HasPrefix(line, "ping") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

// Spec: C15
func TestIsNotFound(t *testing.T) {
	for code, want := range map[jsonrpc.Code]bool{
		jsonrpc.CodeInvalidParams: true, mcp.CodeResourceNotFound: true, jsonrpc.CodeMethodNotFound: false, jsonrpc.CodeInternalError: false,
		-32000: false, -32001: false, -32003: false, -32019: false,
	} {
		c := newFake(t, modernDate, `{}`, map[string]answerer{"resources/read": fails(code)}).dial(nil)
		if _, err := c.ReadResource(t.Context(), "x:a"); IsNotFound(err) != want || !IsServerError(err) {
			t.Errorf("%d: got %v, IsNotFound %t", code, err, IsNotFound(err))
		}
	}
	if IsNotFound(errTest) || IsNotFound(nil) {
		t.Error("another error counts as not found")
	}
}

func TestCanceledBeforeItBegins(t *testing.T) {
	s := newFake(t, modernDate, `{}`, map[string]answerer{"tools/list": says(tools())})
	c := s.dial(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.ListTools(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := c.CallTool(ctx, "x", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if seen := s.takeSeen(); seen != nil {
		t.Errorf("sent: %q", seen)
	}
}

// FuzzResult reads any JSON as a result: nothing panics, and the values are within limits.
func FuzzResult(f *testing.F) {
	for _, text := range []string{
		done, taskText(modernDate, "working"), taskText(legacyDate, "completed"), `{"task":` + taskText(legacyDate, "working") + `}`,
		resource("a", `,"ttlMs":1e3,"cacheScope":"public"`), tools(tool("a", "")), `{"content":[{"type":"text","text":"\ud800"},{"type":1},7,null]}`,
		`{"structuredContent":null}`, `{"toolsListChanged":true,"taskIds":["a",1,null],"resourceSubscriptions":{}}`, `[]`, `""`, `{"uri":7}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if jsonwire.Valid(text, 0) != nil {
			return
		}
		if ttl, _ := cacheHints(text); ttl < 0 || ttl > maxTTL {
			t.Errorf("ttl: %v", ttl)
		}
		if s, ok := parseTask(text); ok && (s.ID == "" || s.Status == "") || s.TTL < -1 || s.TTL > maxTTL || s.PollInterval < 0 || s.PollInterval > maxTTL {
			t.Errorf("task: %+v", s)
		}
		filter := parseFilter(text)
		if both := intersectFilters(&filter, &filter); len(missedEvents(&both)) > filterSize(&filter) {
			t.Errorf("filter: %+v", filter)
		}
		parseURIParam(text)
		subscriptionID(text)
		a := parseToolMembers(text)
		if a.check() != nil {
			return
		}
		data, err := a.jsonOutput()
		if err == nil && jsonwire.Valid(data, 0) != nil {
			t.Errorf("data: %q", data)
		}
		a.text()
		if result, err := a.decode(&Client{log: slog.New(slog.DiscardHandler)}); err == nil && jsonwire.Valid(mcp.Append(nil, result, mcp.RevisionNone), 0) != nil {
			t.Errorf("result: %+v", result)
		}
	})
}

package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema/fullschema"
	"mcpwire/server"
)

type (
	base struct {
		ID string `json:"id" schema:"pattern=^[a-z]+$"`
	}
	color    string
	embedded struct {
		base
		Note *string `json:"note"`
	}
	optional struct {
		Limit int    `json:"limit,omitempty" schema:"minimum=1,default=5"`
		Tint  color  `json:"tint,omitempty" schema:"enum=red|green"`
		Skip  string `json:"-"`
	}
	tree struct {
		Name string `json:"name"`
		Kids []tree `json:"kids,omitempty"`
	}
	exact struct {
		N    json.Number     `json:"n"`
		Big  *big.Int        `json:"big"`
		Raw  json.RawMessage `json:"raw"`
		When time.Time       `json:"when"`
		Any  any             `json:"any"`
		Data []byte          `json:"data"`
	}
)

// echoed registers a tool that returns its input.
func echoed[T any](srv *server.Server) error {
	return server.AddTool(srv, "t", "", func(_ context.Context, in T) (T, error) { return in, nil })
}

// shown registers a tool that returns its input as Go prints it.
func shown[T any](srv *server.Server) error {
	return server.AddTool(srv, "t", "", func(_ context.Context, in T) (string, error) { return fmt.Sprintf("%+v", in), nil })
}

// given registers a tool without input that returns out.
func given[T any](out T) func(srv *server.Server) error {
	return func(srv *server.Server) error {
		return server.AddTool(srv, "t", "", func(context.Context, empty) (T, error) { return out, nil })
	}
}

// Spec: S131
func TestInputs(t *testing.T) {
	for _, tt := range []struct {
		name string
		add  func(*server.Server) error
		args string
		want result
	}{
		{"empty", shown[empty], `{}`, result{Text: "{}"}},
		{"empty, with a member", shown[empty], `{"a":1}`, result{Text: `arguments: unknown property "a"; no properties are allowed here`, IsError: true}},
		{"pointer to a struct", shown[*empty], `{}`, result{Text: "&{}"}},
		{"promoted", shown[embedded], `{"id":"ab","note":null}`, result{Text: "{base:{ID:ab} Note:<nil>}"}},
		{"pattern", shown[embedded], `{"id":"A"}`, result{Text: `arguments.id: expected a string matching the pattern ^[a-z]+$, got "A"`, IsError: true}},
		{"default", shown[optional], `{}`, result{Text: "{Limit:5 Tint: Skip:}"}},
		{"enum", shown[optional], `{"tint":"blue"}`, result{Text: `arguments.tint: expected one of "red", "green", got string "blue"`, IsError: true}},
		{"map", shown[map[string]int], `{"b":2,"a":1}`, result{Text: "map[a:1 b:2]"}},
		{"map of int keys", shown[map[int]bool], `{"-7":true}`, result{Text: "map[-7:true]"}},
		{"map, wrong value", shown[map[string]int], `{"a b":"x"}`, result{Text: `arguments["a b"]: expected integer, got string "x"`, IsError: true}},
		{"map of anything", shown[map[string]any], `{"n":9007199254740993}`, result{Text: "map[n:9007199254740993]"}},
		{"recursive", echoed[tree], `{"name":"a","kids":[{"name":"b"}]}`, result{Structured: `{"name":"a","kids":[{"name":"b"}]}`, Text: `{"name":"a","kids":[{"name":"b"}]}`}},
		{"deep problem", echoed[tree], `{"name":"a","kids":[{"name":"b"},{"nam":1}]}`, result{Text: `arguments.kids[1]: unknown property "nam"; allowed: "name", "kids"; arguments.kids[1]: missing required property "name"`, IsError: true}},
		{"exact", echoed[exact], `{"n":1e400,"big":123456789012345678901234567890,"raw":{ "x":[1, 2]},"when":"2025-01-02T03:04:05Z","any":[1.50],"data":"YWI="}`,
			result{
				Structured: `{"n":1e400,"big":123456789012345678901234567890,"raw":{"x":[1,2]},"when":"2025-01-02T03:04:05Z","any":[1.5],"data":"YWI="}`,
				Text:       `{"n":1e400,"big":123456789012345678901234567890,"raw":{"x":[1,2]},"when":"2025-01-02T03:04:05Z","any":[1.5],"data":"YWI="}`,
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := server.MustNew("test", "1", nil)
			if err := tt.add(srv); err != nil {
				t.Fatal(err)
			}
			got, err := connect(t, srv, modern).result("t", tt.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// Spec: S25
func TestOutputs(t *testing.T) {
	text := mcp.TextContent{Text: "hi"}
	for _, tt := range []struct {
		name   string
		add    func(*server.Server) error
		schema string // for modern clients; empty for none
		want   result // for a modern client
		old    result // for a client of 2025-06-18
	}{
		{"string", given("hi"), "", result{Text: "hi"}, result{Text: "hi"}},
		{"invalid UTF-8", given("\xff"), "", result{Text: "\ufffd"}, result{Text: "\ufffd"}},
		{"named string", given(color("red")), `{"type":"string"}`, result{Text: `"red"`, Structured: `"red"`}, result{Text: `"red"`}},
		{"int", given(-1), `{"type":"integer"}`, result{Text: "-1", Structured: "-1"}, result{Text: "-1"}},
		{"bool", given(false), `{"type":"boolean"}`, result{Text: "false", Structured: "false"}, result{Text: "false"}},
		{"struct", given(base{"x"}), `{"type":"object","properties":{"id":{"type":"string","pattern":"^[a-z]+$"}},"required":["id"],"additionalProperties":false}`,
			result{Text: `{"id":"x"}`, Structured: `{"id":"x"}`}, result{Text: `{"id":"x"}`, Structured: `{"id":"x"}`}},
		{"pointer", given(&base{"x"}), `{"type":"object","properties":{"id":{"type":"string","pattern":"^[a-z]+$"}},"required":["id"],"additionalProperties":false}`,
			result{Text: `{"id":"x"}`, Structured: `{"id":"x"}`}, result{Text: `{"id":"x"}`, Structured: `{"id":"x"}`}},
		{"map", given(map[string]int(nil)), `{"type":"object","additionalProperties":{"type":"integer"}}`, result{Text: "{}", Structured: "{}"}, result{Text: "{}", Structured: "{}"}},
		{"slice", given([]int(nil)), `{"type":"array","items":{"type":"integer"}}`, result{Text: "[]", Structured: "[]"}, result{Text: "[]"}},
		{"any", given[any](map[string]any{"a": 1}), "", result{Text: `{"a":1}`, Structured: `{"a":1}`}, result{Text: `{"a":1}`, Structured: `{"a":1}`}},
		{"null", given[any](nil), "", result{Text: "null", Structured: "null"}, result{Text: "null"}},
		{"raw", given(json.RawMessage(" [1,\n2] ")), "", result{Text: "[1,2]", Structured: "[1,2]"}, result{Text: "[1,2]"}},
		{"content", given[mcp.ContentBlock](text), "", result{Text: "hi"}, result{Text: "hi"}},
		{"text", given(text), "", result{Text: "hi"}, result{Text: "hi"}},
		{"pointer to text", given(&text), "", result{Text: "hi"}, result{Text: "hi"}},
		{"contents", given([]mcp.ContentBlock{text, &text}), "", result{Text: "hi|hi"}, result{Text: "hi|hi"}},
		{"no contents", given([]mcp.ContentBlock(nil)), "", result{}, result{}},
		{"texts", given([]mcp.TextContent{text, text}), "", result{Text: "hi|hi"}, result{Text: "hi|hi"}},
		{"pointers to texts", given([]*mcp.TextContent{&text}), "", result{Text: "hi"}, result{Text: "hi"}},
		{"result", given(mcp.CallToolResult{Content: []mcp.ContentBlock{text}, IsError: true}), "", result{Text: "hi", IsError: true}, result{Text: "hi", IsError: true}},
		{"pointer to a result", given(&mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: "no way"}}, IsError: true}), "", result{Text: "no way", IsError: true}, result{Text: "no way", IsError: true}},
		{"no result", given((*mcp.CallToolResult)(nil)), "", result{}, result{}},
		{"structured result", given(&mcp.CallToolResult{StructuredContent: json.RawMessage("\n{ }")}), "", result{Text: "{}", Structured: "{}"}, result{Text: "{}", Structured: "{}"}},
		{"structured result, not an object", given(&mcp.CallToolResult{StructuredContent: json.RawMessage("null")}), "", result{Text: "null", Structured: "null"}, result{Text: "null"}},
		{"structured result with content", given(&mcp.CallToolResult{Content: []mcp.ContentBlock{text}, StructuredContent: json.RawMessage("1")}), "", result{Text: "hi", Structured: "1"}, result{Text: "hi"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := server.MustNew("test", "1", nil)
			if err := tt.add(srv); err != nil {
				t.Fatal(err)
			}
			for revision, want := range map[string]result{modern: tt.want, "2025-06-18": tt.old} {
				c := connect(t, srv, revision)
				got, err := c.result("t", "{}")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: result (-want +got):\n%s", revision, diff)
				}
			}
			if got := outputSchema(t, connect(t, srv, modern)); got != tt.schema {
				t.Errorf("got output schema %s, want %s", got, tt.schema)
			}
		})
	}
}

// outputSchema returns the output schema of the first tool.
func outputSchema(t *testing.T, c *client) string {
	t.Helper()
	var list struct {
		Tools []struct{ OutputSchema json.RawMessage }
	}
	if err := json.Unmarshal([]byte(c.must("tools/list", "{}")), &list); err != nil {
		t.Fatal(err)
	}
	return string(list.Tools[0].OutputSchema)
}

// Spec: S47 S48 S135
func TestAddToolErrors(t *testing.T) {
	type handler = func(context.Context, empty) (string, error)
	ok := func(context.Context, empty) (string, error) { return "", nil }
	with := func(def mcp.Tool) func(*server.Server) error {
		return func(srv *server.Server) error { return server.AddToolWith(srv, def, ok) }
	}
	raw := func(def mcp.Tool) func(*server.Server) error {
		return func(srv *server.Server) error {
			return srv.AddRawTool(def, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) { return nil, nil })
		}
	}
	for _, tt := range []struct {
		name string
		add  func(*server.Server) error
		want string // part of the error's text
	}{
		{"no name", with(mcp.Tool{}), `tool "": it needs a name`},
		{"name not UTF-8", with(mcp.Tool{Name: "\xff"}), "valid UTF-8"},
		{"taken", with(mcp.Tool{Name: "taken"}), `tool "taken": already registered`},
		{"no function", func(srv *server.Server) error { return server.AddTool(srv, "t", "", handler(nil)) }, `tool "t": it needs a function`},
		{"no raw function", func(srv *server.Server) error { return srv.AddRawTool(mcp.Tool{Name: "t"}, nil) }, "needs a function"},
		{"input an int", shown[int], `"type":"object" at its root`},
		{"input a slice", shown[[]int], `"type":"object" at its root`},
		{"input anything", shown[any], `"type":"object" at its root`},
		{"input a channel", shown[struct{ C chan int }], "C"},
		{"bad tag", shown[struct {
			S string `schema:"minimum=1"`
		}], "minimum"},
		{"output a func", given(func() {}), "output"},
		{"schema not JSON", with(mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{`)}), "input schema"},
		{"schema empty", with(mcp.Tool{Name: "t", InputSchema: json.RawMessage{}}), "input schema"},
		{"schema not an object's", with(mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"array"}`)}), `"type":"object" at its root`},
		{"schema true", with(mcp.Tool{Name: "t", InputSchema: json.RawMessage(`true`)}), `"type":"object" at its root`},
		{"schema null", with(mcp.Tool{Name: "t", InputSchema: json.RawMessage(`null`)}), "input schema"},
		{"schema wrong", with(mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object","minProperties":-1}`)}), "minProperties"},
		{"schema with a remote reference", raw(mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object","$ref":"https://example.com/s"}`)}), "input schema"},
		{"raw schema without type", raw(mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{}`)}), `"type":"object" at its root`},
		{"output schema not JSON", raw(mcp.Tool{Name: "t", OutputSchema: json.RawMessage(`nope`)}), "output schema"},
		{"output schema for text", with(mcp.Tool{Name: "t", OutputSchema: json.RawMessage(`{"type":"string"}`)}), "no structured content"},
		{"meta not an object", with(mcp.Tool{Name: "t", Meta: json.RawMessage(` [1]`)}), "_meta must be a JSON object"},
		{"meta not JSON", with(mcp.Tool{Name: "t", Meta: json.RawMessage("{\"a\":\xff}")}), "_meta"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := server.MustNew("test", "1", nil)
			if err := server.AddTool(srv, "taken", "", ok); err != nil {
				t.Fatal(err)
			}
			err := tt.add(srv)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
			if taken := tt.name == "taken"; errors.Is(err, server.ErrDuplicate) != taken {
				t.Errorf("errors.Is(%v, ErrDuplicate) is %t", err, !taken)
			}
			names, _, err := connect(t, srv, modern).list("")
			if diff := cmp.Diff([]string{"taken"}, names); err != nil || diff != "" {
				t.Errorf("tools after the failure (-want +got): %v\n%s", err, diff)
			}
		})
	}
}

// TestEngine checks that the engine of the options compiles hand-written and generated schemas.
func TestEngine(t *testing.T) {
	def := mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":true},"unevaluatedProperties":false}`)}
	handler := func(_ context.Context, in map[string]any) (string, error) { return fmt.Sprint(in), nil }
	if err := server.AddToolWith(server.MustNew("test", "1", nil), def, handler); err == nil {
		t.Error("a schema was accepted that cannot be checked")
	}
	srv := server.MustNew("test", "1", &server.Options{SchemaEngine: fullschema.Engine})
	if err := server.AddToolWith(srv, def, handler); err != nil {
		t.Fatal(err)
	}
	if err := server.AddTool(srv, "own", "", func(_ context.Context, in struct{ V own }) (string, error) { return "", nil }); err != nil {
		t.Error(err)
	}
	c := connect(t, srv, modern)
	if got, err := c.result("t", `{"a":1}`); err != nil || got != (result{Text: "map[a:1]"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := c.result("t", `{"b":1}`); err != nil || !got.IsError {
		t.Errorf("got %+v, %v; want an error", got, err)
	}
}

// own is a type with a schema that only a full engine can check.
type own string

func (own) JSONSchema() []byte { return []byte(`{"type":"string","unevaluatedItems":false}`) }

// TestDefinitionIsCopied changes a definition after its registration.
func TestDefinitionIsCopied(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	yes := true
	def := mcp.Tool{
		Name:        "t",
		InputSchema: json.RawMessage(`{"type":"object"}`),
		Annotations: &mcp.ToolAnnotations{Title: "before", ReadOnlyHint: &yes},
		Icons:       []mcp.Icon{{Src: "before:"}},
		Meta:        json.RawMessage(`{"before":1}`),
	}
	if err := server.AddToolWith(srv, def, func(context.Context, map[string]any) (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
	copy(def.InputSchema, "garbage")
	copy(def.Meta, "garbage")
	def.Annotations.Title = "after"
	def.Icons[0].Src = "after:"
	got := connect(t, srv, modern).must("tools/list", "{}")
	want := `{"name":"t","inputSchema":{"type":"object"},"annotations":{"title":"before","readOnlyHint":true},"icons":[{"src":"before:"}],"_meta":{"before":1}}`
	if !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
}

// TestUnusualNames shows that any text can be a tool's name, and that the tool is found by every JSON
// spelling of it and by no other name.
func TestUnusualNames(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	names := []string{"a b", "é☃😀", `a\u0062`, "ab", `quote"`, "\u2028", "</script>", "line\nbreak"}
	for _, name := range names {
		if err := server.AddTool(srv, name, "", func(ctx context.Context, _ empty) (string, error) { return server.CallOf(ctx).Name(), nil }); err != nil {
			t.Fatal(err)
		}
	}
	c := connect(t, srv, modern)
	listed, _, err := c.list("")
	if diff := cmp.Diff(names, listed); err != nil || diff != "" {
		t.Errorf("list (-want +got): %v\n%s", err, diff)
	}
	spellings := map[string]string{`"a\u0062"`: "ab", `"\u0061b"`: "ab", `"a\\u0062"`: `a\u0062`, `"\ud83d\ude00"`: "", `"\u00e9\u2603\ud83d\ude00"`: "é☃😀", `"<\/script>"`: "</script>"}
	for _, name := range names {
		text, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		spellings[string(text)] = name
	}
	for spelling, want := range spellings {
		text, err := c.call(context.Background(), "tools/call", `{"name":`+spelling+`}`)
		if want == "" {
			if code(err) != jsonrpc.CodeInvalidParams {
				t.Errorf("%s: got %s, %v", spelling, text, err)
			}
			continue
		}
		var r struct{ Content []struct{ Text string } }
		if err != nil || json.Unmarshal([]byte(text), &r) != nil || r.Content[0].Text != want {
			t.Errorf("%s: got %s, %v; want %q", spelling, text, err, want)
		}
	}
}

func TestRemoveTools(t *testing.T) {
	srv := numbered(t, 3, 0)
	c := connect(t, srv, modern)
	if _, err := c.tool("1", "{}"); err != nil {
		t.Fatal(err)
	}
	srv.RemoveTools()
	srv.RemoveTools("1", "none", "1")
	if _, err := c.tool("1", "{}"); code(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("call of a removed tool: %v", err)
	}
	addNumber(t, srv, 1) // the name is free again
	names, _, err := c.list("")
	if diff := cmp.Diff([]string{"0", "2", "1"}, names); err != nil || diff != "" {
		t.Errorf("list (-want +got): %v\n%s", err, diff)
	}
}

// TestUnusualToolNames checks that a name outside of the specification's recommendation is logged
// and accepted.
func TestUnusualToolNames(t *testing.T) {
	for name, usual := range map[string]bool{
		"a": true, "A_b-1.c": true, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "with space": false, "é": false, "files/read": false, "a,b": false, "a\n": false,
	} {
		var log records
		srv := server.MustNew("test", "1", &server.Options{Logger: log.logger(slog.LevelWarn)})
		if err := server.AddTool(srv, name, "", func(context.Context, empty) (string, error) { return "", nil }); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "clients may refuse a tool's name"); usual != (n == 0) || n > 1 {
			t.Errorf("%.40q: logged %d times", name, n)
		}
	}
}

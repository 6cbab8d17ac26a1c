package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"mcpwire/mcp"
	"mcpwire/schema"
	"mcpwire/server"
)

// TestUnknownArguments shows what decides about arguments without a field: the written schema, at
// every level that it describes, and without one Options.Schema.
//
// Spec: S131
func TestUnknownArguments(t *testing.T) {
	type in struct {
		Path string `json:"path"`
		Sub  struct {
			N int `json:"n"`
		} `json:"sub,omitzero"`
	}
	tool := func(_ context.Context, in in) (string, error) { return fmt.Sprint(in.Path, in.Sub.N), nil }
	const props = `"properties":{"path":{"type":"string"},"sub":{"type":"object"%s}},"required":["path"]`
	written := func(root, sub string) json.RawMessage {
		return json.RawMessage(`{"type":"object",` + fmt.Sprintf(props, sub) + root + `}`)
	}
	for _, tt := range []struct {
		name   string
		opts   *schema.Options
		schema json.RawMessage
		args   string
		want   string // the text; an error if it begins with arguments
	}{
		{"by default", nil, nil, `{"path":"a","reason":1}`, `arguments: unknown property "reason"`},
		{"by default, nested", nil, nil, `{"path":"a","sub":{"n":1,"m":2}}`, `arguments.sub: unknown property "m"`},
		{"allowed by option", &schema.Options{AllowUnknown: true}, nil, `{"path":"a","reason":1,"sub":{"n":1,"m":2}}`, "a1"},
		{"allowed by option, still checked", &schema.Options{AllowUnknown: true}, nil, `{"path":1,"reason":1}`, `arguments.path: expected string`},
		{"a number in quotes, by default", nil, nil, `{"path":"a","sub":{"n":"1"}}`, `arguments.sub.n: expected integer, got string "1"`},
		{"a number in quotes, by option", &schema.Options{AllowQuoted: true}, nil, `{"path":"a","sub":{"n":"1"}}`, "a1"},
		{"schema says true", nil, written(`,"additionalProperties":true`, ""), `{"path":"a","reason":1}`, "a0"},
		{"schema says nothing", nil, written("", ""), `{"path":"a","reason":1,"sub":{"n":1,"m":2}}`, "a1"},
		{"schema says false", nil, written(`,"additionalProperties":false`, ""), `{"path":"a","reason":1}`, `arguments: unknown property "reason"`},
		{"schema says false, option true", &schema.Options{AllowUnknown: true}, written(`,"additionalProperties":false`, ""), `{"path":"a","reason":1}`, `arguments: unknown property "reason"`},
		{"schema says a type, right", nil, written(`,"additionalProperties":{"type":"integer"}`, ""), `{"path":"a","reason":1}`, "a0"},
		{"schema says a type, wrong", nil, written(`,"additionalProperties":{"type":"integer"}`, ""), `{"path":"a","reason":"x"}`, `arguments.reason: expected integer`},
		{"schema says false below", nil, written("", `,"properties":{"n":{}},"additionalProperties":false`), `{"path":"a","reason":1,"sub":{"n":1,"m":2}}`, `arguments.sub: unknown property "m"`},
		{"schema says true, the type still decides on fields", nil, written(`,"additionalProperties":true`, ""), `{"path":"a","sub":{"n":"x"}}`, `arguments.sub.n: expected integer`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := server.MustNew("test", "1", &server.Options{Schema: tt.opts})
			if err := server.AddToolWith(srv, mcp.Tool{Name: "t", InputSchema: tt.schema}, tool); err != nil {
				t.Fatal(err)
			}
			got, err := connect(t, srv, modern).result("t", tt.args)
			if err != nil || !strings.HasPrefix(got.Text, tt.want) || got.IsError != strings.HasPrefix(tt.want, "arguments") {
				t.Errorf("got %+v, %v, want %s", got, err, tt.want)
			}
		})
	}
}

// TestSchemaOptions shows that Options.Schema applies to tools, prompts and methods.
func TestSchemaOptions(t *testing.T) {
	srv := server.MustNew("test", "1", &server.Options{Schema: &schema.Options{
		AllowUnknown: true, UseNumber: true,
		Types: map[reflect.Type]json.RawMessage{reflect.TypeFor[netip.Addr](): json.RawMessage(`{"type":"string","format":"ipv4"}`)},
	}})
	type in struct {
		Any  any        `json:"any,omitempty"`
		Addr netip.Addr `json:"addr,omitzero"`
	}
	show := func(_ context.Context, in in) (string, error) { return fmt.Sprintf("%T %v", in.Any, in.Any), nil }
	err := errors.Join(
		server.AddTool(srv, "t", "", show),
		server.AddPrompt(srv, mcp.Prompt{Name: "typed"}, func(_ context.Context, in struct {
			A string `json:"a,omitempty"`
		}) (string, error) {
			return in.A, nil
		}),
		server.AddPrompt(srv, mcp.Prompt{Name: "named", Arguments: []mcp.PromptArgument{{Name: "a"}}}, func(_ context.Context, in map[string]string) (string, error) {
			return fmt.Sprint(in), nil
		}),
		server.AddMethod(srv, "com.example/m", func(_ context.Context, in in) (map[string]string, error) {
			return map[string]string{"type": fmt.Sprintf("%T", in.Any)}, nil
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, srv, modern)
	if got, err := c.result("t", `{"any":1.50,"other":1}`); err != nil || got.Text != "json.Number 1.50" {
		t.Errorf("tool: %+v, %v", got, err)
	}
	for _, tt := range []struct{ method, params, want string }{
		{"prompts/get", `{"name":"typed","arguments":{"a":"x","b":"y"}}`, `"text":"x"`},
		{"prompts/get", `{"name":"named","arguments":{"a":"x","b":"y"}}`, `"text":"map[a:x]"`},
		{"com.example/m", `{"any":1,"b":"y"}`, `"json.Number"`},
		{"tools/list", `{}`, `"format":"ipv4"`},
	} {
		got, err := c.call(t.Context(), tt.method, tt.params)
		if err != nil || !strings.Contains(string(got), tt.want) {
			t.Errorf("%s %s: %s, %v, want %s", tt.method, tt.params, got, err, tt.want)
		}
	}
}

// TestBytesOutput shows that a tool cannot return bytes, which a text block would show as base64.
func TestBytesOutput(t *testing.T) {
	type named []byte
	for name, add := range map[string]func(*server.Server) error{"[]byte": given([]byte("x")), "named": given(named("x"))} {
		if err := add(server.MustNew("test", "1", nil)); err == nil || !strings.Contains(err.Error(), "base64") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := given(json.RawMessage("1"))(server.MustNew("test", "1", nil)); err != nil {
		t.Error(err)
	}
}

// TestHeaderTag shows that a tag names the header of an argument, and that an invalid one fails the
// registration.
func TestHeaderTag(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	err := server.AddTool(srv, "good", "", func(_ context.Context, in struct {
		Region string `json:"region" schema:"x-mcp-header=Region"`
	}) (string, error) {
		return in.Region, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := connect(t, srv, modern).call(t.Context(), "tools/list", "{}")
	if err != nil || !strings.Contains(string(got), `"x-mcp-header":"Region"`) {
		t.Errorf("%s, %v", got, err)
	}
	err = server.AddTool(srv, "bad", "", func(_ context.Context, in struct {
		Region []string `json:"region" schema:"x-mcp-header=Region"`
	}) (string, error) {
		return "", nil
	})
	if err == nil {
		t.Error("an array was accepted as a header")
	}
}

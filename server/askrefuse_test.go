package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// TestAskUndeclared asks clients for what they have not declared.
//
// Spec: S106 S163 S172
func TestAskUndeclared(t *testing.T) {
	page := func(c *server.Call) error {
		_, err := c.ElicitURL(c, "k", "m", "https://example.com")
		return err
	}
	form := func(c *server.Call) error { _, err := c.Elicit(c, "k", nameForm); return err }
	sample := func(c *server.Call) error { _, err := c.Sample(c, "k", sum); return err }
	withTools := func(c *server.Call) error {
		p := *sum
		p.Tools = []mcp.Tool{{Name: "x", InputSchema: json.RawMessage(`{"type":"object"}`)}}
		_, err := c.Sample(c, "k", &p)
		return err
	}
	all := func(c *server.Call) error {
		q := c.InputRequests()
		q.Elicit("a", nameForm)
		q.ElicitURL("b", "m", "https://example.com")
		q.Sample("c", sum)
		q.Roots("d")
		return q.Wait(c)
	}
	for _, tt := range []struct {
		name, caps string
		ask        func(c *server.Call) error
		required   string // the data of the modern error; "" is none
		lacked     string
	}{
		{"form", `{}`, form, `{"elicitation":{"form":{}}}`, "elicitation by form"},
		{"form of a client with pages", `{"elicitation":{"url":{}}}`, form, `{"elicitation":{"form":{}}}`, "elicitation by form"},
		{"form, null", `{"elicitation":null}`, form, `{"elicitation":{"form":{}}}`, "elicitation by form"},
		{"form, empty capability", `{"elicitation":{}}`, form, "", ""},
		{"form, with a page", `{"elicitation":{"form":{},"url":{}}}`, form, "", ""},
		{"page", `{"elicitation":{}}`, page, `{"elicitation":{"url":{}}}`, "elicitation by URL"},
		{"page of a client with forms", `{"elicitation":{"form":{}}}`, page, `{"elicitation":{"url":{}}}`, "elicitation by URL"},
		{"page, declared", `{"elicitation":{"url":{}}}`, page, "", ""},
		{"sampling", `{"roots":{}}`, sample, `{"sampling":{}}`, "sampling"},
		{"sampling, declared", `{"sampling":{}}`, sample, "", ""},
		{"tools", `{"sampling":{}}`, withTools, `{"sampling":{"tools":{}}}`, "sampling with tools"},
		{"tools, declared", `{"sampling":{"tools":{}}}`, withTools, "", ""},
		{"roots", `{}`, func(c *server.Call) error { _, err := c.Roots(c, "k"); return err }, `{"roots":{}}`, "roots"},
		{"several", `{"sampling":{}}`, all, `{"elicitation":{"form":{},"url":{}},"roots":{}}`, "elicitation by form, elicitation by URL, roots"},
		{"required before", `{"sampling":{}}`, func(c *server.Call) error {
			return c.Require(server.Roots, server.Sampling, server.SamplingTools)
		}, `{"roots":{},"sampling":{"tools":{}}}`, "roots, sampling with tools"},
	} {
		for _, revision := range []string{"2025-11-25", modern} {
			t.Run(tt.name+"/"+revision, func(t *testing.T) {
				c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
					err := tt.ask(c)
					unsupported, is := errors.AsType[*server.UnsupportedError](err)
					if is != (tt.lacked != "") || is && len(unsupported.Missing) == 0 {
						t.Errorf("%v", err)
					}
					return "done", err
				}), revision, tt.caps)
				c.answer = func(_ context.Context, method, params string) (string, error) {
					if strings.Contains(params, `"url"`) {
						return `{"action":"accept"}`, nil
					}
					return answers[method], nil
				}
				got, err := c.tool()
				e, _ := errors.AsType[*jsonrpc.Error](err)
				switch {
				case tt.lacked == "":
					if err != nil || got != "done" {
						t.Errorf("got %q, %v", got, err)
					}
					return
				case len(c.takeAsked()) > 0:
					t.Error("the client was asked")
				case revision != modern:
					if want := "error: the client has not declared what is needed here: " + tt.lacked; err != nil || got != want {
						t.Errorf("got %q, %v; want %q", got, err, want)
					}
				case e == nil || e.Code != mcp.CodeMissingRequiredClientCapability || string(e.Data) != `{"requiredCapabilities":`+tt.required+`}`:
					t.Errorf("got %q, %v with data %s", got, err, dataOf(e))
				}
			})
		}
	}
}

func dataOf(e *jsonrpc.Error) string {
	if e == nil {
		return ""
	}
	return string(e.Data)
}

// TestDoWithout shows that a handler may do without what the client lacks.
func TestDoWithout(t *testing.T) {
	for _, revision := range allRevisions {
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			if c.Supports(server.Sampling) {
				t.Error("sampling is supported")
			}
			if _, err := c.Sample(c, "k", sum); err != nil {
				if _, ok := errors.AsType[*server.UnsupportedError](err); ok {
					return "without", nil
				}
			}
			return "with", nil
		}), revision, `{}`)
		if got, err := c.tool(); err != nil || got != "without" {
			t.Errorf("%s: got %q, %v", revision, got, err)
		}
	}
}

// TestBadQuestions asks what cannot be asked. Nothing is sent then, and no other question that goes with it.
//
// Spec: S173 S174 S176 S183 S184
func TestBadQuestions(t *testing.T) {
	page := func(url string) func(q *server.InputRequests) {
		return func(q *server.InputRequests) { q.ElicitURL("k", "m", url) }
	}
	form := func(schema string) func(q *server.InputRequests) {
		return func(q *server.InputRequests) {
			q.Elicit("k", &mcp.ElicitRequestParams{Message: "m", RequestedSchema: []byte(schema)})
		}
	}
	for _, tt := range []struct {
		name, want string
		add        func(q *server.InputRequests)
	}{
		{"no key", "needs a key", func(q *server.InputRequests) { q.Roots("") }},
		{"a key of no UTF-8", "needs a key", func(q *server.InputRequests) { q.Roots("\xff") }},
		{"a key twice", "already", func(q *server.InputRequests) { q.Roots("x"); q.Roots("x") }},
		{"no params", "needs params", func(q *server.InputRequests) { q.Elicit("k", nil) }},
		{"no message", "needs a message", func(q *server.InputRequests) { q.ElicitURL("k", "", "https://example.com") }},
		{"unknown mode", "mode", func(q *server.InputRequests) {
			q.Elicit("k", &mcp.ElicitRequestParams{Mode: "voice", Message: "m", RequestedSchema: nameForm.RequestedSchema})
		}},
		{"no schema", "requestedSchema", func(q *server.InputRequests) { q.Elicit("k", &mcp.ElicitRequestParams{Message: "m"}) }},
		{"task", "task", func(q *server.InputRequests) {
			p := *nameForm
			p.Task = &mcp.TaskMetadata{}
			q.Elicit("k", &p)
		}},
		{"schema is no JSON", "invalid JSON", form(`{`)},
		{"schema of an array", "root", form(`{"type":"array"}`)},
		{"schema is true", "root", form(`true`)},
		{"no properties", "properties", form(`{"type":"object"}`)},
		{"nested object", "no fields but", form(`{"type":"object","properties":{"a":{"type":"object"}}}`)},
		{"array of numbers", "no fields but", form(`{"type":"object","properties":{"a":{"type":"array","items":{"type":"number"}}}}`)},
		{"field is true", "no fields but", form(`{"type":"object","properties":{"a":true}}`)},
		{"field of two types", "no fields but", form(`{"type":"object","properties":{"a":{"type":["string","null"]}}}`)},
		{"broken keyword", "minLength", form(`{"type":"object","properties":{"a":{"type":"string","minLength":"x"}}}`)},
		{"no URL", "url", page("")},
		{"relative URL", "https", page("/login")},
		{"script", "https", page("javascript:alert(1)")},
		{"no host", "https", page("https:///x")},
		{"malformed URL", "url", page("https://exa mple.com/%zz")},
		{"URL with a blank", "percent-encoded", page("https://example.com/a b")},
		{"URL of more than ASCII", "percent-encoded", page("https://example.com/é")},
		{"credentials", "password", page("https://user:pass@example.com")},
		{"form of no struct", "struct", func(q *server.InputRequests) { server.Form[int](q, "k", "m") }},
		{"form with a nested struct", "no fields but", func(q *server.InputRequests) { server.Form[struct{ A struct{ B int } }](q, "k", "m") }},
		{"form with a channel", "chan", func(q *server.InputRequests) { server.Form[struct{ A chan int }](q, "k", "m") }},
		{"no sampling params", "needs params", func(q *server.InputRequests) { q.Sample("k", nil) }},
	} {
		for _, revision := range []string{"2025-11-25", modern} {
			asked := withTool(t, nil, func(c *server.Call) (string, error) {
				q := c.InputRequests()
				q.Roots("other")
				tt.add(q)
				err := q.Wait(c)
				if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, server.ErrInputRequired) {
					t.Errorf("%s, %s: %v, want one with %q", tt.name, revision, err, tt.want)
				}
				if err := q.Wait(c); err != nil {
					t.Errorf("%s, %s: nothing was added, but %v", tt.name, revision, err)
				}
				return "done", nil
			})
			c := respond(t, asked, revision, everything)
			if got, err := c.tool(); err != nil || got != "done" || len(c.takeAsked()) > 0 {
				t.Errorf("%s, %s: got %q, %v", tt.name, revision, got, err)
			}
		}
	}
}

// TestTooManyQuestions asks more than a call may.
func TestTooManyQuestions(t *testing.T) {
	c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
		q := c.InputRequests()
		for i := range 65 {
			q.Roots(fmt.Sprint(i))
		}
		return "", q.Wait(c)
	}), modern, everything)
	if got, err := c.tool(); err != nil || !strings.Contains(got, "more than 64 questions") {
		t.Errorf("got %q, %v", got, err)
	}
}

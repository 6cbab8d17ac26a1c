package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestElicitContent: what the handler puts into a form is held against the form, in both eras.
func TestElicitContent(t *testing.T) {
	const form = `{"type":"object","properties":{"city":{"type":"string","minLength":2},"n":{"type":"integer"}},"required":["city"]}`
	for _, tt := range []struct {
		name, schema, content string
		err                   string // "" if it is right
	}{
		{"right", form, `{"city":"Oslo","n":1}`, ""},
		{"with more than was asked for", form, `{"city":"Oslo","more":null}`, ""},
		{"too short", form, `{"city":"O"}`, "content.city"},
		{"of another type", form, `{"city":"Oslo","n":"one"}`, "content.n"},
		{"incomplete", form, `{"n":1}`, `missing required property "city"`},
		{"missing", form, "", `missing required property "city"`},
		{"missing where nothing is required", `{"type":"object","properties":{}}`, "", ""},
		{"no object", form, `["Oslo"]`, "JSON object"},
		{"a form that makes no sense", `{"type":"object","properties":{"city":{"minLength":-1}}}`, `{"city":"O"}`, ""},
		{"a form that is too large", `{"type":"object","properties":{"n":{"type":"string"}},"title":"` + strings.Repeat("x", maxSchemaBytes) + `"}`, `{"n":1}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := Options{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				result := &mcp.ElicitResult{Action: mcp.ElicitActionAccept}
				if tt.content != "" {
					result.Content = json.RawMessage(tt.content)
				}
				return result, nil
			}}
			ask := `{"method":"elicitation/create","params":{"message":"where?","requestedSchema":` + tt.schema + `}}`
			legacyRevision(t, mcp.Revision20250618, opts, func(s *script) {
				s.ask("1", ask)
				if tt.err == "" {
					s.expectResult("1")
				} else if code := s.expectError("1"); code != jsonrpc.CodeInternalError {
					s.t.Errorf("legacy: error %d", code)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, &opts, func(s *script) {
					s.discovers()
					s.answer(s.expect("tools/call"), required(`"inputRequests":{"k":`+ask+`}`))
					if tt.err == "" {
						s.answer(s.expect("tools/call"), "{}")
					}
					s.expectEnd()
				})
				err := c.Call(t.Context(), "tools/call", nil, nil)
				if tt.err == "" && err != nil || tt.err != "" && (!is[*InputError](err) || !strings.Contains(err.Error(), tt.err)) {
					t.Errorf("modern: got %v, want %q", err, tt.err)
				}
			})
		})
	}
}

// TestElicitPage: a handler is only asked to send its user to web pages.
func TestElicitPage(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://example.com/a?b": true, "http://localhost:8080": true, "HTTPS://EXAMPLE.COM": true,
		"": false, "/relative": false, "https:///nowhere": false, "https://%zz": false,
		"file:///etc/passwd": false, "javascript:alert(1)": false, "data:text/html,x": false, "ms-settings:": false,
	} {
		var seen string
		opts := Options{ElicitModes: ElicitURL, Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			seen = p.URL
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{}`)}, nil
		}}
		ask := fmt.Sprintf(`{"method":"elicitation/create","params":{"mode":"url","message":"go","url":%q}}`, url)
		legacyRevision(t, mcp.Revision20251125, opts, func(s *script) {
			s.ask("1", ask)
			if ok {
				if got := s.expectResult("1"); got != isURL {
					s.t.Errorf("%q: got %s", url, got)
				}
			} else if code := s.expectError("1"); code != jsonrpc.CodeInvalidParams {
				s.t.Errorf("%q: error %d", url, code)
			}
		})
		if (seen == url && url != "") != ok {
			t.Errorf("%q: the handler was asked for %q", url, seen)
		}
		synctest.Test(t, func(t *testing.T) {
			c := dial(t, &opts, func(s *script) {
				s.discovers()
				s.answer(s.expect("tools/call"), required(`"inputRequests":{"k":`+ask+`}`))
				if ok {
					s.answer(s.expect("tools/call"), "{}")
				}
				s.expectEnd()
			})
			if err := c.Call(t.Context(), "tools/call", nil, nil); (err == nil) != ok || !ok && !is[*ProtocolError](err) {
				t.Errorf("%q: got %v", url, err)
			}
		})
	}
}

// TestRelatedTask: what a handler answers belongs to the task that the question belongs to, where tasks are part of the protocol.
// Spec: T14 T22
func TestRelatedTask(t *testing.T) {
	const related = `"io.modelcontextprotocol/related-task":{"taskId":"t"}`
	opts := answering()
	opts.Sample = func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
		r := &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Content: mcp.SamplingContent{mcp.TextContent{Text: "t"}}, Model: "m"}
		r.Meta = json.RawMessage(`{"a.b/c":1}`)
		return r, nil
	}
	for _, r := range onlyLegacy {
		legacyRevision(t, r, opts, func(s *script) {
			for _, tt := range []struct{ request, meta, want string }{
				{`{"method":"roots/list","params":{"_meta":{` + related + `}}}`, related, isRoots},
				{askRoots, "", isRoots},
				{strings.Replace(askSample, `"maxTokens"`, `"_meta":{`+related+`},"maxTokens"`, 1), `"a.b/c":1,` + related, isSample},
				{`{"method":"ping","params":{"_meta":{` + related + `}}}`, "", `{}`},
			} {
				if r != mcp.Revision20251125 {
					tt.meta = strings.TrimSuffix(strings.TrimSuffix(tt.meta, related), ",")
				}
				s.ask("1", tt.request)
				rest, meta := splitMeta([]byte(s.expectResult("1")))
				if string(rest) != tt.want || string(objectBody(meta)) != tt.meta {
					s.t.Errorf("%v: got %s and _meta %s, want %s and %s", r, rest, meta, tt.want, tt.meta)
				}
			}
		})
	}
}

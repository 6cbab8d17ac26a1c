package matrix

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

// testInput returns the test of a tool with one input request. It checks the request and the
// result.
func testInput(tool, want, request string) func(s *subtest) {
	return func(s *subtest) {
		var u user
		same(s, "result", s.call(s.dial(u.answers), tool, nil), want)
		same(s, "input requests", u.take(), []string{request})
	}
}

// testUnsupported returns the test of a tool whose input request does not exist in the revision.
func testUnsupported(tool, what string) func(s *subtest) {
	return func(s *subtest) {
		var u user
		same(s, "result", s.call(s.dial(u.answers), tool, nil), "error: the client has not declared a required capability: "+what)
		same(s, "input requests", len(u.take()), 0)
	}
}

func TestInput(t *testing.T) {
	testBehaviors(t, "input", []behavior{
		// Spec: S173 S174 C103 C105
		{name: "a form", when: func(f *features) bool { return f.Elicitation },
			test: testInput("form", street, `form Where to? {"type":"object","properties":{`+
				`"street":{"type":"string","minLength":3,"title":"Street and number"},"speed":{"type":"string","enum":["normal","express"]},`+
				`"floors":{"type":"integer"},"ring":{"type":"boolean"},"weight":{"type":"number"}},"required":["street","speed"]}`),
			instead: testUnsupported("form", "elicitation by form")},
		// Spec: S172 S175 C104
		{name: "a URL", when: func(f *features) bool { return f.URLElicitation }, test: func(s *subtest) {
			id := "false"
			if s.ElicitationIDs {
				id = "true"
			}
			testInput("page", "accept", "page Log in https://example.com/login "+id)(s)
		}, instead: testUnsupported("page", "elicitation by URL")},
		// Spec: C96
		{name: "sampling", test: testInput("sample", `m endTurn {"role":"assistant","content":{"type":"text","text":"4"}}`, "sample Be short. 10 1 0")},
		// Spec: S163 C97
		{name: "sampling with tools", when: func(f *features) bool { return f.SamplingTools },
			test: testInput("sample with tools", `m toolUse {"role":"assistant","content":{"type":"tool_use","id":"u","name":"add","input":{"a":2}}}`,
				"sample Be short. 10 1 1"),
			instead: testUnsupported("sample with tools", "sampling with tools")},
		// Spec: C89
		{name: "roots", test: testInput("roots", "home file:///home", "roots")},
		{name: "several input requests at once", test: func(s *subtest) {
			var u user
			var w wire
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				w.record(o)
			})
			want, kinds := "home m ", []string{"roots", "sample"}
			if s.Elicitation {
				want, kinds = "home m Main St 1", []string{"form", "roots", "sample"}
			}
			same(s, "result", s.call(c, "several", nil), want)
			var got []string
			for _, line := range u.take() {
				kind, _, _ := strings.Cut(line, " ")
				got = append(got, kind)
			}
			slices.Sort(got)
			same(s, "input requests", got, kinds)
			rounds := 0
			if s.Modern {
				rounds = 1
			}
			same(s, "rounds", w.count("< ", `"inputRequests":`), rounds)
		}},
		// Spec: S101 S103 S105 C6 C38 C69 C73
		{name: "an input request in a result", when: modern, test: func(s *subtest) {
			var u user
			var w wire
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				w.record(o)
			})
			same(s, "result", s.call(c, "roots", nil), "home file:///home")
			same(s, "results with input requests", w.count("< ", `"resultType":"input_required"`, `"requestState":"`), 1)
			if ids := w.ids(s, mcp.MethodToolsCall); len(ids) != 2 || ids[0] == ids[1] {
				s.Errorf("got calls with the ids %q, want two different ids", ids)
			}
			same(s, "calls with input responses", w.count("> ", `"tools/call"`, `"inputResponses":{"root":{"roots":[`, `"requestState":"`), 1)
			same(s, "response messages", w.count("> ", `"result":`), 0)
		}, instead: func(s *subtest) {
			var u user
			var w wire
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				w.record(o)
			})
			same(s, "result", s.call(c, "roots", nil), "home file:///home")
			same(s, "calls", w.count("> ", `"tools/call"`), 1)
			same(s, "requests", w.count("< ", `"method":"roots/list"`, `"id":`), 1)
			same(s, "response messages", w.count("> ", `"result":{"roots":[`), 1)
		}},
		{name: "a handler runs again, and its Once function does not", test: func(s *subtest) {
			var u user
			c := s.dial(u.answers)
			same(s, "result", s.call(c, "order", nil), "order 1")
			want := "1 1" // number of runs and of orders
			if s.Modern {
				want = "3 1"
			}
			same(s, "runs", s.call(c, "runs", nil), want)
			same(s, "second call", s.call(c, "order", nil), "order 2")
		}},
		// Spec: S102
		{name: "prompts and resources can send input requests, completions cannot", test: func(s *subtest) {
			var u user
			c := s.dial(u.answers)
			p, err := c.GetPrompt(s.Context(), "roots", nil)
			ok(s, "prompt", err)
			same(s, "prompt", p.Messages, []mcp.PromptMessage{{Role: mcp.RoleUser, Content: mcp.TextContent{Text: "home file:///home"}}})
			for range 2 { // a result that depends on input is not cached
				res, err := c.ReadResource(s.Context(), "lib://roots")
				ok(s, "read", err)
				same(s, "resource", res.Contents[0].Text, "home file:///home")
				if s.Modern && (*res.TTLMs != 0 || res.CacheScope != mcp.CacheScopePrivate) {
					s.Errorf("got TTL %d ms, scope %s, want 0 ms, private", *res.TTLMs, res.CacheScope)
				}
			}
			same(s, "input requests", len(u.take()), 3)
			completion, err := c.Complete(s.Context(), mcp.PromptReference{Name: "roots"}, mcp.CompleteArgument{Name: "x"}, nil)
			ok(s, "complete", err)
			same(s, "completions", completion.Values, []string{"true"})
		}},
		// Spec: S31 S32
		{name: "a client without input capabilities", when: modern, test: func(s *subtest) {
			for tool, want := range map[string]string{
				"roots": `{"requiredCapabilities":{"roots":{}}}`, "sample": `{"requiredCapabilities":{"sampling":{}}}`,
				"sample with tools": `{"requiredCapabilities":{"sampling":{"tools":{}}}}`,
				"form":              `{"requiredCapabilities":{"elicitation":{"form":{}}}}`, "page": `{"requiredCapabilities":{"elicitation":{"url":{}}}}`,
			} {
				_, err := s.client().CallTool(s.Context(), tool, nil)
				same(s, tool, string(wantError(s, tool, err, mcp.CodeMissingRequiredClientCapability).Data), want)
			}
		}, instead: func(s *subtest) {
			for tool, want := range map[string]string{
				"roots": "roots", "sample": "sampling", "sample with tools": "sampling with tools", "form": "elicitation by form", "page": "elicitation by URL",
			} {
				same(s, tool, s.call(s.client(), tool, nil), "error: the client has not declared a required capability: "+want)
			}
			_, err := s.client().ReadResource(s.Context(), "lib://roots")
			wantError(s, "read", err, jsonrpc.CodeInvalidRequest)
		}},
		// Spec: C90
		{name: "changed roots", test: func(s *subtest) {
			var u user
			var w wire
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				w.record(o)
			})
			ok(s, "roots changed", c.RootsChanged(s.Context()))
			notified := 0
			if !s.Modern {
				notified = 1
				same(s, "received", s.call(c, "roots changed", nil), "true")
			}
			same(s, "notifications", w.count("> ", mcp.NotificationRootsChanged), notified)
		}},
		{name: "timeouts while the user responds", bubbleOnly: true, test: func(s *subtest) {
			var u user
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				roots := o.Input.Roots
				o.Input.Roots = func(ctx context.Context) ([]mcp.Root, error) {
					select {
					case <-time.After(10 * time.Second):
						return roots(ctx)
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
			})
			same(s, "result", s.call(c, "roots", nil, client.WithTimeout(5*time.Second)), "home file:///home")
			_, err := c.CallTool(s.Context(), "roots", nil, client.WithTotalTimeout(5*time.Second))
			if e, is := errors.AsType[*client.TimeoutError](err); !is || !e.Max {
				s.Errorf("got %v", err)
			}
		}},
		// Spec: S108 S109 S110
		{name: "a modified request state", when: modern, test: func(s *subtest) {
			p := s.peer()
			ask := func(id int, more string) string {
				return `{"jsonrpc":"2.0","id":` + string(jsonrpc.IntID(int64(id))) + `,"method":"tools/call","params":{"_meta":{` +
					`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}},` +
					`"name":"roots"` + more + `}}`
			}
			p.Send(ask(1, ""))
			p.Expect(mcptest.Result(1, `{"resultType":"input_required","inputRequests":{"root":{"method":"roots/list","params":{}}},"requestState":"$state","_meta":"$any"}`))
			state := strings.Trim(p.Value("state"), `"`)
			const answer = `,"inputResponses":{"root":{"roots":[{"uri":"file:///x","name":"x"}]}},"requestState":"`
			other := "A"
			if state[20] == 'A' {
				other = "B"
			}
			for i, bad := range []string{state[:20] + other + state[21:], state + "AAAA", state[:len(state)/2], "", strings.Repeat("A", len(state))} {
				p.Send(ask(10+i, answer+bad+`"`))
				p.Expect(`{"jsonrpc":"2.0","id":"$any","error":{"code":-32602,"$any":"$any"}}`)
			}
			p.Send(ask(3, `,"arguments":{"x":1}`+answer+state+`"`)) // the state is bound to the arguments
			p.Expect(`{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"$any":"$any"}}`)
			p.Send(ask(4, answer+state+`"`))
			p.Expect(mcptest.Result(4, `{"content":[{"type":"text","text":"x file:///x"}],"$any":"$any"}`))
		}, instead: func(s *subtest) { // without a request state
			p := s.peerWithoutHandshake()
			p.Send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + s.revision.String() + `","capabilities":{"roots":{}},"clientInfo":{"name":"x","version":"1"}}}`)
			p.Expect(mcptest.Result(0, `"$any"`))
			p.Send(mcptest.Initialized)
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"roots"}`))
			p.Expect(`{"jsonrpc":"2.0","id":"$id","method":"roots/list"}`)
			p.Send(`{"jsonrpc":"2.0","id":"$id","result":{"roots":[{"uri":"file:///x","name":"x"}]}}`)
			p.Expect(mcptest.Result(1, `{"content":[{"type":"text","text":"x file:///x"}]}`))
		}},
	})
}

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ask sends a request to the client.
func (s *script) ask(id, request string) {
	s.t.Helper()
	s.send(`{"jsonrpc":"2.0","id":%s,%s`, id, strings.TrimPrefix(request, "{"))
}

// legacyRevision runs a test with a legacy server in a bubble.
func legacyRevision(t *testing.T, r mcp.Revision, opts Options, serve func(*script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.Revisions = []mcp.Revision{r}
		done := make(chan struct{})
		dial(t, &opts, func(s *script) {
			defer close(done)
			s.opening(r)
			serve(s)
		})
		<-done
	})
}

// TestServerRequests shows that requests of a legacy server reach the handlers, and that requests
// that need an undeclared capability are rejected.
//
// Spec: C5 C32 C87 C98 C105 C114
func TestServerRequests(t *testing.T) {
	const tools = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"tools":[]}}`
	none := func(o *Options) { *o = Options{} }
	for _, tt := range []struct {
		name    string
		request string
		opts    func(*Options)
		want    string // expected result
		code    jsonrpc.Code
		since   mcp.Revision // revisions before it do not define the method
		bad     bool         // revisions before it return -32602 instead
	}{
		{name: "ping", request: `{"method":"ping"}`, opts: none, want: `{}`},
		{name: "form", request: askForm, want: isForm, since: mcp.Revision20250618},
		{name: "form by name", request: strings.Replace(askForm, `"message"`, `"mode":"form","message"`, 1), want: isForm, since: mcp.Revision20250618},
		{name: "url", request: askURL, want: isURL, since: mcp.Revision20251125},
		{name: "url undeclared", request: askURL, opts: func(o *Options) { o.Input.ElicitModes = []mcp.ElicitMode{mcp.ElicitModeForm} }, code: -32602, since: mcp.Revision20250618},
		{name: "form undeclared", request: askForm, opts: func(o *Options) { o.Input.ElicitModes = []mcp.ElicitMode{mcp.ElicitModeURL} }, code: -32602, since: mcp.Revision20251125},
		{name: "elicitation undeclared", request: askForm, opts: none, code: -32601},
		{name: "elicitation declined", request: strings.Replace(askForm, "name?", "decline", 1), want: `{"action":"decline"}`, since: mcp.Revision20250618},
		{name: "elicitation failed", request: strings.Replace(askForm, "name?", "fail", 1), want: `{"action":"cancel"}`, since: mcp.Revision20250618},
		{name: "elicitation without a message", request: `{"method":"elicitation/create","params":{}}`, code: -32602, since: mcp.Revision20250618},
		{name: "sampling", request: askSample, want: isSample},
		{name: "sampling undeclared", request: askSample, opts: none, code: -32601},
		{name: "sampling without params", request: `{"method":"sampling/createMessage"}`, code: -32602},
		{name: "sampling with tools", request: tools, want: isSample, since: mcp.Revision20251125, bad: true},
		{name: "sampling with tools undeclared", request: tools, opts: func(o *Options) { o.Input.SampleTools = false }, code: -32602},
		{name: "sampling rejected", request: strings.Replace(askSample, "{\"messages", `{"systemPrompt":"refuse","messages`, 1), code: -1},
		{name: "sampling failed", request: strings.Replace(askSample, "{\"messages", `{"systemPrompt":"fail","messages`, 1), code: -32603},
		{name: "sampling with an error", request: strings.Replace(askSample, "{\"messages", `{"systemPrompt":"error","messages`, 1), code: -5},
		{name: "sampling panics", request: strings.Replace(askSample, "{\"messages", `{"systemPrompt":"panic","messages`, 1), code: -32603},
		{name: "roots", request: askRoots, want: isRoots},
		{name: "roots undeclared", request: askRoots, opts: none, code: -32601},
		{name: "unknown", request: `{"method":"tools/list"}`, code: -32601},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range onlyLegacy {
				opts := answering()
				if tt.opts != nil {
					tt.opts(&opts)
				}
				want, code := tt.want, tt.code
				if r < tt.since {
					if want, code = "", -32601; tt.bad || tt.name == "url" && r == mcp.Revision20250618 {
						code = -32602
					}
				}
				legacyRevision(t, r, opts, func(s *script) {
					s.ask(`"q"`, tt.request)
					if code == 0 {
						if got := s.expectResult(`"q"`); got != want {
							s.t.Errorf("%v: got %s, want %s", r, got, want)
						}
					} else if got := s.expectError(`"q"`); got != code {
						s.t.Errorf("%v: got %d, want %d", r, got, code)
					}
					s.ask(`2`, `{"method":"ping"}`)
					s.expectResult("2")
				})
			}
		})
	}
}

// TestServerRequestCanceled shows that the handler's context ends when the server cancels its
// request, which gets no response. A ping gets its response meanwhile.
func TestServerRequestCanceled(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	opts := Options{Input: InputOptions{Roots: func(ctx context.Context) ([]mcp.Root, error) {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, nil
	}}}
	legacyRevision(t, mcp.Revision20251125, opts, func(s *script) {
		s.ask("1", askRoots)
		s.ask("2", `{"method":"ping"}`)
		s.expectResult("2")
		<-began // a request that is canceled earlier is not handled
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			s.t.Errorf("got %v", err)
		}
		s.ask("3", `{"method":"ping"}`)
		s.expectResult("3")
	})
}

// TestServerRequestsEnd shows that a handler's context ends with the connection, and that the
// client does not wait long for handlers that ignore it.
func TestServerRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		opts := Options{Revisions: onlyLegacy, Input: InputOptions{Roots: func(ctx context.Context) ([]mcp.Root, error) {
			<-ctx.Done()
			<-gate
			return nil, nil
		}}}
		c := dial(t, &opts, func(s *script) {
			s.opening(mcp.Revision20251125)
			s.ask("1", askRoots)
			s.expectEnd()
		})
		synctest.Wait()
		began := time.Now()
		c.Close()
		if d := time.Since(began); d > drainTimeout {
			t.Errorf("closing took %v", d)
		}
		close(gate)
	})
}

// TestManyServerRequests shows that handlers run concurrently, up to the limit, and that all
// requests get responses.
func TestManyServerRequests(t *testing.T) {
	var handlers gauge
	opts := Options{Limits: Limits{MaxRequests: 3}, Input: InputOptions{Roots: func(context.Context) ([]mcp.Root, error) {
		defer handlers.enter()()
		elapse(time.Second)
		return nil, nil
	}}}
	legacyRevision(t, mcp.Revision20251125, opts, func(s *script) {
		for i := range 10 {
			s.ask(fmt.Sprint(i), askRoots)
		}
		for range 10 {
			if m := s.next(); string(m.Result) != `{"roots":[]}` {
				s.t.Errorf("got %s", m.line)
			}
		}
	})
	if handlers.most != 3 {
		t.Errorf("%d handlers at once", handlers.most)
	}
}

// TestModernSilence shows that the client sends no response to a modern server, whatever it
// receives.
//
// Spec: C6 C38
func TestModernSilence(t *testing.T) {
	opts := answering()
	opts.Revisions = onlyModern
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, &opts, func(s *script) {
			s.discovers()
			m := s.expect("m")
			for i, request := range []string{`{"method":"ping"}`, askRoots, askForm, `{"method":"unknown"}`, `{"method":5}`} {
				s.ask(fmt.Sprint(i), request)
			}
			s.send("a stray line")
			s.send(`{"jsonrpc":"2.0"}`)
			s.send(`[{"jsonrpc":"2.0","id":9,"method":"ping"},1]`)
			elapse(time.Second)
			s.answer(m, "{}")
			s.expectEnd()
		})
		if err := c.Call(t.Context(), "m", nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestStrayLines shows that text that a legacy server prints by mistake gets no response.
func TestStrayLines(t *testing.T) {
	legacyRevision(t, mcp.Revision20241105, Options{}, func(s *script) {
		s.send("Listening on stdin ...")
		s.send("{}")
		s.send(`{"jsonrpc":"2.0","id":1,"method":"ping","params":5}`)
		if got := s.expectError("1"); got != jsonrpc.CodeInvalidRequest {
			s.t.Errorf("got %d", got)
		}
		s.ask("2", `{"method":"ping"}`)
		s.expectResult("2")
	})
}

// TestRootsChanged shows that legacy servers are notified of changes if the client has declared
// roots.
//
// Spec: C90
func TestRootsChanged(t *testing.T) {
	for _, declared := range []bool{true, false} {
		opts := Options{}
		if declared {
			opts = answering()
		}
		everyRevision(t, opts, func(s *script, r mcp.Revision) {
			if declared && !r.Modern() {
				s.expect("notifications/roots/list_changed")
			}
			s.answer(s.expect("m"), "{}")
			s.expectEnd()
		}, func(t *testing.T, c *Client, _ mcp.Revision) {
			if err := c.RootsChanged(t.Context()); err != nil {
				t.Error(err)
			}
			if err := c.Call(t.Context(), "m", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRoots shows that only file URIs are sent to a server, and none with a path that leads to
// another folder.
//
// Spec: C91 C93
func TestRoots(t *testing.T) {
	for uri, ok := range map[string]bool{
		"file:///a/b": true, "file://host/c": true, "file:///a/..b": true, "file:///C:/x": true,
		"": false, "/a": false, "http://x/": false, "file:": false, "file:a": false, "file:///a/../b": false, "file:///a/%2e%2E/b": false, "file:///a/..": false, `file:///a\..\b`: false, "file:///%zz": false,
	} {
		opts := Options{Input: InputOptions{Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///ok"}, {URI: uri}}, nil }}}
		legacyRevision(t, mcp.Revision20250618, opts, func(s *script) {
			s.ask("1", askRoots)
			if m := s.next(); (m.Result != nil) != ok || strings.Contains(string(m.Error), "..") {
				s.t.Errorf("%s: got %s", uri, m.line)
			}
		})
	}
}

// TestElicitContent checks that the client validates a handler's form content against the form, in
// both eras.
func TestElicitContent(t *testing.T) {
	const form = `{"type":"object","properties":{"city":{"type":"string","minLength":2},"n":{"type":"integer"}},"required":["city"]}`
	for _, tt := range []struct {
		name, schema, content string
		err                   string // empty for valid content
	}{
		{"right", form, `{"city":"Oslo","n":1}`, ""},
		{"with an unknown property", form, `{"city":"Oslo","more":null}`, ""},
		{"too short", form, `{"city":"O"}`, "content.city"},
		{"of the wrong type", form, `{"city":"Oslo","n":"one"}`, "content.n"},
		{"incomplete", form, `{"n":1}`, `missing required property "city"`},
		{"missing", form, "", `missing required property "city"`},
		{"missing optional content", `{"type":"object","properties":{}}`, "", ""},
		{"no object", form, `["Oslo"]`, "JSON object"},
		{"a form with an invalid schema", `{"type":"object","properties":{"city":{"minLength":-1}}}`, `{"city":"O"}`, ""},
		{"a form that is too large", `{"type":"object","properties":{"n":{"type":"string"}},"title":"` + strings.Repeat("x", maxSchemaBytes) + `"}`, `{"n":1}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := Options{Input: InputOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				result := &mcp.ElicitResult{Action: mcp.ElicitActionAccept}
				if tt.content != "" {
					result.Content = json.RawMessage(tt.content)
				}
				return result, nil
			}}}
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

// TestElicitPage checks that a handler gets only URLs of web pages.
func TestElicitPage(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://example.com/a?b": true, "http://localhost:8080": true, "HTTPS://EXAMPLE.COM": true,
		"": false, "/relative": false, "https:///nowhere": false, "https://%zz": false,
		"file:///etc/passwd": false, "javascript:alert(1)": false, "data:text/html,x": false, "ms-settings:": false,
	} {
		var seen string
		opts := Options{Input: InputOptions{ElicitModes: []mcp.ElicitMode{mcp.ElicitModeURL}, Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			seen = p.URL
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{}`)}, nil
		}}}
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

// TestRelatedTask shows that the response of a handler names the task of the server's request in
// revisions that have tasks.
//
// Spec: T14 T22
func TestRelatedTask(t *testing.T) {
	const related = `"io.modelcontextprotocol/related-task":{"taskId":"t"}`
	opts := answering()
	opts.Input.Sample = func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
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

// answering returns options with handlers for all input requests.
func answering() Options {
	return Options{
		Input: InputOptions{
			Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				switch p.Message {
				case "decline":
					return &mcp.ElicitResult{Action: mcp.ElicitActionDecline, Content: json.RawMessage(`{"a":1}`)}, nil
				case "fail":
					return nil, errors.New("no screen")
				case "nothing":
					return nil, nil
				}
				return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"answer":` + fmt.Sprintf("%q", p.Message) + `}`)}, nil
			},
			ElicitModes: []mcp.ElicitMode{mcp.ElicitModeForm, mcp.ElicitModeURL},
			Sample: func(_ context.Context, p *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
				switch p.SystemPrompt {
				case "refuse":
					return nil, ErrRefused
				case "fail":
					return nil, errors.New("a secret")
				case "error":
					return nil, jsonrpc.Errorf(-5, "model is down")
				case "nothing":
					return nil, nil
				case "panic":
					panic("oh")
				}
				return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Content: mcp.SamplingContent{mcp.TextContent{Text: "t"}}, Model: "m"}, nil
			},
			SampleTools: true,
			Roots: func(context.Context) ([]mcp.Root, error) {
				return []mcp.Root{{URI: "file:///a", Name: "A"}}, nil
			},
		},
	}
}

const (
	askForm   = `{"method":"elicitation/create","params":{"message":"name?","requestedSchema":{"type":"object","properties":{}}}}`
	askURL    = `{"method":"elicitation/create","params":{"mode":"url","message":"go","url":"https://example.com"}}`
	askSample = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}}`
	askRoots  = `{"method":"roots/list"}`

	isForm   = `{"action":"accept","content":{"answer":"name?"}}`
	isURL    = `{"action":"accept"}`
	isSample = `{"role":"assistant","content":{"type":"text","text":"t"},"model":"m"}`
	isRoots  = `{"roots":[{"uri":"file:///a","name":"A"}]}`
)

// required returns an InputRequiredResult.
func required(members string) string { return `{"resultType":"input_required",` + members + `}` }

// TestInputRounds shows that the request of the next round differs from the first only in its id,
// the responses, and the state, which is returned byte for byte and for one round.
//
// Spec: C69 C70 C71 C72 C73 C74 C75
func TestInputRounds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result string // result of the first request
		want   string // members that the second request adds
	}{
		{"form", required(`"inputRequests":{"k":` + askForm + `}`), `"inputResponses":{"k":` + isForm + `}`},
		{"url", required(`"inputRequests":{"k":` + askURL + `}`), `"inputResponses":{"k":` + isURL + `}`},
		{"sampling", required(`"inputRequests":{"k":` + askSample + `}`), `"inputResponses":{"k":` + isSample + `}`},
		{"roots", required(`"inputRequests":{"k":` + askRoots + `}`), `"inputResponses":{"k":` + isRoots + `}`},
		{"with state", required(`"inputRequests":{"k":` + askRoots + `},"requestState":"a\u0062\/\ud83d \"<"`), `"inputResponses":{"k":` + isRoots + `},"requestState":"a\u0062\/\ud83d \"<"`},
		{"several, unusual keys", required(`"inputRequests":{"b":` + askURL + `,"":` + askForm + `,"a\u0062\"":` + askRoots + `,"1":` + askSample + `}`),
			`"inputResponses":{"b":` + isURL + `,"":` + isForm + `,"a\u0062\"":` + isRoots + `,"1":` + isSample + `}`},
		{"state without input requests", required(`"requestState":""`), `"requestState":""`},
		{"state and empty input requests", required(`"inputRequests":{ },"requestState":"x"`), `"requestState":"x"`},
		{"state and null input requests", required(`"inputRequests":null,"requestState":"x"`), `"requestState":"x"`},
		{"declined", required(`"inputRequests":{"k":` + strings.Replace(askForm, "name?", "decline", 1) + `}`), `"inputResponses":{"k":{"action":"decline"}}`},
		{"failed", required(`"inputRequests":{"k":` + strings.Replace(askForm, "name?", "fail", 1) + `}`), `"inputResponses":{"k":{"action":"cancel"}}`},
		{"nothing", required(`"inputRequests":{"k":` + strings.Replace(askForm, "name?", "nothing", 1) + `}`), `"inputResponses":{"k":{"action":"cancel"}}`},
	} {
		for _, method := range []string{"tools/call", "prompts/get", "resources/read"} {
			t.Run(tt.name+", "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					opts := answering()
					c := dial(t, &opts, func(s *script) {
						s.discovers()
						first := s.expect(method)
						s.answer(first, tt.result)
						second := s.expect(method)
						s.answer(second, required(`"inputRequests":{"other":`+askRoots+`}`))
						third := s.expect(method)
						s.answer(third, `{"resultType":"complete","done":true}`)
						for i, m := range []message{second, third} {
							want := strings.TrimSuffix(strings.TrimPrefix(first.line, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,`, first.ID)), "}}") +
								"," + []string{tt.want, `"inputResponses":{"other":` + isRoots + `}`}[i] + "}}"
							if m.line != fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s`, i+3, want) {
								s.t.Errorf("round %d\ngot  %s\nwant %s", i+2, m.line, want)
							}
						}
						if after := s.expect(method); memberOf(s.t, string(after.Params), "inputResponses") != "" || memberOf(s.t, string(after.Params), "requestState") != "" {
							s.t.Errorf("responses of one call were sent in another: %s", after.line)
						} else {
							s.answer(after, `{"resultType":"complete","done":true}`)
						}
						s.expectEnd()
					})
					for rounds := 2; rounds >= 0; rounds -= 2 {
						r := &request{method: method, params: []byte(`{"name":"n","x":[1]}`)}
						got, err := c.roundTrip(t.Context(), r)
						if err != nil || memberOf(t, string(got), "done") != "true" || r.inputRounds != rounds {
							t.Errorf("got %s, %v after %d rounds", got, err, r.inputRounds)
						}
					}
				})
			})
		}
	}
}

// TestInputErrors shows that input requests that the client cannot, or must not, handle end the
// call.
//
// Spec: C114 C98
func TestInputErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result string
		opts   func(*Options)
		want   string
		check  func(error) bool
	}{
		{name: "neither state nor input requests", result: required(`"x":1`), want: "without inputRequests and requestState", check: is[*ProtocolError]},
		{name: "no object", result: required(`"inputRequests":[]`), want: "inputRequests is not an object", check: is[*ProtocolError]},
		{name: "no string", result: required(`"requestState":{}`), want: "requestState is not a string", check: is[*ProtocolError]},
		{name: "no request", result: required(`"inputRequests":{"k":1}`), want: `"k" is not an object`, check: is[*ProtocolError]},
		{name: "no method", result: required(`"inputRequests":{"k":{}}`), want: `"k" is not an object`, check: is[*ProtocolError]},
		{name: "params no object", result: required(`"inputRequests":{"k":{"method":"roots/list","params":[]}}`), want: `"k" is not an object`, check: is[*ProtocolError]},
		{name: "unknown", result: required(`"inputRequests":{"k":{"method":"ping"}}`), want: "method not found: ping", check: is[*ProtocolError]},
		{name: "params", result: required(`"inputRequests":{"k":{"method":"elicitation/create","params":{"message":1}}}`), want: "message", check: is[*ProtocolError]},
		{name: "unknown mode", result: required(`"inputRequests":{"k":{"method":"elicitation/create","params":{"mode":"smell","message":"x"}}}`), want: `mode "smell"`, check: is[*ProtocolError]},
		{name: "too many", result: required(`"inputRequests":{"k":` + askRoots + strings.Repeat(`,"k":`+askRoots, maxInputRequests) + `}`), want: "more than 100", check: is[*ProtocolError]},
		{name: "no elicitation", result: required(`"inputRequests":{"k":` + askForm + `}`), opts: func(o *Options) { o.Input.Elicit = nil }, want: "client.Options.Input.Elicit", check: is[*ProtocolError]},
		{name: "no form", result: required(`"inputRequests":{"k":` + askForm + `}`), opts: func(o *Options) { o.Input.ElicitModes = []mcp.ElicitMode{mcp.ElicitModeURL} }, want: "client.Options.Input.ElicitModes", check: is[*ProtocolError]},
		{name: "no url", result: required(`"inputRequests":{"k":` + askURL + `}`), opts: func(o *Options) { o.Input.ElicitModes = nil }, want: "client.Options.Input.ElicitModes", check: is[*ProtocolError]},
		{name: "no sampling", result: required(`"inputRequests":{"k":` + askSample + `}`), opts: func(o *Options) { o.Input.Sample = nil }, want: "client.Options.Input.Sample", check: is[*ProtocolError]},
		{name: "no tools", result: required(`"inputRequests":{"k":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"tools":[]}}}`), opts: func(o *Options) { o.Input.SampleTools = false },
			want: "client.Options.Input.SampleTools", check: is[*ProtocolError]},
		{name: "no tool choice", result: required(`"inputRequests":{"k":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"toolChoice":{"mode":"auto"}}}}`), opts: func(o *Options) { o.Input.SampleTools = false },
			want: "client.Options.Input.SampleTools", check: is[*ProtocolError]},
		{name: "no roots", result: required(`"inputRequests":{"k":` + askRoots + `}`), opts: func(o *Options) { o.Input.Roots = nil }, want: "client.Options.Input.Roots", check: is[*ProtocolError]},
		{name: "refused", result: asksSample("refuse"), want: "sampling/createMessage: rejected by the user", check: func(err error) bool { return is[*InputError](err) && errors.Is(err, ErrRefused) }},
		{name: "failed", result: asksSample("fail"), want: "a secret", check: is[*InputError]},
		{name: "handler returns a JSON-RPC error", result: asksSample("error"), want: "model is down", check: is[*InputError]},
		{name: "nothing", result: asksSample("nothing"), want: "returned nothing", check: is[*InputError]},
		{name: "panic", result: asksSample("panic"), want: "panicked: oh", check: func(err error) bool { return is[*InputError](err) && is[*jsonrpc.PanicError](err) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := answering()
				if tt.opts != nil {
					tt.opts(&opts)
				}
				c := dial(t, &opts, func(s *script) {
					s.discovers()
					s.answer(s.expect("tools/call"), tt.result)
					s.answer(s.expect("tools/call"), `{}`)
					s.expectEnd()
				})
				err := c.Call(t.Context(), "tools/call", nil, nil, WithRetry(true))
				if err == nil || !strings.HasPrefix(err.Error(), "call tools/call: ") || !strings.Contains(err.Error(), tt.want) || !tt.check(err) || IsServerError(err) {
					t.Errorf("got %v (%T), want %q", err, err, tt.want)
				}
				if err := c.Call(t.Context(), "tools/call", nil, nil); err != nil {
					t.Errorf("the next call: %v", err)
				}
			})
		})
	}
}

func asksSample(system string) string {
	return required(`"inputRequests":{"k":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"systemPrompt":"` + system + `"}}}`)
}

// TestInputBounds shows that rounds are limited, that the wait before a round without input
// requests increases, and that the limits of the call apply to handlers.
func TestInputBounds(t *testing.T) {
	bubble := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
	bubble("rounds", func(t *testing.T) {
		opts := answering()
		opts.Input.MaxRounds = 3
		c := dial(t, &opts, func(s *script) {
			s.discovers()
			for range 4 {
				s.answer(s.expect("tools/call"), required(`"inputRequests":{"k":`+askRoots+`}`))
			}
			s.expectEnd()
		})
		if err := c.Call(t.Context(), "tools/call", nil, nil); !errors.Is(err, errTooManyRounds) || IsServerError(err) {
			t.Errorf("got %v", err)
		}
	})
	bubble("back-off", func(t *testing.T) {
		c := dial(t, nil, func(s *script) {
			s.discovers()
			last, gap := time.Now(), time.Duration(0)
			for i := range 10 {
				s.answer(s.expect("tools/call"), required(`"requestState":"x"`))
				if i > 0 {
					now := time.Since(last)
					if least := 100 * time.Millisecond << (i - 1) / 2; now < min(least, 2500*time.Millisecond) || now > 5*time.Second {
						s.fail("round %d came after %v", i, now)
					}
					gap = max(gap, now)
				}
				last = time.Now()
			}
			s.answer(s.expect("tools/call"), "{}")
			s.expectEnd()
		})
		if err := c.Call(t.Context(), "tools/call", nil, nil); err != nil {
			t.Error(err)
		}
	})
	for _, tt := range []struct {
		name string
		opt  CallOption
		ends time.Duration
	}{
		{"WithTimeout does not limit a handler", WithTimeout(time.Second), 0},
		{"WithTotalTimeout limits a handler", WithTotalTimeout(time.Minute), time.Minute},
	} {
		bubble(tt.name, func(t *testing.T) {
			opts := Options{Input: InputOptions{Roots: func(ctx context.Context) ([]mcp.Root, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(time.Hour):
					return nil, nil
				}
			}}}
			c := dial(t, &opts, func(s *script) {
				s.discovers()
				s.answer(s.expect("tools/call"), required(`"inputRequests":{"k":`+askRoots+`}`))
				if tt.ends == 0 {
					s.answer(s.expect("tools/call"), "{}")
				}
				s.expectEnd()
			})
			began := time.Now()
			err := c.Call(t.Context(), "tools/call", nil, nil, tt.opt)
			e, _ := errors.AsType[*TimeoutError](err)
			if d := time.Since(began); tt.ends == 0 && err != nil || tt.ends > 0 && (d != tt.ends || e == nil || !e.Max) {
				t.Errorf("got %v after %v", err, d)
			}
		})
	}
	for _, tt := range []struct {
		name   string
		opt    CallOption
		handle time.Duration
		answer time.Duration // delay of the response after the handler has ended
		want   time.Duration // zero for success
	}{
		{"legacy: the timeout stops during a handler", WithTimeout(time.Second), time.Hour, 900 * time.Millisecond, 0},
		{"legacy: the timeout continues after a handler", WithTimeout(time.Second), time.Hour, 2 * time.Second, time.Hour + time.Second},
		{"legacy: WithTotalTimeout includes handlers", WithTotalTimeout(time.Minute), time.Hour, 0, time.Minute},
	} {
		bubble(tt.name, func(t *testing.T) {
			opts := Options{Revisions: onlyLegacy, Input: InputOptions{Roots: func(ctx context.Context) ([]mcp.Root, error) {
				elapse(tt.handle)
				return nil, nil
			}}}
			c := dial(t, &opts, func(s *script) {
				s.opening(mcp.Revision20250618)
				m := s.expect("tools/call")
				s.ask("1", askRoots)
				if tt.handle > tt.want {
					if tt.want > 0 {
						s.expect("notifications/cancelled")
					}
				}
				s.expectResult("1")
				elapse(tt.answer)
				s.answer(m, "{}")
				if tt.want > tt.handle {
					s.expect("notifications/cancelled")
				}
				s.expectEnd()
			})
			began := time.Now()
			err := c.Call(t.Context(), "tools/call", nil, nil, tt.opt)
			if d := time.Since(began); (err == nil) != (tt.want == 0) || tt.want > 0 && d != tt.want {
				t.Errorf("got %v after %v", err, d)
			}
			elapse(2 * time.Hour)
		})
	}
	bubble("many at once", func(t *testing.T) {
		var handlers gauge
		opts := Options{Input: InputOptions{Roots: func(ctx context.Context) ([]mcp.Root, error) {
			defer handlers.enter()()
			if FromContext(ctx) == nil {
				t.Error("the handler's context has another client")
			}
			elapse(time.Second)
			return nil, nil
		}}}
		var requests []string
		for i := range 20 {
			requests = append(requests, fmt.Sprintf(`"%d":%s`, i, askRoots))
		}
		c := dial(t, &opts, func(s *script) {
			s.discovers()
			s.answer(s.expect("tools/call"), required(`"inputRequests":{`+strings.Join(requests, ",")+`}`))
			m := s.expect("tools/call")
			if n := strings.Count(m.line, `{"roots":[]}`); n != 20 {
				s.fail("%d answers: %s", n, m.line)
			}
			s.answer(m, "{}")
			s.expectEnd()
		})
		if err := c.Call(t.Context(), "tools/call", nil, nil); err != nil || handlers.most != maxConcurrentInputs {
			t.Errorf("%v, %d handlers at once", err, handlers.most)
		}
	})
	bubble("cancelled while a handler runs", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		opts := Options{Input: InputOptions{Roots: func(ctx context.Context) ([]mcp.Root, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}}}
		c := dial(t, &opts, func(s *script) {
			s.discovers()
			s.answer(s.expect("tools/call"), required(`"inputRequests":{"k":`+askRoots+`}`))
			s.expectEnd()
		})
		if err := c.Call(ctx, "tools/call", nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAccept(t *testing.T) {
	type person struct {
		Name string `json:"name"`
	}
	for _, tt := range []struct {
		content any
		want    string // empty for no error
	}{
		{person{"Ada"}, `{"action":"accept","content":{"name":"Ada"}}`},
		{&person{"Ada"}, `{"action":"accept","content":{"name":"Ada"}}`},
		{map[string]any{"age": 36}, `{"action":"accept","content":{"age":36}}`},
		{json.RawMessage(`{"ok":true}`), `{"action":"accept","content":{"ok":true}}`},
		{nil, `{"action":"accept"}`},
		{"Ada", ""},
		{[]string{"Ada"}, ""},
		{json.RawMessage(`{"ok":`), ""},
		{func() {}, ""},
	} {
		result, err := AcceptForm(tt.content)
		got := ""
		if err == nil {
			text, err := json.Marshal(result)
			if err != nil {
				t.Fatal(err)
			}
			got = string(text)
		}
		if got != tt.want {
			t.Errorf("Accept(%#v): got %s, %v, want %s", tt.content, got, err, tt.want)
		}
	}
}
